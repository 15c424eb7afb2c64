"""Follows a job: the states of its replicas and all that they write, until it is settled."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path

from ciao_kernel.backends.kubernetes import alterations, marks, status
from ciao_kernel.backends.kubernetes.kept import Kept
from ciao_kernel.backends.kubernetes.members import Members, trimmed
from ciao_kernel.backends.kubernetes.reasons import Reasons
from ciao_kernel.config import Settings
from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.kube.watch import Watched
from ciao_kernel.model import Event, Job, Notice, Replica, State, Status

_AWAY = 2.0
"""Seconds after which a server that does not answer is spoken of."""
_TICK = 0.5
"""Seconds after which the state is looked at though nothing has changed: waits grow long."""
_LAST_WORDS = 0.5
"""Seconds after a job's end in which all that runs is read on: others may fail with it."""
_SKEW = 60.0
"""Seconds by which this machine's clock and the cluster's may differ."""
_PACE = 0.05
"""Seconds between two looks at the state: a thousand pods change one by one."""
_DENIED = 20.0
"""Seconds for which a refusal is not believed where the same was allowed before."""


async def follow(
    client: Client, job: Job, path: str, logs: Path, settings: Settings, *, since: float = 0.0
) -> AsyncGenerator[Event, None]:
    """Yield a job's output and states until it is settled.

    Args:
        client: The job's API server.
        job: What to follow.
        path: Of the job's object, with its name.
        logs: Folder that gets one file a replica, for what a display leaves out.
        settings: Patience and waits.
        since: Seconds since the epoch; older lines are left out.

    Raises:
        ClusterFault: The server was away for too long; the job may well run on.
    """
    follower = _Follower(client, job, path, logs, settings, since)
    try:
        async for event in follower.events():
            yield event
    finally:
        await follower.close()


