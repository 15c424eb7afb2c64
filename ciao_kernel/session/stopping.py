"""Stops the job of an interrupted cell, unless the kernel is being shut down.

Every shutdown of a kernel begins with an interrupt (jupyter_client sends it before its request).
This interrupt must not stop a job that may outlive the kernel, so the stop of that job is
delayed for a moment; a job that ends with the kernel anyway is stopped at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from ciao_kernel.background import start_background
from ciao_kernel.errors import CiaoError
from ciao_kernel.model import Job, Notice

if TYPE_CHECKING:
    from ciao_kernel.session.following import Following

_log = logging.getLogger(__name__)

_PROMPT = 0.8
"""Seconds from an interrupt to the end of its cell, if the job's end is certain by then."""

_PATIENCE = 4.5
"""Same, if the job's end is not certain: an API server may be slow to answer."""


class Lifetime(Protocol):
    """Distinguishes an interrupt that means "stop" from one that begins a shutdown."""

    async def shutdown_begins(
        self, within: float, is_ending: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Return whether this process is asked to end within this many seconds.

        Args:
            within: Seconds to wait.
            is_ending: Called last, if no such request came: returns whether others know that this
                process is ending.
        """

    def delay_shutdown(self) -> AbstractContextManager[None]:
        """Delay an orderly end of this process during the body, for a few seconds at most."""


class NoShutdown:
    """Lifetime of a terminal, where an interrupt always means "stop"."""

    async def shutdown_begins(
        self, within: float, is_ending: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Return False: no shutdown begins with an interrupt here."""
        return False

    def delay_shutdown(self) -> AbstractContextManager[None]:
        """Do nothing: the command waits for the stop."""
        return contextlib.nullcontext()


class Stopper:
    """Stops jobs whose cells were interrupted, even after those cells have ended.

    Args:
        lifetime: Distinguishes a stop from a shutdown.
    """

    def __init__(self, lifetime: Lifetime) -> None:
        self._lifetime = lifetime

    @property
    def outlasts_cells(self) -> bool:
        """True if lines can be shown in a cell after its end; in a terminal nothing is after it."""
        return not isinstance(self._lifetime, NoShutdown)

    async def stop(
        self,
        following: Following,
        reason: str,
        *,
        wait: float | None,
        delete: bool,
        record_task: asyncio.Task[None],
    ) -> None:
        """Stop a job and report it; a session calls this when its cell is cancelled.

        Returns within a second of the interrupt if the job's end is certain by then, even if the
        job has not ended yet: the last output of its replicas still appears in the cell.

        Args:
            following: Shows the job; ends with the job, or is ended here.
            reason: Reason shown to others who follow the job.
            wait: Seconds in which a shutdown may still save the job; None: nothing saves it.
            delete: Also remove the job's folder.
            record_task: Still writes the record of the job into that folder.
        """
        job, backend, display = following.job, following.backend, following.display
        _log.info("%s is to be stopped: %s", job.name, reason)
        stop_certain, no_shutdown = asyncio.Event(), asyncio.Event()
        promised = start_background(stop_certain.wait())
        stopping = start_background(
            self._stop(following, reason, wait, delete, record_task, no_shutdown, stop_certain)
        )

        def tell() -> None:
            """Tell what is waited for; a kernel that is shut down may be killed before its end."""
            if not stopping.done() and not stop_certain.is_set():
                text = f"stopping {job.name} (it keeps running if the kernel is being shut down)."
                display.show(Notice(f"stopping {job.name}." if no_shutdown.is_set() else text))

        # Not at once: mostly it is known by then, and the next sentence is that of the end.
        telling = asyncio.get_running_loop().call_later(_PROMPT, tell)
        if not self.outlasts_cells:
            telling.cancel()
        try:
            # Another interrupt ends the wait, never the stop.
            prompt = max(_PROMPT, (wait or 0) + _PROMPT / 4)
            await asyncio.wait({stopping}, timeout=prompt)
            if not stopping.done():
                await asyncio.wait(
                    {stopping, promised},
                    timeout=_PATIENCE - _PROMPT,
                    return_when=asyncio.FIRST_COMPLETED,
                )
        finally:
            telling.cancel()
            promised.cancel()
            if stopping.done():
                display.show(Notice(_outcome(job, stopping, stop_certain)))
            else:
                if stop_certain.is_set():
                    following.show_stopped()
                display.show(Notice(f"{job.name} is stopping: {backend.describe_leftovers(job)}."))
                stopping.add_done_callback(
                    lambda task: display.show(Notice(_outcome(job, task, stop_certain)))
                )
        if isinstance(self._lifetime, NoShutdown):
            # In a terminal the loop ends with this task, and the user can press Ctrl-C again.
            await asyncio.wait({stopping})

    async def finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work that neither an interrupt of the cell nor a shutdown may cut short."""

        async def delay_shutdown() -> None:
            with self._lifetime.delay_shutdown():
                await work

        await asyncio.shield(start_background(delay_shutdown()))

    def finish_behind(self, work: Coroutine[Any, Any, None]) -> None:
        """Start work that goes on behind its cell's end, and that a shutdown waits for."""
        hold = contextlib.ExitStack()
        hold.enter_context(self._lifetime.delay_shutdown())
        start_background(work).add_done_callback(lambda _: hold.close())

    async def _stop(
        self,
        following: Following,
        reason: str,
        wait: float | None,
        delete: bool,
        record_task: asyncio.Task[None],
        no_shutdown: asyncio.Event,
        stop_certain: asyncio.Event,
    ) -> str:
        """Stop a job, unless this process is ending and the job is not; return the message."""
        job, backend = following.job, following.backend
        try:
            if wait is not None and await self._lifetime.shutdown_begins(
                wait, lambda: backend.is_host_terminating(job)
            ):
                return f"{job.name} keeps running."
            no_shutdown.set()
            with contextlib.ExitStack() as hold:
                # A local job's supervisor takes care of its end without this process.
                if backend.outlives_kernel or delete:
                    hold.enter_context(self._lifetime.delay_shutdown())

                def promise() -> None:
                    stop_certain.set()
                    if not delete:
                        hold.close()

                await backend.stop(job, reason, stop_certain=promise)
                await following.end()
                following.show_stopped()
                if not delete:
                    return f"{job.name} is stopped; {backend.describe_leftovers(job)}"
                await asyncio.wait({record_task})  # it would make the folder again
                await backend.delete(job)
            return f"{job.name} is stopped, and its files are removed (%cleanPolicy=all)."
        finally:
            await following.end(0)  # if the job keeps running, or could not be stopped


def _outcome(job: Job, stopping: asyncio.Task[str], stop_certain: asyncio.Event) -> str:
    """Return the result of a stop as a sentence for the user, and log it."""
    text = _sentence(job, stopping, stop_certain)
    _log.info("%s", text)
    return text


def _sentence(job: Job, stopping: asyncio.Task[str], stop_certain: asyncio.Event) -> str:
    if stopping.cancelled() and stop_certain.is_set():  # the loop is ending
        return f"{job.name} is being stopped in the background."
    if stopping.cancelled():
        return f"{job.name} may still run; `%ciao delete {job.reference}` stops it."
    error = stopping.exception()
    if isinstance(error, CiaoError):
        return f"{job.name} could not be stopped: {error.message} {error.hint}".rstrip()
    return f"{job.name} could not be stopped: {error}" if error else stopping.result()
