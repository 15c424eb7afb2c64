"""What an interrupt does to the job that a cell follows.

Every shutdown of a kernel begins with an interrupt (jupyter_client sends one before it asks).
A job that may outlive the kernel must not be stopped by that one, so its stop waits a moment;
a job that ends with the kernel anyway is stopped at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ciao_kernel.background import lasting
from ciao_kernel.errors import CiaoError
from ciao_kernel.model import Job, Notice
from ciao_kernel.session.following import Following

_PROMPT = 0.8
"""Seconds from an interrupt to the end of its cell, if the job's end is certain by then."""

_PATIENCE = 4.5
"""The same where it is not: an API server may take its time to answer."""


class Lifetime(Protocol):
    """Tells an interrupt that means "stop" from one that begins a shutdown."""

    async def ends(self, within: float, known: Callable[[], Awaitable[bool]]) -> bool:
        """Whether this process is asked to end within so many seconds from now.

        Args:
            within: The seconds.
            known: Asked at last, where nobody has: whether others know that it ends.
        """

    def held(self) -> AbstractContextManager[None]:
        """Let this process not end in an orderly way within; it waits some seconds at most."""


class Endless:
    """The lifetime of a terminal: an interrupt there always means "stop"."""

    async def ends(self, within: float, known: Callable[[], Awaitable[bool]]) -> bool:
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

    async def stop(
        self, following: Following, reason: str, *, wait: float | None, delete: bool
    ) -> None:
        """Stop a job and say so; a session calls it when its cell is cancelled.

        It returns within a second of the interrupt where the end is certain by then, be it before
        the end: what the replicas still write appears in the cell all the same.

        Args:
            following: Shows the job; it ends with it, or is ended here.
            reason: For others who follow the job.
            wait: Seconds in which a shutdown may still save the job; None: nothing saves it.
            delete: Remove its folder too.
        """
        job, backend, display = following.job, following.backend, following.display
        certain = asyncio.Event()
        promised = lasting(certain.wait())
        stopping = lasting(self._stop(following, reason, wait, delete, certain))
        if wait is not None and not isinstance(self._lifetime, Endless):
            text = f"stopping {job.name}, unless the kernel is being shut down: then it runs on."
            display.show(Notice(text))
        try:
            # A further interrupt ends the waiting, never the stop.
            prompt = max(_PROMPT, (wait or 0) + _PROMPT / 4)
            await asyncio.wait({stopping}, timeout=prompt)
            if not stopping.done():
                await asyncio.wait(
                    {stopping, promised},
                    timeout=_PATIENCE - _PROMPT,
                    return_when=asyncio.FIRST_COMPLETED,
                )
        finally:
            promised.cancel()
            if stopping.done():
                display.show(Notice(_outcome(job, stopping, certain)))
            else:
                if certain.is_set():
                    following.show_stopped()
                display.show(Notice(f"{job.name} is stopping: {backend.remains(job)}."))
                stopping.add_done_callback(
                    lambda task: display.show(Notice(_outcome(job, task, certain)))
                )
        if isinstance(self._lifetime, Endless):
            # In a terminal the loop ends with this task, and whoever waits can press Ctrl-C.
            await asyncio.wait({stopping})

    async def finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what neither an interrupt of the cell nor a shutdown may cut short."""

        async def held() -> None:
            with self._lifetime.held():
                await work

        await asyncio.shield(lasting(held()))

    async def _stop(
        self,
        following: Following,
        reason: str,
        wait: float | None,
        delete: bool,
        certain: asyncio.Event,
    ) -> str:
        """Stop a job, unless this process is ending and the job is not; return what to say."""
        job, backend = following.job, following.backend
        try:
            if wait is not None and await self._lifetime.ends(wait, lambda: backend.host_ends(job)):
                return f"{job.name} runs on."
            with contextlib.ExitStack() as hold:
                # A local job has a supervisor, which sees to its end without this process.
                if backend.outlives_kernel or delete:
                    hold.enter_context(self._lifetime.held())

                def promise() -> None:
                    certain.set()
                    if not delete:
                        hold.close()

                await backend.stop(job, reason, certain=promise)
                await following.end()
                following.show_stopped()
                if not delete:
                    return f"{job.name} is stopped; {backend.remains(job)}"
                await backend.delete(job)
            return f"{job.name} is stopped, and its files are removed (%cleanPolicy=all)."
        finally:
            await following.end(0)  # of a job that runs on, or that could not be stopped


def _outcome(job: Job, stopping: asyncio.Task[str], certain: asyncio.Event) -> str:
    """How a stop went, for the user."""
    if stopping.cancelled() and certain.is_set():  # the loop is ending
        return f"{job.name} is stopping, and needs nobody for that."
    if stopping.cancelled():
        return f"{job.name} may still run; `%ciao delete {job.reference}` stops it."
    error = stopping.exception()
    if isinstance(error, CiaoError):
        return f"{job.name} could not be stopped: {error.message} {error.hint}".rstrip()
    return f"{job.name} could not be stopped: {error}" if error else stopping.result()
