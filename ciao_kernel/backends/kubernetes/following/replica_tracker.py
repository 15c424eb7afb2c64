"""The replicas of a followed job: the pod of each, its status, and the reader of its log."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from ciao_kernel.backends.kubernetes.apis import job_metadata, job_pods
from ciao_kernel.backends.kubernetes.cluster.pod_view import ListedPod
from ciao_kernel.backends.kubernetes.following import saved_log
from ciao_kernel.backends.kubernetes.following.first_pieces import together
from ciao_kernel.backends.kubernetes.following.log_files import LogFiles
from ciao_kernel.backends.kubernetes.states import silent_node, status
from ciao_kernel.background import cancel_all
from ciao_kernel.kube import instances
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.kube.log_denials import Denials
from ciao_kernel.kube.logs import ContainerLog, Gap
from ciao_kernel.kube.watch import WatchedList
from ciao_kernel.model import Event, Job, Notice, Output, Replica, ReplicaStatus, State

_log = logging.getLogger(__name__)

_WAITING = 64
"""Pieces of output that readers may queue ahead of the consumer."""
_MOST = 10_000
_STALLED = 10.0
"""Seconds without a line after which the logs of a replica's earlier pods are not waited for."""
_REST, _LONGEST_REST, _QUICK = 0.05, 0.25, 16
"""Pause after each read of a log in seconds, its limit, and the number of logs from which it grows.
With many short pauses most processor time would be spent on waking up for a line or two."""


@dataclass
class _TrackedReplica:
    """One replica: its current pod, its last status, the readers of all its pods."""

    status: ReplicaStatus
    denials: Denials
    """The patience of all its readers."""
    pod: Object | None = None
    uid: str = ""
    """Uid of its last pod, also after that is gone."""
    earlier: int = 0
    """Number of runs in the pods before."""
    readers: dict[str, asyncio.Task[bool]] = field(default_factory=dict)
    """Readers by the uid of the pod; their result is True if all was read."""
    backlog: list[asyncio.Task[bool]] = field(default_factory=list)
    """Readers of pods that had already ended when they were found."""
    pieces: int = 0
    """Number of pieces of its logs that were yielded."""
    lost: bool = False
    """A log that was expected is gone."""


