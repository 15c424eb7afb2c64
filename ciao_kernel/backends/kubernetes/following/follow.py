"""Follows a job: the states of its replicas and all their output, until it is settled."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.cluster.outages import Outages
from ciao_kernel.backends.kubernetes.following import spec_changes
from ciao_kernel.backends.kubernetes.following.current_status import CurrentStatus
from ciao_kernel.backends.kubernetes.following.end_waits import EndWaits
from ciao_kernel.backends.kubernetes.following.job_watches import JobWatches
from ciao_kernel.backends.kubernetes.following.log_files import LogFiles
from ciao_kernel.backends.kubernetes.following.losses import Losses
from ciao_kernel.backends.kubernetes.following.replica_tracker import ReplicaTracker
from ciao_kernel.backends.kubernetes.output import output_state
from ciao_kernel.backends.kubernetes.output.output_fetch import OutputFetch
from ciao_kernel.backends.kubernetes.states import finalizers, job_status, queues, status
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, ClusterFault
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.kube.watch import WatchedList
from ciao_kernel.model import Event, Job, Notice, Replica, State, Status

_TICK = 0.5
"""Seconds after which the state is checked without any change: time limits may have passed."""
_PACE = 0.05
"""Minimum seconds between two checks of the state: a thousand pods change one by one."""


async def follow(
    client: Client,
    job: Job,
    path: str,
    logs: Path,
    settings: Settings,
    *,
    since: float = 0.0,
    losses: Losses | None = None,
) -> AsyncGenerator[Event, None]:
    """Yield a job's output and states until it is settled.

    Args:
        client: The job's API server.
        job: The job to follow.
        path: Path of the job's object, with its name.
        logs: Folder for one log file per replica, because displays may leave lines out.
        settings: Timeouts.
        since: Seconds since the epoch, by this machine's clock; older lines are left out.
        losses: Learns which pods the job loses.

    Raises:
        ClusterFault: The server did not answer for too long; the job may still be running.
        Refused: The server refuses to answer, for example because the credentials ended, and
            nobody renewed them in time.
    """
    follower = _Follower(client, job, path, logs, settings, since, losses or Losses())
    try:
        async for event in follower.events():
            yield status.at_local_time(event, client.clock) if isinstance(event, Status) else event
    finally:
        await follower.close()


class _Follower:
    def __init__(
        self,
        client: Client,
        job: Job,
        path: str,
        logs: Path,
        settings: Settings,
        since: float,
        losses: Losses,
    ) -> None:
        self._losses = losses
        self._client, self._job, self._settings = client, job, settings
        self._awake = asyncio.Event()
        self._watches = JobWatches(client, job, path, self._awake)
        self._clock = client.clock
        self._waits = EndWaits(job, settings, client.clock)
        oldest = status.text(self._clock.to_server(since)) if since else None
        self._partial_output = bool(since)  # saved lines have no times
        self._kept = LogFiles(logs, write=not since)
        now = self._clock.now
        self._members = ReplicaTracker(
            client, job, self._watches.pods, self._kept, oldest, self._awake.set, now
        )
        self._current = CurrentStatus(client, job, settings.hopeless_wait, self._awake.set)
        self._returned = OutputFetch(client, job, logs, settings, self._awake.set)
        self._outages = Outages(settings.follow_patience, self._lost)
        self._renewed = False
        """True after the pods were listed again because of the job's end."""
        self._uid = job.uid
        self._item: Object | None = None
        self._last: Object | None = None
        """The last known object, also after its deletion."""
        self._whole: frozenset[Replica] = frozenset()
        """Replicas whose logs were read completely, set at the job's end."""
        self._fault_reported = self._deletion_reported = False

    async def close(self) -> None:
        try:
            await self._watches.close()
            await self._returned.close()
        finally:
            try:
                await self._current.close()
            finally:
                await self._members.close()
                self._kept.close(self._whole)

    async def events(self) -> AsyncGenerator[Event, None]:
        self._watches.start()
        shown: Status | None = None
        looked = over_since = 0.0
        replayed, decided, hurries = self._partial_output, False, False
        while True:
            soon = hurries or time.monotonic() - looked < _PACE
            await self._pause(_PACE if soon else _TICK)
            for event in self._members.output():
                yield event
            self._watches.check()
            notice = self._outages.report(self._watches.lists) or self._report_save_fault()
            if notice:
                yield notice
            if not self._watches.listed or time.monotonic() - looked < _PACE:
                continue
            looked = time.monotonic()
            for text in self._look():
                yield Notice(text)
            if not replayed:
                replayed = True
                for event in self._members.replay():
                    yield event
            if self._item is None or job_status.is_deleted(self._item):
                over_since, hurries = over_since or time.monotonic(), True
                if notice := self._report_finalizers():
                    yield notice
                gone = self._gone(over_since)
                self._returned.job_is_gone({} if gone else self._members.present())
                for event in self._returned.events():
                    yield event
                if gone and not self._awaits_files(over_since) and self._pods_are_current():
                    self._returned.give_up()
                    for event in (*self._members.output(), *self._returned.last_events()):
                        yield event
                    yield job_status.settled(self._deleted())
                    return
                if (shown or self._item) and not (shown and shown.state.over):
                    shown = self._deleted()
                    # Its pods may still be ending; their output is still read.
                    yield replace(job_status.settled(shown), settled=False)
                continue
            now = self._current.status(self._item, self._members, self._uid)
            if notice := self._current.notice():
                yield notice
            self._returned.update(self._item, now, self._members.present())
            for event in self._returned.events():
                yield event
            hurries = now.state.over and not (now.foreseen and decided)
            if now.state.over and not now.foreseen:
                over_since = over_since or time.monotonic()
                waited = time.monotonic() - over_since
                drained = self._members.drained(self._waits.predicate(now, self._item, waited))
                # A pod that seems to run may be gone without an event.
                late = waited > self._waits.moment
                drained = drained and not self._returned.fetching
                if (drained or late) and self._pods_are_current() and drained:
                    for event in (*self._members.output(), *self._returned.last_events()):
                        yield event
                    self._whole = self._members.read()
                    yield job_status.settled(now)
                    return
            else:  # the job was given up while its pods waited, and now they run
                over_since, self._renewed = 0.0, False
            current = self._watches.pods.away_since is None and not self._returned.busy
            if current and self._current.decided(now) and self._members.drained(lambda _: False):
                for event in self._members.output():
                    yield event
                decided = True
            now = replace(now, decided=decided and now.state is State.FAILED)
            if now != shown and (decided or not now.foreseen):
                shown = now
                yield now

    async def _pause(self, within: float) -> None:
        """Wait for output or for a change, for so many seconds at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._awake.wait()
        self._awake.clear()

    def _look(self) -> list[str]:
        """Take the changes, and return sentences about changes of the job by somebody else."""
        before, self._item = self._item, self._found()
        self._last = self._watches.jobs.take().get(self._uid) or self._last
        self._members.renew(self._watches.pods)
        self._take_pods()
        if before is None or self._item is None or before is self._item:
            return []
        changes = spec_changes.between(before, self._item)
        who = spec_changes.author(before, self._item) if changes else ""
        if who == queues.MANAGER:  # what they mean is said in the queue's words
            return []
        by = f" by {who}" if who else ""
        return [f"{self._job.name} was changed{by}: {text}." for text in changes]

    def _take_pods(self) -> None:
        touched = self._watches.pods.take()
        ours = (
            pod
            for pod in touched.values()
            if job_metadata.is_part_of(pod, self._uid, self._job.run)
        )
        suspended = self._item is not None and apis.is_suspended(self._item)
        self._losses.look(ours, suspended=suspended)
        self._members.update(touched, self._uid)

    def _found(self) -> Object | None:
        """Return the job's object; None after its deletion, even if another job has its name."""
        items = self._watches.jobs.items
        if self._uid:
            return items.get(self._uid)
        for uid, item in items.items():
            self._uid = uid
            return item
        return None

    # ------------------------------------------------------------------------------- end

    def _pods_are_current(self) -> bool:
        """Return whether the pods' states are newer than the job's end; if not, list them once.

        The pods' watch may be behind the job's: after an outage each watch reconnects by itself,
        and a connection that died without an error seems only silent for over a minute.
        """
        pods = self._watches.pods
        if self._renewed or (pods.away_since is None and self._members.succeeded()):
            return True
        self._take_pods()
        self._renewed = True
        self._watches.list_pods_again()
        return False

    def _gone(self, since: float) -> bool:
        """Return whether a deleted job's pods are gone and read, or their time is over."""
        if time.monotonic() - since > self._waits.grace:
            return True
        pods = any(pod is not None for pod in self._members.present().values())
        return not pods and self._members.drained(lambda _: True)

    def _awaits_files(self, since: float) -> bool:
        """Return whether files of a deleted job still come: what a pod sends may outlast it."""
        return self._returned.fetching and time.monotonic() - since < output_state.LONGEST

    def _deleted(self) -> Status:
        """Return the status of a deleted job; it may have ended before, as with %ttl=1s."""
        known = self._members.statuses()
        if self._last and (now := job_status.of_job(self._job, self._last, known)).state.over:
            return now
        return Status(
            State.STOPPED, tuple(known.values()), self._clock.now(), message=status.DELETED
        )

    def _report_finalizers(self) -> Notice | None:
        """Report once who keeps a deleted job."""
        by = finalizers.words(self._item)
        if self._deletion_reported or not by:
            return None
        self._deletion_reported = True
        return Notice(
            f"somebody deleted {self._job.name}, but {by} keeps its object, and its pods may run "
            "until whoever set the finalizer removes it."
        )

    def _lost(self, away: float, watched: WatchedList) -> BackendError:
        """Return the error for an API server that is away for too long."""
        if watched.refusal:
            return self._watches.signed_out(watched.refusal)
        return ClusterFault(
            f"the API server has not answered for {away:.0f} s ({watched.fault}); "
            f"{self._job.name} may still be running.",
            f"`%ciao attach {self._job.reference}` follows the job when the server is back.",
        )

    def _report_save_fault(self) -> Notice | None:
        """Report once that no more lines are saved."""
        if self._fault_reported or not (why := self._kept.fault):
            return None
        self._fault_reported = True
        return Notice(f"no more log lines are saved on this machine: {why}.")
