"""The log of one container, from its first line to its last, each line exactly once.

A container may restart in its pod; each instance has its own log, and the logs are read one after
the other. Connections can end at any time, and the end of a log looks like the end of a
connection. So an end counts only if the pod's status confirms it, and if one more answer has no
new line: a kubelet that ends cuts its answer, and the API server ends its own in order.
Missing lines are always reported as a :class:`Gap`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Protocol

from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube import timestamps
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.kube.first_lines import FirstLines
from ciao_kernel.kube.instances import ContainerInstance, over, seen
from ciao_kernel.kube.last_lines import LastLines
from ciao_kernel.kube.log_request import End, LogRequest
from ciao_kernel.kube.replay import Mode, Replay
from ciao_kernel.kube.resume_position import Gap, Lines, ResumePosition
from ciao_kernel.kube.retry_limits import RetryLimits

__all__ = ["ContainerLog", "Gap", "Lines", "PodView"]

_FIRST_WAIT, _LONGEST_WAIT = 0.05, 5.0
_LOOK = 5.0
_LONG_LOOK = 60.0
# Seconds to wait for a status that confirms an end. Short if there were new lines: the log may
# continue, and the node keeps only one file of it.
_SOON, _LATE = 0.5, 3.0
# Normal for a running container: it may write nothing.
_SILENT = (End.CUT, End.QUIET, End.ASIDE)
# Answers after a container was removed with its log; they do not cancel an earlier end.
_LOG_IS_GONE = (End.GONE, End.NOTHING, End.WORDS)


class PodView(Protocol):
    """The current state of the pod."""

    def pod(self) -> Object | None:
        """Return the latest object, or None once it is gone."""

    async def changed(self, within: float) -> None:
        """Wait for the next change, at most the given seconds."""


@dataclass(slots=True)
class _Instance:
    """One instance, and the resume position in its log."""

    id: str
    number: int
    progress: ResumePosition = field(default_factory=ResumePosition)
    mode: Mode = Mode.COUNT
    complete: bool = False
    replaced: bool = False
    """A newer instance is known."""
    superseded: bool = False
    """The node has a newer instance, which the status need not show yet."""
    next_first: bytes = b""
    """Head of the first line of the next instance, where it was asked for."""
    ended_by: Replay | None = None
    """The last answer, if it ended in order and no later answer contradicts it."""
    unfinished: bytes | None = None
    """Its line without an end; None as long as no answer came to an end."""
    over: bool = False
    """Its last answer is of an ended container: only the confirmation is missing."""
    patience: RetryLimits = field(default_factory=RetryLimits)
    wait: float = _FIRST_WAIT
    renewed: bool = False
    """The credentials were renewed since the last new line."""


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
    ) -> None:
        self._client = client
        self._path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        self._name = pod
        self._container = container
        self._view = view
        self._read_timeout = read_timeout
        self._since = since or ""
        self._pause = pause
        self._away = away
        self._uid = ""
        self._begun_early: dict[str, ResumePosition] = {}
        """Resume positions of instances whose lines came before their status."""
        self._query = {"container": container, "timestamps": "true"}
        query = {**self._query, "sinceTime": since} if since else self._query
        self._first_lines = FirstLines(
            client, self._path, query, read_timeout, lambda: self._pod() is not None, away
        )
        self._last_lines = LastLines(client, self._path, self._query, read_timeout)

    async def read(self) -> AsyncGenerator[Lines | Gap, None]:
        """Yield the log as it comes, until nothing more can come.

        Failed connections are retried without limit; cancel to stop.

        Raises:
            Refused: The user may not read logs.
        """
        known: _Instance | None = None
        while one := await self._next(known):
            lost = one.number - (known.number if known else -1) - 1
            if lost > 0 and not self._since:
                which = "1 start" if lost == 1 else f"{lost} starts"
                yield Gap(f"The log of {which} of {self._name} is not kept any more.")
            async with aclosing(self._read(one)) as pieces:
                async for piece in pieces:
                    yield piece
            known = one

    async def _next(self, known: _Instance | None) -> _Instance | None:
        """Wait for the instance after the known one; None if there will be none."""
        while (pod := self._pod()) is not None:
            now = seen(pod, self._container)
            if now and (known is None or now.id != known.id):
                number = known.number if known else -1
                if now.before and now.number - 1 > number:
                    return self._instance(now.before, now.number - 1)
                return self._instance(now.id, now.number)
            if over(pod, self._container):
                return None
            await self._view.changed(within=_LOOK)
        return None

    def _instance(self, id_: str, number: int) -> _Instance:
        return _Instance(id_, number, self._begun_early.pop(id_, ResumePosition()))

    async def _read(self, one: _Instance) -> AsyncGenerator[Lines | Gap, None]:
        """Read one instance, then wait until the container is over or a newer instance started."""
        while (pod := self._pod()) is not None:
            now = seen(pod, self._container)
            if now and now.id != one.id and not one.replaced:
                await self._replace(one, now)
                continue
            if now and one.complete and (now.id != one.id or over(pod, self._container)):
                if now.id == one.id and one.superseded:
                    yield Gap(_unseen(self._name, "the cluster never showed it"))
                return
            if now is None or one.complete:
                await self._view.changed(within=_LOOK)
                continue
            if now.id != one.id and now.before != one.id:
                for piece in _give_up(one, f"{self._name} restarted more than once"):
                    yield piece
                return
            async with aclosing(self._ask(one, now)) as pieces:
                async for piece in pieces:
                    yield piece
        if not one.complete:
            for piece in _give_up(one, f"the pod {self._name} was deleted"):
                yield piece
        if one.superseded and not one.replaced:
            yield Gap(_unseen(self._name, "the pod was deleted"))

    async def _ask(
        self, one: _Instance, now: ContainerInstance
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
        watching = asyncio.ensure_future(self._hurry(request)) if follow else None
        try:
            async with aclosing(request.read()) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            if watching is not None:
                watching.cancel()
        end, replay = request.end, request.replay
        if request.has_new_lines:
            one.wait, one.renewed = _FIRST_WAIT, False
            one.patience.reset()
        if replay.begun and replay.joined:
            one.mode = Mode.COUNT
        gone = end in _LOG_IS_GONE or (end is End.MISMATCH and one.over)
        if not gone or request.has_new_lines:
            one.ended_by = None
        is_confirmed = not request.has_new_lines and replay.unfinished == one.unfinished
        if end in (End.CLEAN, End.ASIDE):
            one.unfinished = replay.unfinished
        if end is End.CLEAN and ended:
            one.ended_by, one.over = replay, True
            if is_confirmed:
                for piece in replay.finish():
                    yield piece
                one.complete = True
            else:
                await self._wait(one)  # a node may report an end before the program has ended
        elif end is End.CLEAN:
            one.ended_by = replay
            await self._status(one, _SOON if request.has_new_lines else _LATE)
        elif self._hopeless(one, request, ended):
            words = request.refusal.message if request.refusal else "no answer"
            for piece in _give_up(one, f"the cluster does not return the log ({words})"):
                yield piece
        elif end is End.MISMATCH or (end is End.QUIET and not replay.joined):
            if mode is not Mode.SEARCH or replay.partial_match:
                one.mode = Mode.SEARCH
            elif await self._moved_on(one, previous):
                one.mode = Mode.COUNT
                if previous:
                    await self._shows(lambda shown: shown.id != now.id, _LATE)
            elif one.over:  # its log ended, so this is the log of a pod in its place
                for piece in _give_up(one, f"{self._name} was made again"):
                    yield piece
            else:
                await self._status(one, _LATE / 3)
                one.mode = Mode.RESTART
        elif end not in (End.QUIET, End.ASIDE):
            if request.refusal and request.refusal.code == 401 and not one.renewed:
                one.renewed = True  # once: the credentials may be right, and the node's own wrong
                with suppress(ClusterFault):  # ignored here; the pod's watch gives up in time
                    await self._client.renew(request.shown)
            await self._wait(one)

    async def _is_complete(self, one: _Instance, previous: bool) -> bool:
        """Return whether an answer ended in order, and the log still ends with its last line."""
        if not one.over or one.ended_by is None or one.unfinished:
            return False
        return await self._last_lines.are_delivered(one.progress, previous=previous)

    async def _hurry(self, request: LogRequest) -> None:
        """Let a request that follows step aside when its container has ended for good.

        Not if the pod is being deleted: its log may be gone before another request, but the node
        still reads it for this one.
        """
        while (pod := self._pod()) and not pod["metadata"].get("deletionTimestamp"):
            if over(pod, self._container):
                request.step_aside()
                return
            await self._view.changed(within=_LONG_LOOK)

    def _hopeless(self, one: _Instance, request: LogRequest, ended: bool) -> bool:
        """Return whether the log has been unavailable for too long.

        Raises:
            Refused: The user may not read logs.
        """
        end, refusal = request.end, request.refusal
        if end is End.AWAY or self._away() or (end in _SILENT and not ended):
            one.patience.reset()
            return False
        if not one.patience.over(end):
            return False
        if end is End.DENIED and refusal and refusal.code != 401:
            raise refusal
        # The pod's watch is accepted, so this 401 is the node's own: the API server passes it on
        # (an expired client certificate, github.com/kubernetes/kubernetes/issues/63128).
        return ended

    def _request(self, one: _Instance, previous: bool, follow: bool) -> LogRequest:
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

    async def _replace(self, one: _Instance, now: ContainerInstance) -> None:
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

    async def _moved_on(self, one: _Instance, previous: bool) -> bool:
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

    async def _status(self, one: _Instance, within: float) -> None:
        """Wait for a status in which the instance has ended, at most the given seconds."""
        await self._shows(lambda now: now.ended or now.id != one.id, within)

    async def _shows(self, wanted: Callable[[ContainerInstance], bool], within: float) -> None:
        """Wait until the status shows the wanted, or nothing; at most the given seconds."""
        until = time.monotonic() + within
        while (left := until - time.monotonic()) > 0:
            pod = self._pod()
            now = pod and seen(pod, self._container)
            if not now or wanted(now):
                return
            await self._view.changed(within=left)

    async def _wait(self, one: _Instance) -> None:
        await asyncio.sleep(one.wait * (0.5 + random.random()))
        one.wait = min(_LONGEST_WAIT, one.wait * 2)

    def _pod(self) -> Object | None:
        """Return the pod; None if it is gone or was replaced by another pod of the same name."""
        pod = self._view.pod()
        if pod is None:
            return None
        uid = str(pod["metadata"].get("uid") or "")
        self._uid = self._uid or uid
        return pod if uid == self._uid else None


def _unseen(name: str, why: str) -> str:
    return f"Lines of a later start of {name} may be lost: {why}."


def _give_up(one: _Instance, why: str) -> list[Lines | Gap]:
    """Mark an instance as complete; return its last line if it had ended, otherwise a gap."""
    one.complete = True
    if one.ended_by is not None:  # it had ended, although no status of the container confirms it
        return one.ended_by.finish()
    last = one.progress.last
    after = f"after {timestamps.clock(last)} UTC" if last else "of its log"
    return [Gap(f"Lines {after} may be lost: {why}.")]