class ReplicaTracker:
    """Keeps the replicas' states and reads their logs.

    Args:
        client: The API server.
        job: The job of the replicas.
        pods: The job's pods; the caller keeps the list up to date.
        kept: The files of the logs.
        since: RFC 3339 time of the oldest line to read; None for all lines.
        wake: Called when :meth:`output` has events.
        now: The cluster's clock, in seconds since the epoch.
    """

    def __init__(
        self,
        client: Client,
        job: Job,
        pods: WatchedList,
        kept: LogFiles,
        since: str | None,
        wake: Callable[[], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._now = now
        self._client, self._job, self._pods = client, job, pods
        self._kept, self._since, self._wake = kept, since, wake
        self._members = {replica: self._tracked(replica) for replica in job.replicas}
        self._owner: dict[str, Replica] = {}
        """Replicas by the uids of their pods."""
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._output: asyncio.Queue[Output | Notice] = asyncio.Queue(_WAITING)
        self._closing = False

    def _tracked(self, replica: Replica) -> _TrackedReplica:
        denials = Denials(lambda text: self._put(Notice(f"[{replica}] {text}")))
        log = str(self._kept.path(replica))
        return _TrackedReplica(ReplicaStatus(replica, log=log), denials)

    async def close(self) -> None:
        """Stop reading."""
        self._closing = True
        readers = [task for one in self._members.values() for task in one.readers.values()]
        await cancel_all(readers)

    def update(self, touched: Mapping[str, Object], job: str) -> None:
        """Take the changes, and start the readers of new pods.

        Args:
            touched: Pods that were added, changed or deleted, by uid, in their last state.
            job: The uid of the job: an earlier job of the same name may have left pods.
        """
        for uid, pod in sorted(touched.items(), key=lambda pair: job_pods.rank(pair[1])):
            self._take(uid, pod, job)
        self._tell(touched, status.DELETED)

    def renew(self, pods: WatchedList) -> None:
        """Continue with a new list of pods; :meth:`update` then takes its changes."""
        if pods is self._pods:
            return  # otherwise a pod deleted since the last call would lose its last state
        self._pods = pods
        # Nobody saw the end of pods that are gone.
        self._tell(self._owner.keys() - pods.items.keys(), "")

    def _tell(self, uids: Iterable[str], why: str) -> None:
        """Wake the readers of changed pods, and record which pods are gone, and why."""
        for uid in uids:
            for event in self._waiting.get(uid, ()):
                event.set()
            if uid not in self._pods.items and (replica := self._owner.pop(uid, None)):
                self._gone(self._members[replica], uid, why)

    def _take(self, uid: str, pod: Object, job: str) -> None:
        replica = job_metadata.replica(pod)
        if replica is None or not job_metadata.is_part_of(pod, job, self._job.run):
            return
        if replica not in self._members:  # someone has scaled the job
            if len(self._members) >= _MOST:
                return
            self._members[replica] = self._tracked(replica)
        one = self._members[replica]
        same = one.pod is not None and one.pod["metadata"]["uid"] == uid
        if one.pod and not same and job_pods.rank(one.pod) > job_pods.rank(pod):
            return  # the last words of a pod that has a successor
        self._owner[uid] = replica
        if uid != one.uid:
            one.earlier = one.status.restarts + 1 if one.uid else 0
            one.uid = uid
        one.pod = pod
        # The last state of a deleted pod reports its end as a failure.
        if not same or one.status.state is not State.STOPPED:
            now = status.of_pod(pod, replica)
            count = now.restarts + one.earlier
            one.status = replace(now, restarts=count, log=one.status.log)
        if one.status.state.over:
            self._kept.keep_results(replica, status.last_words(pod))
        if uid not in one.readers and one.status.node and uid in self._pods.items:
            read = self._read(replica, uid, pod, tuple(one.backlog))
            one.readers[uid] = asyncio.get_running_loop().create_task(read)
            if one.status.state.over:
                one.backlog.append(one.readers[uid])

    def _gone(self, one: _TrackedReplica, uid: str, why: str) -> None:
        if one.pod and one.pod["metadata"]["uid"] == uid:
            lost = silent_node.LOST if silent_node.has(one.pod) else ""
            why = status.disruption(one.pod) or lost or why
            one.pod = None
            if not one.status.state.over:
                one.status = replace(one.status, state=State.STOPPED, since=self._now(), reason=why)

    # --------------------------------------------------------------------------- what is known

    def statuses(self) -> dict[Replica, ReplicaStatus]:
        """Return the last known status of each replica, also if its pod is gone."""
        return {replica: one.status for replica, one in self._members.items()}

    def present(self) -> dict[Replica, Object | None]:
        """Return the pod of each replica; None if it has no pod."""
        return {replica: one.pod for replica, one in self._members.items()}

    def output(self) -> Iterator[Event]:
        """Yield the events since the last call."""
        while not self._output.empty():
            yield self._output.get_nowait()

    def replay(self) -> Iterator[Event]:
        """Yield the saved lines of replicas whose pods are gone."""
        for replica, one in self._members.items():
            if one.pod is None and not one.readers:
                for data in self._kept.lines(replica):
                    one.pieces += 1
                    yield _saved(replica, data)

    def drained(self, should_wait: Callable[[Replica], bool]) -> bool:
        """Return whether all output of a finished job has arrived.

        The logs of ended pods are always read to their last lines. A replica's earlier pods have
        ended, even if its current pod runs.

        Args:
            should_wait: Tells whether to wait for a replica whose pod has not ended.
        """
        for replica, one in self._members.items():
            runs = one.pod["metadata"]["uid"] if one.pod and not one.status.state.over else ""
            waits = one.pod is not None and should_wait(replica)
            if any(not task.done() and (waits or uid != runs) for uid, task in one.readers.items()):
                return False
            if waits and not one.readers:
                return False
        return True

    def read(self) -> frozenset[Replica]:
        """Return the replicas without further output: ended, and read to the last line."""
        return frozenset(
            replica
            for replica, one in self._members.items()
            if one.readers and all(task.done() and task.result() for task in one.readers.values())
        )

    def succeeded(self) -> bool:
        """Return whether every replica has succeeded; then neither status nor log will change."""
        return all(one.status.state is State.SUCCEEDED for one in self._members.values())

    # ------------------------------------------------------------------------------------ logs

    async def _read(
        self, replica: Replica, uid: str, pod: Object, backlog: Collection[asyncio.Task[bool]]
    ) -> bool:
        """Put one pod's lines into the queue; a failure of one log is no failure of the job.

        The logs of earlier pods that have ended come first: a replica's lines are in order.
        """
        try:
            await self._read_out(self._members[replica], backlog)
            return await self._copy(replica, uid, pod)
        except Exception as error:
            _log.exception("reading the log of %s failed", replica)
            await self._put(Notice(f"reading the log of {replica} failed: {error}"))
            return False
        finally:
            self._wake()

    async def _read_out(
        self, one: _TrackedReplica, backlog: Collection[asyncio.Task[bool]]
    ) -> None:
        """Wait for readers, each as long as lines come: the node of an earlier pod may be off."""
        for task in backlog:
            stalled = False
            while not (task.done() or stalled):
                before = one.pieces
                await asyncio.wait({task}, timeout=_STALLED)
                stalled = one.pieces == before and not self._output.full()

    async def _copy(self, replica: Replica, uid: str, pod: Object) -> bool:
        """Yield and save the lines of a pod; return whether none of them is missing."""
        view = ListedPod(lambda: self._pods.items.get(uid), self._waiting.setdefault(uid, set()))
        container = job_metadata.container(pod)
        log = ContainerLog(
            self._client,
            self._job.place,
            pod["metadata"]["name"],
            container,
            view,
            since=self._since,
            pause=min(_LONGEST_REST, _REST * max(1, len(self._members) / _QUICK)),
            away=lambda: self._pods.away_since is not None,
            denials=self._members[replica].denials,
        )
        one, is_whole = self._members[replica], True
        # Only many lines tell where in the saved log those of the node begin.
        size = 0 if self._since or not self._kept.has(replica) else saved_log.ENOUGH
        async with aclosing(log.read()) as pieces, aclosing(together(pieces, size)) as joined:
            async for piece in joined:
                if isinstance(piece, Gap):
                    is_whole, one.lost = False, True
                    await self._put(Notice(f"[{replica}] {piece.text}"))
                    continue
                one.pieces += 1
                if one.pieces == 1 and self._is_alone(one, uid):
                    await self._show_saved(replica, self._kept.lines_before(replica, piece.data))
                self._kept.write(replica, piece.data)
                await self._put(Output(replica, piece.data, piece.count))
        # Otherwise the replica has written nothing, and the saved lines are of an earlier try.
        lost = one.lost or instances.forgotten(view.pod() or pod, container)
        if lost and not one.pieces and self._is_alone(one, uid):
            await self._show_saved(replica, self._kept.lines(replica))
        return is_whole

    def _is_alone(self, one: _TrackedReplica, uid: str) -> bool:
        """Return whether no other pod can yield lines of the saved log, and all lines are asked."""
        others = (task for key, task in one.readers.items() if key != uid)
        return not self._since and all(task.done() for task in others)

    async def _show_saved(self, replica: Replica, lines: Iterable[bytes]) -> None:
        """Yield saved lines that the node has no more: it keeps the newest 10 MiB of a log."""
        for data in lines:
            self._members[replica].pieces += 1
            await self._put(_saved(replica, data))

    async def _put(self, event: Output | Notice) -> None:
        if self._closing:
            return  # nobody takes it any more: a full queue would wait for ever
        await self._output.put(event)
        self._wake()


def _saved(replica: Replica, data: bytes) -> Output:
    return Output(replica, data, data.count(b"\n") + (data[-1:] != b"\n"))
