"""Follows a job to its end: shows the backend's events and keeps the end of each log.

Following may outlast its cell: after a click on the stop button the cell ends soon, and the
output of replicas that are still ending is shown as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from dataclasses import replace

from ciao_kernel.background import start_background
from ciao_kernel.errors import CiaoError, JobError, JobFailed, JobLost, describe
from ciao_kernel.model import Event, Job, Notice, Output, Replica, ReplicaStatus, State, Status
from ciao_kernel.plugins import Backend, Display
from ciao_kernel.session.inspection.watchers import NOBODY, Watchers
from ciao_kernel.session.turns import Restarts
from ciao_kernel.session.warm import logs

_LAST_LINES = 2.0
"""Maximum seconds of reading after the last replica has ended."""
_MOST = 256 * 1024
"""Maximum bytes kept of one replica's log: a traceback and the text before it."""
_ALL = 32 * 1024 * 1024
"""Maximum bytes kept of all replicas together; each of a thousand replicas gets less."""


class Following:
    """Follows one job, starting immediately; created by a session.

    Args:
        job: The job.
        backend: The backend that runs the job.
        display: Receives the events.
        follow: Roles and replicas whose lines are shown; empty: all.
        since: Seconds since the epoch; older lines are left out.
        judge: Returns the error of a job with a status and the ends of its logs, None if it has
            none.
        watched: What looks after the job beside its lines.
        events: What happens to the job; None: its backend tells it.
    """

    def __init__(
        self,
        job: Job,
        backend: Backend,
        display: Display,
        follow: tuple[str, ...] = (),
        since: float = 0.0,
        judge: Callable[[Status, Mapping[Replica, bytes]], JobError | None] = lambda *_: None,
        watched: Watchers = NOBODY,
        events: AsyncIterator[Event] | None = None,
    ) -> None:
        self.watched, self._told = watched, events
        self.job, self.backend, self.display = job, backend, display
        self._follow, self._since, self._judge = follow, since, judge
        self._failure: JobFailed | None = None
        self._tails = Tails(len(job.replicas))
        self._restarts = Restarts()
        self._status: Status | None = None
        self._decided: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self._task = start_background(self._run())

    @property
    def tails(self) -> Mapping[Replica, bytes]:
        """The end of each replica's log."""
        return self._tails.data

    @property
    def ended(self) -> Status | None:
        """Final status of the job, None until received; the last plot may not be drawn yet.

        A foreseen failure is none: the job can still be stopped.
        """
        now = self._status
        return now if now and now.state.over and not now.foreseen else None

    async def wait_until_shown(self) -> Status:
        """Wait until everything is shown; return the job's last status.

        A cancellation ends only the wait. Events are shown until the job ends, or by :meth:`end`.

        Raises:
            JobLost: No status was received.
            BackendError, JobError: See the backend's ``follow``.
        """
        return await asyncio.shield(self._task)

    async def wait_until_decided(self) -> Status:
        """Wait as :meth:`wait_until_shown` does, but not for the job's last lines if it fails.

        Returns:
            The job's last status, or that of a failed job whose other replicas are ending: their
            lines are still shown.

        Raises:
            JobLost, BackendError, JobError: See :meth:`wait_until_shown`.
        """
        await asyncio.wait({self._task, self._decided}, return_when=asyncio.FIRST_COMPLETED)
        if self._decided.done() and not self._task.done():
            return self._decided.result()
        return await self.wait_until_shown()

    def conclude(self, status: Status) -> JobError | None:
        """Return the error that the cell ends with; the display gets it before the user does.

        The failure of a job is judged once: a cell ends with one error, whatever follows behind it.

        Args:
            status: The status that the cell ends with.
        """
        if self._failure is not None:
            return self._failure
        error = self._judge(status, self.tails)
        if isinstance(error, JobFailed):
            self._failure = error
            error.on_screen = self.display.conclude(error)
        return error

    def withdraw(self) -> None:
        """Note that the cell ends with an interrupt, and not with the error of the job.

        The display may have folded lines that this error was about to repeat: it is shown as text.
        """
        self._judge = lambda *_: None
        if self._failure is not None:
            self.display.show(Notice("\n".join(describe(self._failure))))

    async def show_rest(self) -> None:
        """Show the rest of a job whose cell has ended, and report what no cell reports any more."""
        try:
            last = await self.wait_until_shown()
        except CiaoError as error:
            self.display.show(Notice(f"{error.message} {error.hint}".rstrip()))
            return
        if last.state is State.SUCCEEDED:
            self.display.show(
                Notice(
                    f"{last.decided_by} ended well at the same time, so the cluster counts "
                    f"{self.job.name} as succeeded."
                )
            )

    async def end(self, within: float = _LAST_LINES) -> None:
        """Stop showing events, unless following ends by itself within this many seconds."""
        await asyncio.wait({self._task}, timeout=within)
        self._task.cancel()
        await asyncio.wait({self._task})

    def show_stopped(self) -> Status:
        """Show the replicas that still run as stopped, and also the job unless it is over.

        For a cell that ends before its job: the notebook may be saved in this state.
        """
        now = time.time()
        unknown = Status(State.PENDING, tuple(ReplicaStatus(one) for one in self.job.replicas))
        stopped = self._status or unknown
        if not stopped.state.over:
            stopped = replace(stopped, state=State.STOPPED, since=now, message="")
        replicas = tuple(
            one if one.state.over else replace(one, state=State.STOPPED, since=now)
            for one in stopped.replicas
        )
        stopped = replace(stopped, replicas=replicas)
        if stopped != self._status:
            self._status = stopped
            self.display.show(stopped)
        return stopped

    async def _run(self) -> Status:
        async with self.watched.watching(), self._events() as events:
            self.display.begin(self.job, self._follow)
            try:
                async for event in events:
                    self.watched.note(event)
                    if isinstance(event, Status):
                        self._forget_earlier_runs(event)
                        self._status = event
                        # One message: a node's failure restarts hundreds of replicas at once.
                        if text := "\n".join(self._restarts.sentences(event)):
                            self.display.show(Notice(text))
                    elif isinstance(event, Output):
                        self._tails.add(event)
                    self.display.show(event)
                    if isinstance(event, Status) and event.decided and not self._decided.done():
                        self._decided.set_result(event)  # the cell may end, and shows its status
                if self._status is not None and self._status.state is State.FAILED:
                    self.conclude(self._status)  # while the display can fold what it repeats
            finally:
                await self.display.end()
        if self._status is None:
            raise JobLost(
                f"no status was received for {self.job.name}.",
                "`%ciao jobs` shows what is known about it.",
            )
        return self._status

    def _forget_earlier_runs(self, now: Status) -> None:
        """Begin the tails of replicas anew that run again: an earlier run is not what failed.

        On a cluster a restart may be known later than the first lines of the new run.
        """
        before = self._status
        if before is None:
            return
        if now.tries > before.tries:
            self._tails.begin_anew(self.job.replicas)
        elif not self.job.on_cluster:
            counts = {one.replica: one.restarts for one in before.replicas}
            again = (one for one in now.replicas if one.restarts > counts.get(one.replica, 0))
            self._tails.begin_anew(one.replica for one in again)

    @contextlib.asynccontextmanager
    async def _events(self) -> AsyncIterator[AsyncIterator[Event]]:
        """Yield the backend's events; its resources are closed when following ends."""
        note = self.watched.note_breakpoint
        events = self._told or logs.follow(self.backend, self.job, self._since, note)
        try:
            yield events
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()


class Tails:
    """Keeps the end of each replica's log, which shows why a job failed.

    Args:
        replicas: Number of replicas.
    """

    def __init__(self, replicas: int) -> None:
        self._size = min(_MOST, _ALL // max(1, replicas))
        self._data: dict[Replica, bytes] = {}
        self._before: dict[Replica, bytes] = {}
        """Of the run before, until the next one has written a line."""

    @property
    def data(self) -> Mapping[Replica, bytes]:
        """The end of each replica's log, of its last run that has written something."""
        return {**self._before, **self._data}

    def begin_anew(self, replicas: Iterable[Replica]) -> None:
        """Note that replicas were started again."""
        for one in replicas:
            if old := self._data.pop(one, b""):
                self._before[one] = old

    def add(self, event: Output) -> None:
        """Add the output of a replica."""
        if event.data:
            old = self._data.get(event.replica, b"")
            new = event.data[-self._size :]
            self._before.pop(event.replica, None)
            self._data[event.replica] = (old + new)[-self._size :]
