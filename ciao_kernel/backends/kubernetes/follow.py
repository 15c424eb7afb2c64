"""Follows a job: the states of its replicas and all that they write, until it is settled."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from ciao_kernel.backends.kubernetes import marks, status
from ciao_kernel.backends.kubernetes.reasons import Reasons
from ciao_kernel.config import Settings
from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.kube.logs import ContainerLog, Gap
from ciao_kernel.kube.watch import Watched
from ciao_kernel.model import (
    Event,
    Job,
    Notice,
    Output,
    Replica,
    ReplicaStatus,
    State,
    Status,
)

_AWAY = 2.0
"""Seconds after which a server that does not answer is spoken of."""
_TICK = 0.5


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


@dataclass
class _Known:
    """One replica: its pod of now, its last status, the readers of all its pods."""

    status: ReplicaStatus
    pod: Object | None = None
    readers: dict[str, asyncio.Task[None]] = field(default_factory=dict)


class _Follower:
    def __init__(
        self, client: Client, job: Job, path: str, logs: Path, settings: Settings, since: float
    ) -> None:
        self._client, self._job, self._settings = client, job, settings
        self._since = status.text(since) if since else None
        self._logs = logs
        self._changed = asyncio.Event()
        collection, _, name = path.rpartition("/")
        pods = f"/api/v1/namespaces/{job.place}/pods"
        self._jobs = Watched(
            client, collection, {"fieldSelector": f"metadata.name={name}"}, self._changed
        )
        self._pods = Watched(
            client, pods, {"labelSelector": f"{marks.OPERATOR_JOB}={job.name}"}, self._changed
        )
        self._output: asyncio.Queue[Output | Notice] = asyncio.Queue(64)
        self._known = {
            replica: _Known(ReplicaStatus(replica, log=str(self._file(replica))))
            for replica in job.replicas
        }
        self._reasons = Reasons(client, job, settings.hopeless_wait)
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: set[asyncio.Event] = set()
        self._uid = job.uid
        self._told_away = False
        self._broken: list[str] = []

    async def close(self) -> None:
        readers = [task for one in self._known.values() for task in one.readers.values()]
        for task in [*self._tasks, *readers]:
            task.cancel()
        await asyncio.gather(*self._tasks, *readers, return_exceptions=True)

    async def events(self) -> AsyncGenerator[Event, None]:
        self._logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._jobs.run()), loop.create_task(self._pods.run())]
        shown: Status | None = None
        over_since = 0.0
        while True:
            await self._pause()
            for event in self._rest():
                yield event
            while self._broken:
                yield Notice(self._broken.pop(0))
            for task in self._tasks:
                if task.done() and (error := task.exception()):
                    raise error
            if notice := self._speak_of_server():
                yield notice
            if not self._jobs.listed or not self._pods.listed:
                continue
            now = self._status()
            if now is None:
                for event in self._rest():
                    yield event
                yield self._deleted()
                return
            now = await self._reasons.explain(now, self._present(), self._uid)
            if now.state.over:
                over_since = over_since or time.monotonic()
                if self._drained(over_since):
                    for event in self._rest():
                        yield event
                    yield replace(now, settled=True, replicas=_stopped(now.replicas))
                    return
            if now != shown:
                shown = now
                yield now

    async def _pause(self) -> None:
        """Wait for output, for a change, or for the time to look again."""
        output = asyncio.ensure_future(self._arrived())
        change = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait(
                {output, change, *(task for task in self._tasks if not task.done())},
                timeout=_TICK,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            for task in (output, change):
                task.cancel()
            await asyncio.gather(output, change, return_exceptions=True)
        self._changed.clear()
        for waiting in self._waiting:
            waiting.set()

    async def _arrived(self) -> None:
        while self._output.empty():
            await asyncio.sleep(0.02)

    # -------------------------------------------------------------------------- replicas

    def _status(self) -> Status | None:
        """The job as it is now; None once it is gone. Starts readers of new pods."""
        items = list(self._jobs.items.values())
        if not items or (self._uid and self._uid not in self._jobs.items):
            return None
        item = items[0]
        self._uid = self._uid or str(status.get(item, "metadata", "uid") or "")
        for uid, pod in sorted(
            self._pods.items.items(),
            key=lambda pair: str(status.get(pair[1], "metadata", "creationTimestamp")),
        ):
            one = marks.replica(pod)
            if one not in self._known or not marks.is_part_of(pod, self._uid):
                continue
            known = self._known[one]
            log = known.status.log
            known.pod, known.status = pod, replace(status.of_pod(pod, one), log=log)
            if uid not in known.readers and status.get(pod, "spec", "nodeName"):
                task = asyncio.get_running_loop().create_task(self._read(one, uid, pod))
                task.add_done_callback(functools.partial(self._reader_ended, one))
                known.readers[uid] = task
        for known in self._known.values():
            if known.pod and known.pod["metadata"]["uid"] not in self._pods.items:
                known.pod = None
                if not known.status.state.over:
                    known.status = replace(known.status, state=State.STOPPED, reason="deleted")
        return status.of_job(self._job, item, {r: k.status for r, k in self._known.items()})

    def _present(self) -> dict[Replica, Object | None]:
        return {replica: known.pod for replica, known in self._known.items()}

    async def _read(self, replica: Replica, uid: str, pod: Object) -> None:
        """Bring one pod's lines to the queue and to the replica's file."""
        name = pod["metadata"]["name"]
        container = marks.container(pod)
        view = _View(self._pods, uid, self._waiting)
        log = ContainerLog(self._client, self._job.place, name, container, view, since=self._since)
        with self._open(replica) as file:
            async with contextlib.aclosing(log.read()) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Gap):
                        await self._output.put(Notice(f"[{replica}] {piece.text}"))
                        continue
                    file.write(piece.data)
                    file.flush()
                    await self._output.put(Output(replica, piece.data, piece.count))

    def _reader_ended(self, replica: Replica, task: asyncio.Task[None]) -> None:
        self._changed.set()
        if not task.cancelled() and (error := task.exception()):
            self._broken.append(f"the lines of {replica} are not read any more: {error}")

    def _open(self, replica: Replica) -> BinaryIO:
        """Open the replica's file: anew for its first pod, to append for those that follow it."""
        file = self._file(replica)
        if len(self._known[replica].readers) == 1:
            # A file of its own, not a shorter one: another cell may be writing to the old one.
            file.unlink(missing_ok=True)
        return file.open("ab")

    def _file(self, replica: Replica) -> Path:
        return self._logs / f"{replica}.log"

    # ------------------------------------------------------------------------------- end

    def _drained(self, over_since: float) -> bool:
        """Whether all that will come has come.

        A PS that is being stopped, or a worker that hangs, is not waited for: a second after
        the job's end only the logs of pods that have ended are still read.
        """
        for known in self._known.values():
            ended = known.status.state.over or known.pod is None
            late = time.monotonic() - over_since > self._settings.linger
            for task in known.readers.values():
                if not task.done() and (ended or not late):
                    return False
            if known.pod is not None and not known.readers and not late:
                return False
        return True

    def _rest(self) -> Iterator[Event]:
        """What readers have put into the queue by now."""
        while not self._output.empty():
            yield self._output.get_nowait()

    def _deleted(self) -> Status:
        replicas = _stopped(known.status for known in self._known.values())
        return Status(State.STOPPED, replicas, time.time(), message="deleted", settled=True)

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
                f"`ciao attach {self._job.name}` follows it again once the server is back.",
            )
        if away > _AWAY and not self._told_away:
            self._told_away = True
            return Notice(f"the API server does not answer ({fault}); waiting for it …")
        return None


def _stopped(replicas: Iterable[ReplicaStatus]) -> tuple[ReplicaStatus, ...]:
    """The replicas of a job that is over: what still runs is being stopped by the operator."""
    return tuple(one if one.state.over else replace(one, state=State.STOPPED) for one in replicas)


class _View:
    """One pod as the watched list has it, for the reader of its log."""

    def __init__(self, pods: Watched, uid: str, waiting: set[asyncio.Event]) -> None:
        self._pods, self._uid, self._waiting = pods, uid, waiting

    def pod(self) -> Object | None:
        return self._pods.items.get(self._uid)

    async def changed(self, within: float) -> None:
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            # Not wait_for: before Python 3.12 it loses a cancellation that comes with the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await event.wait()
        finally:
            self._waiting.discard(event)
