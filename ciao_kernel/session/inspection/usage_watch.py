"""Asks in turns what the replicas of a followed job use, for the columns of its table (%usage).

Where each replica has a lasting command that reads its memory, its readings are shown. Elsewhere
one question is asked for all replicas. Nothing waits for an answer: a turn that takes long delays
only the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable

from ciao_kernel import log
from ciao_kernel.background import start_background
from ciao_kernel.errors import CiaoError, ClusterFault, NoSuchJob, UsageError
from ciao_kernel.model import Event, Job, Notice, Replica, State, Status
from ciao_kernel.model.usage import Usage, UsageReport
from ciao_kernel.plugins import Backend
from ciao_kernel.session.inspection import query

_log = logging.getLogger(__name__)

_FIRST = 1.0
"""Seconds of a replica before the first question: a short job costs nothing."""
_PAUSE = 5.0
"""Seconds between two reports."""
_PAUSE_CLUSTER = 15.0
"""The same if a cluster is asked: its metrics are means of about so many seconds."""
PATIENCE = 3
"""Turns without a number after which another way is taken, or it is told that there is none."""
PATIENCE_NEW = 12
"""The same where the cluster does not measure new pods yet: three minutes."""
_AT_END = 0.2
"""Seconds that the end of a cell waits for a question that is being ended."""


class UsageWatch:
    """Asks what the replicas of a followed job use.

    Args:
        job: The job.
        backend: The backend that runs it.
        show: Receives the reports, and a notice if there are none.
        first: Seconds of a replica before the first question.
        pause: Seconds between two reports.
        pause_cluster: The same if a cluster is asked.
    """

    def __init__(
        self,
        job: Job,
        backend: Backend,
        show: Callable[[Event], None],
        *,
        first: float = _FIRST,
        pause: float = _PAUSE,
        pause_cluster: float = _PAUSE_CLUSTER,
    ) -> None:
        self._job, self._backend, self._show = job, backend, show
        self._first, self._pause = first, pause
        self._asked_pause = pause_cluster if job.on_cluster else pause
        self._running: list[Replica] = []
        self._begun = asyncio.Event()
        self._readings: dict[Replica, tuple[float, Usage]] = {}
        self.waits = 0
        """Turns that readings have to come by :meth:`take` before a question is asked."""
        self._empty = 0
        """Questions in a row that brought no number."""
        self._awaited = 0
        """Those that told that numbers will come."""
        self._measured = False
        """Whether there have been numbers: then there may be some again."""
        self._fault = ""
        """Why there are no numbers."""

    def note(self, event: Event) -> None:
        """Note an event of the job."""
        if isinstance(event, Status):
            over = event.state.over or event.decided
            found = [] if over else event.replicas
            self._running = [one.replica for one in found if one.state is State.RUNNING]
            if self._running:
                self._begun.set()
            else:
                self._begun.clear()

    def take(self, usage: Usage) -> None:
        """Take a reading of a replica's lasting command."""
        self._readings[usage.replica] = time.monotonic(), usage

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Ask during the body."""
        task = start_background(self._watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task}, timeout=_AT_END)

    async def _watch(self) -> None:
        with log.ignored(_log, "asking what replicas use"):
            await self._begun.wait()
            await asyncio.sleep(self._first)
            while not self._fault:
                await self._begun.wait()
                await asyncio.sleep(await self._turn())
            if self._running:
                self._show_none()
                self._show(Notice(f"The columns of %usage are empty: {self._fault}"))

    async def _turn(self) -> float:
        """Show a report, if there is one; return the seconds before the next turn."""
        oldest = time.monotonic() - PATIENCE * self._pause
        fresh = {one: usage for one, (at, usage) in self._readings.items() if at >= oldest}
        if fresh:
            self._measured = True
            others = [Usage(one) for one in self._running if one not in fresh]  # no old numbers
            self._show(UsageReport((*fresh.values(), *others)))
            return self._pause
        if self.waits:
            self.waits -= 1
            return self._pause
        try:
            report = await query.usage(self._backend, self._job, self._running)
        except (ClusterFault, NoSuchJob):  # whoever follows the job tells it
            return self._missed("") if self._measured else self._asked_pause
        except UsageError as error:
            self._fault = f"{error.message} {error.hint}".rstrip()
            return 0.0
        except CiaoError as error:  # it may pass: a server of metrics that is restarted
            return self._missed(f"{error.message} {error.hint}".rstrip())
        faults = [f"{one.replica}: {one.fault}." for one in report.replicas if one.fault]
        if any(one.cpu is not None or one.memory is not None for one in report.replicas):
            self._empty = self._awaited = 0
            self._measured = True
            self._show(report)
        elif any(one.awaited for one in report.replicas):
            self._empty = 0
            self._awaited += 1
            self._show_none()
            if self._awaited >= PATIENCE_NEW and not self._measured:
                self._fault = faults[0]
                return 0.0
        else:
            return self._missed(faults[0] if faults else "")
        return self._asked_pause

    def _missed(self, fault: str) -> float:
        """Count a question without a number; return the seconds before the next turn."""
        self._empty += 1
        if self._empty == PATIENCE:
            self._show_none()
        if self._empty < PATIENCE or self._measured or not fault:
            return self._asked_pause
        self._fault = fault
        return 0.0

    def _show_none(self) -> None:
        """Take old numbers off the table."""
        if self._measured:
            self._show(UsageReport(tuple(Usage(one) for one in self._running)))
