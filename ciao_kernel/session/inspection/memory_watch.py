"""Reads the memory of replicas while a cell follows them: for advice at their end, and for %usage.

A replica that is killed for its memory leaves nothing that tells how it came to that. One lasting
command in each of a few replicas does, and ends with it. What goes wrong there is no matter of the
job: then there is no advice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from ciao_kernel.background import start_background
from ciao_kernel.errors import BackendError, Refused
from ciao_kernel.magics.directives import usage_columns
from ciao_kernel.model import Event, Job, Output, Replica, State, Status
from ciao_kernel.model.usage import Usage
from ciao_kernel.plugins import Backend, LimitingMemory
from ciao_kernel.session.inspection import memory_advice
from ciao_kernel.session.inspection.memory_advice import Point
from ciao_kernel.session.inspection.silence import is_inspected

_log = logging.getLogger(__name__)

_MOST = 16
"""Replicas of a job that are read at most."""
_FIRST = 2.0
"""Seconds of a replica before it is read: a short job costs nothing."""
_AGAIN = 5.0
"""Seconds before another command is started in a replica; twice as many after each short one."""
_LONGEST_PAUSE = 300.0
"""The same at most: where no command can run, that is one question in five minutes."""
_LASTED = 30.0
"""Seconds after which a command that ends was a good one: the next one is started soon."""
_KEPT = 900
"""Newest readings of a replica that are kept."""
_AT_END = 0.2
"""Seconds that the end of a cell waits for connections that are being closed."""
_END = 400
"""Bytes at the end of an event in which the newest step is looked for."""
_NAMES = (b"global_step", b"step", b"iteration", b"iter", b"batch")
"""Names of steps, the best first."""
_STEP = re.compile(
    rb"(?<![\w.])(?:(global_step|step|iteration)[ \t]{0,2}[:=#]?|(iter|batch)[ \t]{0,2}[:=#])"
    rb"[ \t]{0,2}(\d{1,12})(?![\w.])",
    re.I,
)
"""A step; ``batch 32`` without a mark is a size or a label."""
_BAR = re.compile(
    rb"(?P<other>(?<!\w)\w{0,40}(?:epoch|acc|mem)\w{0,40}"
    rb"(?:[ \t][a-z]{1,20}){0,3}[ \t:=#(\[]{0,4})?"
    rb"(?<![\w./])(\d{1,12})/\d{1,12}(?![\w./])",
    re.I,
)
"""A bar, as in ``60/1000 [``; with ``other``, a fraction of something that is no step."""


def memory_watch(
    job: Job,
    backend: Backend,
    setting: str,
    *,
    advises: bool = True,
    usage: Callable[[Usage], None] | None = None,
) -> MemoryWatch | None:
    """Return what reads the memory of a job; None if nobody needs it, or its replicas are too many.

    Args:
        job: The job.
        backend: The backend that runs it.
        setting: The setting ``inspect``.
        advises: Whether advice is wanted for replicas with a limit.
        usage: Receives the readings of all replicas; None if nobody shows them.
    """
    if not isinstance(backend, LimitingMemory) or len(job.replicas) > _MOST:
        return None
    advises = advises and is_inspected(job, setting)
    limits = {
        one: memory_advice.memory_of(job, one.role) if advises else "" for one in job.replicas
    }
    if usage is None:
        limits = {one: text for one, text in limits.items() if text}
    gpus = usage is not None and usage_columns.has_gpus(job.header)
    return MemoryWatch(job, backend, limits, usage=usage, gpus=gpus) if limits else None


class MemoryWatch:
    """Reads the memory of some replicas of a followed job.

    Args:
        job: The job.
        backend: The backend that runs it.
        limits: The %memory of each replica that is read; "" if it has none.
        first: Seconds of a replica before it is read.
        again: Seconds before a command that has ended is started again; more if it was short.
        usage: Receives each reading.
        gpus: Whether GPUs are read too.
        sleep: Waits some seconds.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        job: Job,
        backend: LimitingMemory,
        limits: Mapping[Replica, str],
        first: float = _FIRST,
        again: float = _AGAIN,
        usage: Callable[[Usage], None] | None = None,
        gpus: bool = False,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job, self._backend, self._limits = job, backend, limits
        self._sleep, self._clock = sleep, clock
        self._first, self._again = first, again
        self._usage, self._gpus = usage, gpus
        self._series: dict[Replica, list[Point]] = {}
        self._highest: dict[Replica, int] = {}
        """Bytes, of all readings by all commands: not every kernel of Linux keeps a peak."""
        self._steps: dict[Replica, int] = {}
        self._running: set[Replica] = set()
        self._pauses = dict.fromkeys(limits, again)
        """Seconds before the next command of each replica."""
        self._ends = {one: asyncio.Event() for one in limits}
        """Set while a replica does not run: its next start is not held up by a pause."""
        self._refused: set[Replica] = set()
        self._tasks: dict[Replica, asyncio.Task[None]] = {}
        self._open = False

    def note(self, event: Event) -> None:
        """Note an event of the job."""
        if isinstance(event, Output):
            if event.replica in self._limits and (step := _step(event)) is not None:
                self._steps[event.replica] = step
        elif isinstance(event, Status):
            self._running = {one.replica for one in event.replicas if one.state is State.RUNNING}
            for replica in self._limits:
                if replica in self._running:
                    self._begin(replica)
                else:
                    self._ends[replica].set()

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Read during the body."""
        self._open = True
        try:
            yield
        finally:
            self._open = False
            for task in self._tasks.values():
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks.values(), timeout=_AT_END)

    def after_kill(self, replica: Replica) -> str:
        """Return what a replica that was killed for its memory needs; "" if that is not known."""
        memory = self._limits.get(replica, "")
        found = self._series.get(replica, [])
        return memory_advice.after_kill(replica, memory, found) if memory else ""

    def after_success(self) -> str:
        """Name peaks that are far below %memory; "" if there are none."""
        return memory_advice.after_success(self._job, self._series, self._highest)

    def _begin(self, replica: Replica) -> None:
        task = self._tasks.get(replica)
        if self._open and replica not in self._refused and (task is None or task.done()):
            self._tasks[replica] = start_background(self._watch(replica))

    async def _watch(self, replica: Replica) -> None:
        """Read a replica until it ends, by one command after another."""
        await self._sleep(self._first)
        while replica in self._running:
            self._ends[replica].clear()
            began = self._clock()
            try:
                take = self._collector(replica)
                await self._backend.watch_usage(self._job, replica, take, gpus=self._gpus)
            except BackendError as error:
                _log.debug("%s of %s is not read: %s", replica, self._job.name, error.message)
                if isinstance(error, Refused) and error.code == 403:
                    self._refused.add(replica)
                    return
            if self._clock() - began >= _LASTED:
                self._pauses[replica] = self._again
            pause = self._pauses[replica]
            self._pauses[replica] = min(2 * pause, _LONGEST_PAUSE)
            await self._wait(replica, pause)

    async def _wait(self, replica: Replica, seconds: float) -> None:
        """Wait for some seconds; the end of the replica ends the wait."""
        waiting = {
            asyncio.ensure_future(self._sleep(seconds)),
            asyncio.ensure_future(self._ends[replica].wait()),
        }
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()

    def _collector(self, replica: Replica) -> Callable[[Usage], None]:
        """Return what takes the readings of one command: of a container, which may be a new one."""
        points: list[Point] = []

        def take(usage: Usage) -> None:
            if self._usage is not None:
                self._usage(usage)
            if usage.memory is None or not self._limits[replica]:
                return
            if not points:
                self._series[replica] = points
            highest = self._highest.get(replica, 0)
            self._highest[replica] = max(highest, usage.memory, usage.peak or 0)
            points.append(
                Point(
                    time.monotonic(),
                    usage.memory,
                    usage.peak or 0,
                    usage.limit or 0,
                    self._steps.get(replica),
                )
            )
            if len(points) > _KEPT:
                del points[0]

        return take


def _step(event: Output) -> int | None:
    """Return the newest step that an event names; None if it names none."""
    lines = re.split(rb"[\r\n]+", event.data[-_END:] + event.tail[-_END:])
    return next((step for line in reversed(lines) if (step := _of_line(line)) is not None), None)


def _of_line(line: bytes) -> int | None:
    """Return the step that a line names; the place of a bar counts only if it names none."""
    if named := _STEP.findall(line):
        found = min(named, key=lambda one: _NAMES.index((one[0] or one[1]).lower()))
        return int(found[2])
    bars = [int(one[2]) for one in _BAR.finditer(line) if not one["other"]]
    return bars[-1] if bars else None
