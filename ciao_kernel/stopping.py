"""What an interrupt does to the job that a cell follows.

Every shutdown of a kernel begins with an interrupt (jupyter_client sends one before it asks).
A job that may outlive the kernel must not be stopped by that one, so its stop waits a moment;
a job that ends with the kernel anyway is stopped at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from ciao_kernel.model import Job, Notice
from ciao_kernel.plugins import Backend, Display

_T = TypeVar("_T")

_PATIENCE_WITH_CLUSTERS = 5.0
"""The same where pods have to go, and the user wants to know that they have."""

_PATIENCE = 1.5
"""Seconds that a stopped cell waits for its replicas to end, before it says "stopping"."""


class Lifetime(Protocol):
    """Tells an interrupt that means "stop" from one that begins a shutdown."""

    async def ends(self, within: float) -> bool:
        """Whether this process is asked to end within so many seconds from now."""


class Endless:
    """The lifetime of a terminal: an interrupt there always means "stop"."""

    async def ends(self, within: float) -> bool:
        """Never."""
        return False


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
    ) -> None:
        """Stop a job and say so; a session calls it when its cell is cancelled.

        Args:
            job: What to stop.
            backend: Who runs it.
            display: Where to say so.
            reason: For others who follow the job.
            wait: Seconds in which a shutdown may still save the job; None: nothing saves it.
            delete: Remove its folder too.
        """
        stopping = self.later(self._stop(job, backend, reason, wait, delete))
        if wait is not None and not isinstance(self._lifetime, Endless):
            text = f"stopping {job.name}, unless the kernel is being shut down: then it runs on."
            display.show(Notice(text))
        patience = _PATIENCE if wait is None else wait + _PATIENCE_WITH_CLUSTERS
        done, _ = await asyncio.wait({stopping}, timeout=patience)
        if not done:
            text = f"{job.name} is stopping: a replica takes its time to end."
            display.show(Notice(text))
            if not isinstance(self._lifetime, Endless):
                return
            # In a terminal the loop ends with this task, and whoever waits can press Ctrl-C.
            await asyncio.wait({stopping})
        if error := stopping.exception():
            display.show(Notice(f"{job.name} could not be stopped: {error}"))
        else:
            display.show(Notice(stopping.result()))

    def later(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Run something that an interrupt must not cut short."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _stop(
        self, job: Job, backend: Backend, reason: str, wait: float | None, delete: bool
    ) -> str:
        """Stop a job, unless this process is ending and the job is not; return what to say."""
        if wait is not None and await self._lifetime.ends(wait):
            return f"{job.name} runs on."
        await backend.stop(job, reason)
        if not delete:
            return f"{job.name} is stopped; {backend.remains(job)}"
        await backend.delete(job)
        return f"{job.name} is stopped, and its files are removed (%cleanPolicy=all)."
