"""Shows the new job of a cell in TensorBoard; the job goes on without it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from ciao_kernel.background import start_background
from ciao_kernel.errors import CiaoError, describe
from ciao_kernel.model import Job, Notice
from ciao_kernel.plugins import Backend, Display
from ciao_kernel.session.tensorboard.board import Board


@contextlib.asynccontextmanager
async def shown(board: Board, backend: Backend, job: Job, display: Display) -> AsyncIterator[None]:
    """Show a job while the body follows it to its end, and complete its event files.

    Args:
        board: Shows it.
        backend: The backend that runs it.
        job: The job.
        display: Receives where it is shown.
    """
    showing = start_background(show(board, backend, job, display))
    try:
        yield
    except asyncio.CancelledError:
        showing.cancel()
        raise
    finally:
        await asyncio.wait({showing})  # front ends take no output after a cell
        await board.complete(job)


async def show(board: Board, backend: Backend, job: Job, display: Display) -> None:
    """Show a job, or name the command that shows a detached one.

    Args:
        board: Shows it.
        backend: The backend that runs it.
        job: The job.
        display: Receives where it is shown.
    """
    if job.detached and not board.stays:
        display.show(Notice(f"`ciao tensorboard {job.reference}` shows its event files."))
        return
    try:
        await board.show([(backend, job)], display.show, followed=not job.detached)
    except CiaoError as error:
        display.show(Notice("\n".join(describe(error))))
