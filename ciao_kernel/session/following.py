"""Shows a job to its end: what a backend tells goes to the display, and the last of it is kept.

It is a thing of its own because it may outlast its cell: who presses stop wants the cell to end,
and what the replicas write while they end all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import replace

from ciao_kernel.background import lasting
from ciao_kernel.errors import JobLost
from ciao_kernel.model import Event, Job, Output, Replica, ReplicaStatus, State, Status
from ciao_kernel.plugins import Backend, Display

_LAST_LINES = 2.0
"""Seconds that reading may take after the last replica has ended."""
_MOST = 256 * 1024
"""Bytes that are kept of one replica's log: a traceback, and what was written before it."""
_ALL = 32 * 1024 * 1024
"""Bytes of all replicas together; a thousand of them get less each."""


class Following:
    """One job that is followed from now on; a session makes it.

    Args:
        job: What to follow.
        backend: Who runs it.
        display: Where events go.
        follow: Roles and replicas whose lines are shown; empty: all.
        since: Seconds since the epoch; older lines are left out.
    """

    def __init__(
        self,
        job: Job,
        backend: Backend,
        display: Display,
        follow: tuple[str, ...] = (),
        since: float = 0.0,
    ) -> None:
        self.job, self.backend, self.display = job, backend, display
        self._follow, self._since = follow, since
        self._tails = Tails(len(job.replicas))
        self._status: Status | None = None
        self._task = lasting(self._run())

    @property
    def tails(self) -> Mapping[Replica, bytes]:
        """The ends of the replicas' logs."""
        return self._tails.data

    @property
    def ended(self) -> Status | None:
        """How the job ended, once that was told; its last picture may still be made."""
        return self._status if self._status and self._status.state.over else None

    async def shown(self) -> Status:
        """Wait until all is shown; return the job's last status.

        Cancelling ends the waiting alone; the showing ends with the job, or by :meth:`end`.

        Raises:
            JobLost: It said nothing of itself.
            BackendError, JobError: As the backend's ``follow``.
        """
        return await asyncio.shield(self._task)

    async def end(self, within: float = _LAST_LINES) -> None:
        """End the showing, if it does not come to its own end in so many seconds."""
        await asyncio.wait({self._task}, timeout=within)
        self._task.cancel()
        await asyncio.wait({self._task})

    def show_stopped(self) -> Status:
        """Show the job as stopped, unless it is over, with all that still ran in it.

        For a cell that ends before its job does: a notebook may be saved as it is then.
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
        async with self._events() as events:
            self.display.begin(self.job, self._follow)
            try:
                async for event in events:
                    if isinstance(event, Status):
                        self._status = event
                    elif isinstance(event, Output):
                        self._tails.add(event)
                    self.display.show(event)
            finally:
                await self.display.end()
        if self._status is None:
            raise JobLost(
                f"{self.job.name} said nothing of itself.", "`%ciao jobs` shows what is known."
            )
        return self._status

    @contextlib.asynccontextmanager
    async def _events(self) -> AsyncIterator[AsyncIterator[Event]]:
        """Let the backend close what it opened as soon as nobody follows."""
        events = self.backend.follow(self.job, since=self._since)
        try:
            yield events
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()


class Tails:
    """Keeps the end of each replica's log: why a job failed is written there.

    Args:
        replicas: How many there are.
    """

    def __init__(self, replicas: int) -> None:
        self._size = min(_MOST, _ALL // max(1, replicas))
        self.data: dict[Replica, bytes] = {}

    def add(self, event: Output) -> None:
        """Note what a replica wrote."""
        if event.data:
            old = self.data.get(event.replica, b"")
            new = event.data[-self._size :]
            self.data[event.replica] = (old + new)[-self._size :]
