"""What an interrupt does to the job that a cell follows.

Every shutdown of a kernel begins with an interrupt (jupyter_client sends one before it asks).
A job that may outlive the kernel must not be stopped by that one, so its stop waits a moment;
a job that ends with the kernel anyway is stopped at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from ciao_kernel.errors import CiaoError
from ciao_kernel.model import Job, Notice, State, Status
from ciao_kernel.plugins import Backend, Display

_T = TypeVar("_T")

_PATIENCE = 1.5
"""Seconds that a stopped cell waits for its replicas to end, before it says "stopping"."""

_PATIENCE_WITH_CLUSTERS = 4.5
"""The same from the interrupt on, where pods have to go: most are gone by then."""


class Lifetime(Protocol):
    """Tells an interrupt that means "stop" from one that begins a shutdown."""

    async def ends(self, within: float) -> bool:
        """Whether this process is asked to end within so many seconds from now."""

    def held(self) -> AbstractContextManager[None]:
        """Let this process not end in an orderly way within; it waits some seconds at most."""


class Endless:
    """The lifetime of a terminal: an interrupt there always means "stop"."""

    async def ends(self, within: float) -> bool:
        """Never."""
        return False

    def held(self) -> AbstractContextManager[None]:
        """Nothing to do: the command waits for the stop."""
        return contextlib.nullcontext()


class Stopper:
    """Stops jobs whose cells were interrupted, also after those cells have ended.

    Args:
        lifetime: Tells a stop from a shutdown.
    """

    def __init__(self, lifetime: Lifetime) -> None:
        self._lifetime = lifetime
        self._running: set[asyncio.Task[Any]] = set()

    async def stop(
        self,
        job: Job,
        backend: Backend,
        display: Display,
        reason: str,
        *,
        wait: float | None,
        delete: bool,
        last: Status | None = None,
    ) -> None:
        """Stop a job and say so; a session calls it when its cell is cancelled.

        Args:
            job: What to stop.
            backend: Who runs it.
            display: Where to say so.
            reason: For others who follow the job.
            wait: Seconds in which a shutdown may still save the job; None: nothing saves it.
            delete: Remove its folder too.
            last: How the job was when the cell was cancelled; the display gets it as stopped.
        """

        async def stop() -> str:
            said = await self._stop(job, backend, reason, wait, delete)
            if last is not None and said is not None:
                display.show(_stopped(last))
            return said or f"{job.name} runs on."

        stopping = self.later(stop())
        if wait is not None and not isinstance(self._lifetime, Endless):
            text = f"stopping {job.name}, unless the kernel is being shut down: then it runs on."
            display.show(Notice(text))
        patience = (wait or 0) + _PATIENCE
        if backend.outlives_kernel:
            patience = max(patience, _PATIENCE_WITH_CLUSTERS)
        try:
            # A further interrupt ends the waiting, never the stop.
            await asyncio.wait({stopping}, timeout=patience)
        finally:
            if stopping.done():
                display.show(Notice(_outcome(job, stopping)))
            else:
                display.show(Notice(f"{job.name} is stopping: {backend.remains(job)}."))
                stopping.add_done_callback(lambda task: display.show(Notice(_outcome(job, task))))
        if isinstance(self._lifetime, Endless):
            # In a terminal the loop ends with this task, and whoever waits can press Ctrl-C.
            await asyncio.wait({stopping})

    def later(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Run something that an interrupt must not cut short."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _stop(
        self, job: Job, backend: Backend, reason: str, wait: float | None, delete: bool
    ) -> str | None:
        """Stop a job, unless this process is ending and the job is not: then None.

        Returns what to say.
        """
        if wait is not None and await self._lifetime.ends(wait):
            return None
        # A local job has a supervisor, which sees to its end without this process.
        held = self._lifetime.held() if backend.outlives_kernel else contextlib.nullcontext()
        with held:
            await backend.stop(job, reason)
            if not delete:
                return f"{job.name} is stopped; {backend.remains(job)}"
            await backend.delete(job)
        return f"{job.name} is stopped, and its files are removed (%cleanPolicy=all)."


def _stopped(last: Status) -> Status:
    """A job's last status, with all that still ran in it stopped."""
    now = time.time()
    replicas = tuple(
        one if one.state.over else replace(one, state=State.STOPPED, since=now)
        for one in last.replicas
    )
    return replace(last, state=State.STOPPED, since=now, message="", replicas=replicas)


def _outcome(job: Job, stopping: asyncio.Task[str]) -> str:
    """How a stop went, for the user."""
    if stopping.cancelled():  # the loop is ending
        return f"{job.name} may still run; `%ciao delete {job.reference}` stops it."
    error = stopping.exception()
    if isinstance(error, CiaoError):
        return f"{job.name} could not be stopped: {error.message} {error.hint}".rstrip()
    return f"{job.name} could not be stopped: {error}" if error else stopping.result()