class _Follower:
    def __init__(
        self, client: Client, job: Job, path: str, logs: Path, settings: Settings, since: float
    ) -> None:
        self._client, self._job, self._settings = client, job, settings
        self._awake = asyncio.Event()
        collection, _, name = path.rpartition("/")
        self._jobs = Watched(
            client, collection, {"fieldSelector": f"metadata.name={name}"}, self._awake
        )
        self._selector = {"labelSelector": f"{marks.OPERATOR_JOB}={name}"}
        self._pods = self._list_of_pods()
        oldest = status.text(since) if since else None
        self._partly = bool(since)  # how old lines are that were kept, nobody knows
        self._kept = Kept(logs, write=not since)
        self._members = Members(client, job, self._pods, self._kept, oldest, self._awake.set)
        self._reasons = Reasons(client, job, settings.hopeless_wait, self._awake.set)
        self._tasks: list[asyncio.Task[None]] = []
        self._renewed = False
        """Whether the pods are listed anew, since the job is over."""
        self._uid = job.uid
        self._item: Object | None = None
        self._last: Object | None = None
        """As it was last, also once it is gone."""
        self._whole: frozenset[Replica] = frozenset()
        """Whose logs were read to their ends, once the job is over."""
        self._told_away = self._told_fault = False

    async def close(self) -> None:
        try:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            try:
                await self._reasons.close()
            finally:
                await self._members.close()
                self._kept.close(self._whole)

    async def events(self) -> AsyncGenerator[Event, None]:
        self._start(self._jobs.run())
        self._start(self._pods.run())
        shown: Status | None = None
        looked = over_since = 0.0
        replayed = self._partly
        while True:
            soon = over_since or time.monotonic() - looked < _PACE
            await self._pause(_PACE if soon else _TICK)
            for event in self._members.output():
                yield event
            for task in self._tasks:
                if task.done() and not task.cancelled() and (error := task.exception()):
                    raise error
            if notice := self._speak_of_server() or self._speak_of_files():
                yield notice
            listed = self._jobs.listed and self._pods.listed
            if not listed or time.monotonic() - looked < _PACE:
                continue
            looked = time.monotonic()
            for text in self._look():
                yield Notice(text)
            if not replayed:
                replayed = True
                for event in self._members.replay():
                    yield event
            if self._item is None:
                over_since = over_since or time.monotonic()
                if self._gone(over_since) and self._certain():
                    for event in self._members.output():
                        yield event
                    yield status.settled(self._deleted())
                    return
                if shown and not shown.state.over:
                    shown = self._deleted()
                    # Its pods may have time to end. What they write comes still.
                    yield replace(status.settled(shown), settled=False)
                continue
            now = status.of_job(self._job, self._item, self._members.statuses())
            noticed = bool(status.many(self._item, "status", "conditions"))
            now = self._reasons.explain(now, self._members.present(), self._uid, noticed=noticed)
            if now.state.over:
                over_since = over_since or time.monotonic()
                waited = time.monotonic() - over_since
                drained = self._members.drained(self._awaited(now, waited))
                # What seems to run on may be gone, and nobody have said so.
                late = waited > self._settings.linger + _LAST_WORDS
                if (drained or late) and self._certain() and drained:
                    for event in self._members.output():
                        yield event
                    self._whole = self._members.read()
                    yield status.settled(now)
                    return
            else:  # it was given up for what its pods waited for, and now they run
                over_since, self._renewed = 0.0, False
            if now != shown:
                shown = now
                yield now

    async def _pause(self, within: float) -> None:
        """Wait for output, for a change, or for the time to look again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._awake.wait()
        self._awake.clear()

    def _look(self) -> list[str]:
        """Take what changed, and say what somebody else did to the job."""
        before, self._item = self._item, self._found()
        self._last = self._jobs.take().get(self._uid) or self._last
        self._members.renew(self._pods)
        self._members.update(self._pods.take(), self._uid)
        if before is None or self._item is None or before is self._item:
            return []
        changes = alterations.between(before, self._item)
        who = alterations.author(before, self._item) if changes else ""
        by = f" by {who}" if who else ""
        return [f"{self._job.name} was changed{by}: {text}." for text in changes]

    def _found(self) -> Object | None:
        """The job's object; None once it is gone, whatever has its name by then."""
        items = self._jobs.items
        if self._uid:
            return items.get(self._uid)
        for uid, item in items.items():
            self._uid = uid
            return item
        return None

    # ---------------------------------------------------------------------------- watches

    def _list_of_pods(self) -> Watched:
        path = f"/api/v1/namespaces/{self._job.place}/pods"
        return Watched(self._client, path, self._selector, self._awake, trimmed)

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda _: self._awake.set())
        self._tasks.append(task)

    # ------------------------------------------------------------------------------- end

    def _certain(self) -> bool:
        """Whether the pods are known as they are since the job's end; else list them anew, once.

        Their watch may be behind the job's: after an outage each comes back in its own time, and
        a connection that died without an error is taken for a silent one for a minute and more.
        """
        if self._renewed or (self._pods.away_since is None and self._members.succeeded()):
            return True
        self._members.update(self._pods.take(), self._uid)
        self._tasks[-1].cancel()  # their watch, which was started last
        self._renewed, self._pods = True, self._list_of_pods()
        self._start(self._listed_anew(self._pods))
        return False

    async def _listed_anew(self, pods: Watched) -> None:
        """Watch from a new list on; servers that have just started may refuse what is allowed."""
        denied = time.monotonic()
        while True:
            try:
                await pods.run()
            except Refused:
                if pods.listed or time.monotonic() - denied > _DENIED:
                    raise
                await asyncio.sleep(_TICK)

    @property
    def _grace(self) -> float:
        """Seconds after a job's end in which its pods go, and their last lines come."""
        return self._settings.linger + self._settings.stop_grace + _LAST_WORDS

    def _awaited(self, now: Status, waited: float) -> Callable[[Replica], bool]:
        """Which pods that still run are waited for, so many seconds after the job's end.

        Workers get a moment to end by themselves (`linger`), and then their grace to write their
        last lines. Nobody waits for a PS, nor for pods that stay, or wait for what never comes,
        nor for those that hang since a job's end long ago.
        """
        item = self._item or {}
        if waited <= _LAST_WORDS:
            return lambda _: True
        long_ago = now.since and time.time() - now.since > waited + _SKEW
        if now.hopeless or status.keeps_pods(item) or long_ago:
            return lambda _: False
        endless, within = marks.endless(item), waited <= self._grace
        return lambda replica: within and replica.role not in endless

    def _gone(self, since: float) -> bool:
        """Whether the pods of a job that somebody deleted are gone, and their last lines read."""
        if time.monotonic() - since > self._grace:
            return True
        pods = any(pod is not None for pod in self._members.present().values())
        return not pods and self._members.drained(lambda _: True)

    def _deleted(self) -> Status:
        """How a job that is gone is; it may have been over before, as with %ttl=1s."""
        known = self._members.statuses()
        if self._last and (now := status.of_job(self._job, self._last, known)).state.over:
            return now
        return Status(State.STOPPED, tuple(known.values()), time.time(), message=status.DELETED)

    def _speak_of_files(self) -> Notice | None:
        """Say once that lines are not kept any more."""
        if self._told_fault or not (why := self._kept.fault):
            return None
        self._told_fault = True
        return Notice(f"the logs are not kept on this machine any more: {why}.")

    def _speak_of_server(self) -> Notice | None:
        """Say that the server is away, and that it is back; give up after long enough."""
        watched = (self._jobs, self._pods)
        since = [one.away_since for one in watched if one.away_since is not None]
        if not since:
            told, self._told_away = self._told_away, False
            return Notice("the API server answers again.") if told else None
        away = time.monotonic() - min(since)
        fault = next((one.fault for one in watched if one.fault), None)
        if away > self._settings.follow_patience:
            raise ClusterFault(
                f"the API server has been away for {away:.0f} s ({fault}); {self._job.name} may "
                "well run on.",
                f"`%ciao attach {self._job.reference}` follows it again once the server is back.",
            )
        if away > _AWAY and not self._told_away:
            self._told_away = True
            return Notice(f"the API server does not answer ({fault}); waiting for it …")
        return None
