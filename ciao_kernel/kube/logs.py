"""The log of one container, from its first line to its last, each line exactly once.

A container may restart in its pod; each instance has its own log, and the logs are read one after
the other. Connections can end at any time, and the end of a log looks like the end of a
connection. So an end counts only if the pod's status confirms it, and if one more answer has no
new line: a kubelet that ends cuts its answer, and the API server ends its own in order.
Missing lines are always reported as a :class:`Gap`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube.client import Client
from ciao_kernel.kube.first_lines import FirstLines
from ciao_kernel.kube.instance_log import InstanceLog
from ciao_kernel.kube.instances import ContainerInstance
from ciao_kernel.kube.last_lines import LastLines
from ciao_kernel.kube.log_denials import Denials
from ciao_kernel.kube.log_request import End, LogRequest
from ciao_kernel.kube.named_pod import NamedPod
from ciao_kernel.kube.replay import Mode, Replay
from ciao_kernel.kube.resume_position import Gap, Lines, ResumePosition
from ciao_kernel.kube.shown_container import PodView, ShownContainer
from ciao_kernel.visible_text import counted

__all__ = ["ContainerLog", "Gap", "Lines", "PodView"]

_LOOK = 5.0
_LONG_LOOK = 60.0
# Seconds to wait for a status that confirms an end. Short if there were new lines: the log may
# continue, and the node keeps only one file of it.
_SOON, _LATE = 0.5, 3.0
# Normal for a running container: it may write nothing.
_SILENT = (End.CUT, End.QUIET, End.ASIDE)
# Answers after a container was removed with its log; they do not cancel an earlier end.
_LOG_IS_GONE = (End.GONE, End.NOTHING, End.WORDS)


class ContainerLog:
    """The complete output of one container of one pod.

    Args:
        client: The API server.
        namespace: Namespace of the pod.
        pod: Name of the pod.
        container: Name of the container.
        view: View of the pod, which has already received the pod's status.
        read_timeout: Seconds without a byte after which a connection counts as dead.
        since: RFC 3339 time of the oldest line to return; None for all lines.
        pause: Seconds to pause after each read while lines come all the time. It saves most of the
            processor time, and delays lines by up to this time.
        away: Returns whether the API server is known to be away; then no log is given up.
        denials: The patience with a missing right; None: there is none.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        pod: str,
        container: str,
        view: PodView,
        *,
        read_timeout: float = 30.0,
        since: str | None = None,
        pause: float = 0.05,
        away: Callable[[], bool] = lambda: False,
        denials: Denials | None = None,
    ) -> None:
        self._client = client
        self._path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        self._name = pod
        self._shown = ShownContainer(view, container)
        self._read_timeout = read_timeout
        self._since = since or ""
        self._pause = pause
        self._away = away
        self._denials = denials or Denials()
        self._begun_early: dict[str, ResumePosition] = {}
        """Resume positions of instances whose lines came before their status."""
        self._query = {"container": container, "timestamps": "true"}
        query = {**self._query, "sinceTime": since} if since else self._query
        self._first_lines = FirstLines(
            client, self._path, query, read_timeout, lambda: self._shown.pod() is not None, away
        )
        self._last_lines = LastLines(client, self._path, self._query, read_timeout)
        self._named = NamedPod(client, namespace, pod, self._shown)

    async def read(self) -> AsyncGenerator[Lines | Gap, None]:
        """Yield the log as it comes, until nothing more can come.

        Failed connections are retried without limit; cancel to stop.

        Raises:
            Refused: The user may not read logs, and the right is not waited for.
        """
        known: InstanceLog | None = None
        while one := await self._next(known):
            lost = one.number - (known.number if known else -1) - 1
            if lost > 0 and not self._since:
                which = counted(lost, "start")
                yield Gap(f"The log of {which} of {self._name} is not kept any more.")
            async with aclosing(self._read(one)) as pieces:
                async for piece in pieces:
                    yield piece
            known = one

    async def _next(self, known: InstanceLog | None) -> InstanceLog | None:
        """Wait for the instance after the known one; None if there will be none."""
        while (pod := self._shown.pod()) is not None:
            now = self._shown.seen(pod)
            if now and (known is None or now.id != known.id):
                number = known.number if known else -1
                if now.before and now.number - 1 > number:
                    return self._instance(now.before, now.number - 1)
                return self._instance(now.id, now.number)
            if self._shown.is_over(pod):
                return None
            await self._shown.changed(within=_LOOK)
        return None

    def _instance(self, id_: str, number: int) -> InstanceLog:
        return InstanceLog(id_, number, self._begun_early.pop(id_, ResumePosition()))

    async def _read(self, one: InstanceLog) -> AsyncGenerator[Lines | Gap, None]:
        """Read one instance, then wait until the container is over or a newer instance started."""
        while (pod := self._shown.pod()) is not None:
            now = self._shown.seen(pod) or self._shown.forgotten(pod, one.id, one.number)
            if now and now.id != one.id and not one.replaced:
                await self._replace(one, now)
                continue
            if now and one.complete and (now.id != one.id or self._shown.is_over(pod)):
                if now.id == one.id and one.superseded:
                    yield Gap(_unseen(self._name, "the cluster never showed it"))
                return
            if now is None or one.complete:
                await self._shown.changed(within=_LOOK)
                continue
            if now.id != one.id and now.before != one.id:
                for piece in one.give_up(f"{self._name} restarted more than once"):
                    yield piece
                return
            async with aclosing(self._ask(one, now)) as pieces:
                async for piece in pieces:
                    yield piece
        if not one.complete:
            for piece in one.give_up(f"the pod {self._name} was deleted"):
                yield piece
        if one.superseded and not one.replaced:
            yield Gap(_unseen(self._name, "the pod was deleted"))

    async def _ask(
        self, one: InstanceLog, now: ContainerInstance
    ) -> AsyncGenerator[Lines | Gap, None]:
        """Send one request, and choose the next step from its end."""
        previous = now.id != one.id or one.superseded
        ended = previous or now.ended
        if await self._is_complete(one, previous):
            one.complete = True
            return
        mode = one.mode
        follow = not ended and mode is not Mode.SEARCH
        request = self._request(one, previous, follow=follow)
        # Nothing but the name tells whose lines come: the pod may have been made again, while its
        # watch is dead.
        unproven = mode is Mode.RESTART or (one.asked and not one.progress.last)
        one.asked, last = True, one.progress.last
        watching = asyncio.ensure_future(self._hurry(request)) if follow else None
        try:
            async with aclosing(request.read()) as pieces:
                async for piece in pieces:
                    if unproven and await self._named.is_another():
                        break
                    unproven = False
                    yield piece
                else:
                    half = unproven and request.replay.unfinished
                    unproven = bool(half) and await self._named.is_another()
        finally:
            if watching is not None:
                watching.cancel()
        if unproven:
            one.progress, one.ended_by = ResumePosition(last=last), None
            for piece in one.give_up(f"{self._name} was made again"):
                yield piece
            return
        end, replay = request.end, request.replay
        if request.answered:
            self._denials.note_log()
        if request.has_new_lines:
            one.note_new_lines()
        if replay.begun and replay.joined:
            one.mode = Mode.COUNT
        gone = end in _LOG_IS_GONE or (end is End.MISMATCH and one.over)
        if not gone or request.has_new_lines:
            one.ended_by = None
        is_confirmed = not request.has_new_lines and replay.unfinished == one.unfinished
        if end in (End.CLEAN, End.ASIDE):
            one.unfinished = replay.unfinished
        if end is End.CLEAN and ended:
            one.ended_by, one.over, one.unconfirmed = replay, True, False
            if is_confirmed:
                for piece in replay.finish():
                    yield piece
                one.complete = True
            else:
                await one.pause()  # a node may report an end before the program has ended
        elif end is End.CLEAN:
            one.ended_by = replay
            await self._wait_for_end(one, _SOON if request.has_new_lines else _LATE)
        elif await self._hopeless(one, request, ended):
            words = request.refusal.message if request.refusal else "no answer"
            for piece in one.give_up(f"the cluster does not return the log ({words})"):
                yield piece
        elif end is End.MISMATCH or (end is End.QUIET and not replay.joined):
            if mode is not Mode.SEARCH or replay.partial_match:
                one.mode = Mode.SEARCH
            elif await self._moved_on(one, previous):
                one.mode = Mode.COUNT
                if previous:
                    await self._shown.shows(lambda shown: shown.id != now.id, _LATE)
            elif one.over:  # its log ended, so this is the log of a pod in its place
                for piece in one.give_up(f"{self._name} was made again"):
                    yield piece
            else:
                await self._wait_for_end(one, _LATE / 3)
                one.mode = Mode.RESTART
        elif end not in (End.QUIET, End.ASIDE):
            if request.refusal and request.refusal.code == 401 and not one.renewed:
                one.renewed = True  # once: the credentials may be right, and the node's own wrong
                with suppress(ClusterFault):  # ignored here; the pod's watch gives up in time
                    await self._client.renew(request.shown)
            if end is End.AWAY and request.shown:  # the pod's watch may still be connected
                await self._client.connections.follow_server(request.shown)
            await one.pause()

    async def _is_complete(self, one: InstanceLog, previous: bool) -> bool:
        """Return whether an answer ended in order, and the log still ends with its last line."""
        if not one.over or one.ended_by is None or one.unfinished or one.unconfirmed:
            return False
        done = await self._last_lines.are_delivered(one.progress, previous=previous)
        one.unconfirmed = not done
        return done

    async def _hurry(self, request: LogRequest) -> None:
        """Let a request that follows step aside when its container has ended for good.

        Not if the pod is being deleted: its log may be gone before another request, but the node
        still reads it for this one.
        """
        while (pod := self._shown.pod()) and not pod["metadata"].get("deletionTimestamp"):
            if self._shown.is_over(pod):
                request.step_aside()
                return
            await self._shown.changed(within=_LONG_LOOK)

    async def _hopeless(self, one: InstanceLog, request: LogRequest, ended: bool) -> bool:
        """Return whether the log has been unavailable for too long.

        Raises:
            Refused: The user may not read logs, and the right is not waited for.
        """
        end, refusal = request.end, request.refusal
        if end is End.AWAY or self._away() or (end in _SILENT and not ended):
            one.patience.reset()
            return False
        if not one.patience.over(end):
            return False
        if end is End.DENIED and refusal and refusal.code != 401:
            await self._denials.outlast(refusal, ended)
            one.patience.reset()
            return False
        if refusal and refusal.code == 401 and not await self._named.is_401_of_node():
            one.patience.reset()  # the end of the pod's watch decides, which is followed until then
            return False
        return ended

    def _request(self, one: InstanceLog, previous: bool, follow: bool) -> LogRequest:
        query = dict(self._query)
        if since := one.progress.since or self._since:
            query["sinceTime"] = since
        if previous:
            query["previous"] = "true"
        if follow:
            query["follow"] = "true"
        replay = Replay(one.progress, one.mode, self._since)
        pause = self._pause if follow else 0.0  # otherwise all lines are there
        return LogRequest(self._client, self._path, query, replay, self._read_timeout, pause)

    async def _replace(self, one: InstanceLog, now: ContainerInstance) -> None:
        """Note that a newer instance started, and move lines to it that belong to it.

        The kubelet is ahead of the API server: when asked for the log of the known instance, it
        may have sent the log of the next one.
        """
        one.replaced, one.mode = True, Mode.COUNT
        if not one.over:
            one.ended_by = None
        if not one.progress.first:
            return
        for id_, previous in ((now.id, False), (now.before, True)):
            if id_ in ("", one.id):
                continue
            first = await self._first_lines.read(previous)
            if not previous:
                one.next_first = first
            if first == one.progress.first:
                self._begun_early[id_] = one.progress
                one.progress = one.progress.before or ResumePosition()
                one.complete = one.over = False
                one.ended_by = one.unfinished = None
                return

    async def _moved_on(self, one: InstanceLog, previous: bool) -> bool:
        """Return whether the node sent another instance's log, since it has a newer one.

        The status may come seconds later than the log. The first lines tell: the log of the known
        instance is now the node's previous one, or no longer that.
        """
        first = await self._first_lines.read(previous=True)
        if previous:
            return bool(first) and first == one.next_first
        if not first or first != one.progress.first:
            return False
        one.superseded, one.next_first = True, await self._first_lines.read(previous=False)
        return True

    async def _wait_for_end(self, one: InstanceLog, within: float) -> None:
        """Wait for a status in which the instance has ended, at most the given seconds."""
        await self._shown.shows(lambda now: now.ended or now.id != one.id, within)


def _unseen(name: str, why: str) -> str:
    return f"Lines of a later start of {name} may be lost: {why}."
