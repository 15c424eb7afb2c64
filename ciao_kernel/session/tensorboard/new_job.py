"""Shows the new job of a cell in TensorBoard; the job goes on without it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from ciao_kernel.background import start_background
from ciao_kernel.errors import CiaoError, describe
from ciao_kernel.model import Job, Notice
from ciao_kernel.plugins import Backend, Display
from ciao_kernel.session.tensorboard.board import Board, Shown


@contextlib.asynccontextmanager
async def shown(board: Board, backend: Backend, job: Job, display: Display) -> AsyncIterator[None]:
    """Show a job while the body follows it to its end, and complete its event files.

    Args:
        board: Shows it.
        backend: The backend that runs it.
        job: The job.
        display: Receives where it is shown.
    """
    over = asyncio.Event()
    showing = start_background(show(board, backend, job, display))
    filling = start_background(_fill(board, showing, display, over))
    interrupted = False
    try:
        yield
    except asyncio.CancelledError:
        interrupted = True
        showing.cancel()
        filling.cancel()
        raise
    finally:
        try:
            await asyncio.wait({showing})  # front ends take no output after a cell
            await board.complete(job)
            over.set()
            await asyncio.wait({filling})
        except asyncio.CancelledError:
            # The job is over: an interrupt ends only this wait, and hides no error of the job.
            task = asyncio.current_task()
            if interrupted or task is None:
                raise
            task.uncancel()
        finally:  # an interrupt, or an error, must not leave them behind
            showing.cancel()
            filling.cancel()


async def _fill(
    board: Board, showing: asyncio.Task[Shown | None], display: Display, over: asyncio.Event
) -> None:
    await asyncio.wait({showing})
    if not showing.cancelled() and (shown := showing.result()) is not None:
        await board.fill(shown, display.show, over)


async def show(board: Board, backend: Backend, job: Job, display: Display) -> Shown | None:
    """Show a job, or name the command that shows a detached one; return what is shown.

    Args:
        board: Shows it.
        backend: The backend that runs it.
        job: The job.
        display: Receives where it is shown.
    """
    if job.detached and not board.stays:
        display.show(Notice(f"`ciao tensorboard {job.reference}` shows its event files."))
        return None
    try:
        found = await board.show([(backend, job)], display.show, followed=not job.detached)
        if found is not None and job.detached:
            await board.fill(found, display.show)
        return found
    except CiaoError as error:
        display.show(Notice("\n".join(describe(error))))
        return None
