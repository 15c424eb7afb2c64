"""Shows where the replicas stand when they write nothing: after a while, at a stop, at a deadline.

Neither processor time nor anything else that a process shows from outside tells a hang from work: a
wait for other ranks may keep a processor busy. So the notice names facts, comes once for a silence,
and only if two pictures are equal. It never stops anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from ciao_kernel.background import cancel_all, start_background
from ciao_kernel.errors import CiaoError
from ciao_kernel.magics import stored_header
from ciao_kernel.model import Event, Job, Notice, Output, Replica, State, Status
from ciao_kernel.model.stacks import ReplicaStacks
from ciao_kernel.model.status import QUEUED, SUSPENDED
from ciao_kernel.model.times import span
from ciao_kernel.plugins import Backend
from ciao_kernel.session.inspection import picture, positions, query

_log = logging.getLogger(__name__)

_USUAL = 10
"""A silence is unusual if it is so many times longer than the longest one before."""
_APART = 30.0
"""Seconds between two pictures of a silence; less if the silence itself is short."""
_SILENT = 10.0
"""Seconds without a line after which a stop shows a picture."""
_BEFORE_STOP = 0.5
"""Seconds that a stop waits for a picture at most."""
_BEFORE_DEADLINE = 1.5
"""Seconds before the deadline of a job at which its picture is taken."""
_KEPT = 8


def is_inspected(job: Job, setting: str) -> bool:
    """Return whether a job's replicas have the handler, as far as its header tells.

    Args:
        job: The job.
        setting: The setting ``inspect``.
    """
    return stored_header.is_on(job.header, "inspect", setting)


async def _do_nothing() -> None:
    """Serve as a function that has nothing to do."""


class SilenceWatch:
    """Watches the lines of a followed job.

    Args:
        job: The job.
        backend: The backend that runs it.
        show: Receives the notice.
        limit: Seconds without a line after which it is shown; 0: never.
        deadline: Seconds from the job's creation to its deadline; None: it has none. On a cluster
            they count anew from each admission by a queue, each resumption and each try.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        job: Job,
        backend: Backend,
        show: Callable[[Event], None],
        limit: float,
        deadline: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job, self._backend, self._show = job, backend, show
        self._limit, self._deadline, self._clock = limit, deadline, clock
        self._began = clock()
        self._heard: float | None = None
        """When a silence began: at the last line, or when a replica began to run after it."""
        self._longest = 0.0
        self._counts = True
        """Whether the program has run, and nobody has waited at a prompt, since the last line."""
        self._lines = asyncio.Event()
        """Set when a silence begins."""
        self._running = True
        self._spoken = False
        """Whether any line has come."""
        self._started: set[Replica] = set()
        """Replicas that have run."""
        self._tries = 1
        self._held = False
        """Whether the job waits in a queue, or is suspended."""
        self._begun = job.created
        """When the deadline began to count; seconds since the epoch."""
        self._begins = asyncio.Event()
        """Set when it begins to count anew."""
        self._at_deadline = ""
        self._paused = False
        """Whether a silence was expected when it was long enough last."""
        self._expected = float("-inf")
        """When that was."""
        self.pauses: Callable[[], bool] = lambda: False
        """Returns whether a silence is expected, as at an open prompt."""
        self.forget_killed: Callable[[], Awaitable[None]] = _do_nothing
        """Lets :attr:`pauses` forget processes that can no longer say that they wait no longer."""

    def note(self, event: Event) -> None:
        """Note an event of the job."""
        if isinstance(event, Status):
            self._note_status(event)
        elif isinstance(event, Output) and (event.data or event.tail):
            now, self._spoken = self._clock(), True
            self.note_pause()
            if self._heard is not None and self._counts:
                self._longest = max(self._longest, now - self._heard)
            self._heard, self._counts = now, True
            self.note_pause()
            self._lines.set()

    def note_pause(self) -> None:
        """Note whether a silence is expected now: it tells nothing of how the program writes."""
        if not self._running or self.pauses():
            self._counts = False

    def _note_status(self, status: Status) -> None:
        ran, self._running = self._running, status.state is State.RUNNING and not status.decided
        again, self._tries = status.tries > self._tries, max(self._tries, status.tries)
        held = status.state is State.PENDING and status.reason in (QUEUED, SUSPENDED)
        released, self._held = self._held and not held, held
        started = {one.replica for one in status.replicas if one.state is not State.PENDING}
        is_more, self._started = not started <= self._started, self._started | started
        # Before the first line, replicas that run may wait for one whose image is pulled.
        waits = not self._spoken and len(started) < len(status.replicas)
        begins = self._running and not waits and (not ran or is_more or self._heard is None)
        if again or begins:
            self._heard = self._clock()
            self._lines.set()  # the wait for the next line counts from here
        if again or begins or not self._running:
            self._counts = False
        if self._job.on_cluster and not status.state.over and (again or released):
            self._begun, self._at_deadline = time.time(), ""
            self._begins.set()

    @property
    def silent_for(self) -> float:
        """Seconds since the last line or start of a replica, or since the begin if none was."""
        return self._clock() - (self._began if self._heard is None else self._heard)

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch during the body."""
        tasks = [start_background(self._watch())] if self._limit else []
        tasks += [start_background(self._wait_for_deadline())] if self._deadline else []
        try:
            yield
        finally:
            await cancel_all(tasks)

    async def show_before_stop(self) -> None:
        """Show a picture of a silent job that is about to be stopped; it waits half a second."""
        seconds = self.silent_for
        if not self._running or seconds < min(_SILENT, self._limit or _SILENT):
            return
        asking = start_background(self._show_picture(seconds))
        with contextlib.suppress(asyncio.CancelledError):  # another press: the stop goes on
            await asyncio.wait({asking}, timeout=_BEFORE_STOP)

    def show_after_deadline(self, status: Status) -> None:
        """Show the picture from before the deadline of a job that it has ended."""
        if self._at_deadline and status.is_late:
            self._show(Notice(self._at_deadline))

    async def _show_picture(self, seconds: float) -> None:
        if text := self._text(await query.ask_quietly(self._backend, self._job), seconds):
            self._show(Notice(text))

    def _text(self, found: Sequence[ReplicaStacks], seconds: float) -> str:
        if not positions.answered(found):
            return ""
        return f"no line for {span(seconds)}; {picture.text(self._job, found)}"

    async def _wait_for_deadline(self) -> None:
        while True:
            self._begins.clear()
            at = self._begun + (self._deadline or 0) - _BEFORE_DEADLINE
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, at - time.time())):
                    await self._begins.wait()
                continue
            seconds = self.silent_for
            if self._running and seconds >= min(_SILENT, self._limit or _SILENT):
                found = await query.ask_quietly(self._backend, self._job)
                if not self._begins.is_set():
                    self._at_deadline = self._text(found, seconds)
            await self._begins.wait()

    async def _watch(self) -> None:
        await self._lines.wait()  # before the start an image is pulled, for example
        while True:
            self._lines.clear()
            if await self._is_silent(self._apart):
                await self._look()
            await self._lines.wait()

    @property
    def _apart(self) -> float:
        return min(_APART, self._limit / 2)

    async def _is_silent(self, before: float) -> bool:
        """Wait until the job is silent for its limit, less some seconds; False: a line has come."""
        while not self._lines.is_set():
            silent = min(self.silent_for, self._clock() - self._expected)
            left = max(self._limit, _USUAL * self._longest) - before - silent
            if left <= 0:
                if not self._running or not await self._is_expected():
                    return self._running
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._lines.wait()
        return False

    async def _is_expected(self) -> bool:
        """Return whether the silence is expected, or was until just now."""
        was, self._paused = self._paused, self.pauses()
        if self._paused:
            await self.forget_killed()
            self._paused = was = self.pauses()
        if was:
            self._expected, self._counts = self._clock(), False
        return was

    async def _look(self) -> None:
        """Take pictures until two are equal, and show the second; end at the next line."""
        known: list[list[ReplicaStacks]] = []
        pause = self._apart
        while not self._lines.is_set() and self._running:
            _log.debug("%s is silent: its replicas are asked where they stand", self._job.name)
            try:
                found = await query.ask(self._backend, self._job)
            except CiaoError as error:
                if known or not self._spoken or not await self._is_silent(0.0):
                    return
                text = f"{self._job.name} has not written a line for {span(self.silent_for)}."
                self._show(Notice(f"{text} Where its replicas stand is unknown: {error.message}"))
                return
            if self._lines.is_set():
                return
            if not positions.answered(found):
                if self._spoken:
                    return
                known = []  # a program that hangs in its first seconds may have no Python yet
            elif any(positions.same_place(one, found) for one in known):
                self._show(Notice(self._text(found, self.silent_for)))
                return
            else:
                known = [*known, found][-_KEPT:]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._lines.wait()
            if not known or len(known) > 2:
                pause = min(2 * pause, 20 * self._apart)
