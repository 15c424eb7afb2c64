"""Submits the job of a planned cell, and follows it to its end unless it is detached.

Once the job exists, its end is always taken care of.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ciao_kernel.background import start_background
from ciao_kernel.model import ALL_LINES, Job, JobResult, JobSpec, State, Status
from ciao_kernel.plugins import Backend, Builder, Plan
from ciao_kernel.session import job_record
from ciao_kernel.session.front_end import FrontEnd
from ciao_kernel.session.tensorboard import new_job

if TYPE_CHECKING:
    from ciao_kernel.session.session import Session

_log = logging.getLogger(__name__)


async def submit(
    session: Session,
    plan: Plan,
    record: job_record.Record,
    backend: Backend,
    builder: Builder,
    front: FrontEnd,
) -> JobResult:
    """Submit a job, and follow it unless it is detached.

    Args:
        session: What runs the cell.
        plan: The plan of the job, with what its program is made of.
        record: What ``ciao rerun`` needs of it.
        backend: Where it runs.
        builder: Delivers its files.
        front: Who shows and answers.
    """
    session.preview = None
    spec, folder, display = plan.spec, plan.folder, front.display
    plan = replace(plan, made_of=record.facts)
    outlive = spec.detach or session.outlives(backend)
    if spec.tensorboard is not None and (session.board.stays or not spec.detach):
        session.board.check()
        start_background(session.board.start())
    job = await backend.submit(plan, builder, display.show, outlive=outlive)
    # The job exists: from here on an interrupt must reach it, so nothing is waited for that does
    # not stop it.
    record_task = start_background(asyncio.to_thread(job_record.keep, record, job))
    del plan, record  # as those who call this do
    _log.info(
        "%s is submitted to %s: %s, %d replicas, in %s",
        job.name,
        job.backend,
        job.framework,
        len(job.replicas),
        job.place,
    )
    session.started.add(job.name)
    session.last = JobResult(job, Status(State.RUNNING, ()))
    if spec.detach:
        # Before anything is waited for: an interrupt leaves the job running.
        front.show(_detached(job, deletes=session.deletes(spec)))
        await asyncio.shield(record_task)  # the process of `ciao run --detach` ends
        if spec.tensorboard is not None:
            await new_job.show(session.board, backend, job, display)
        return session.last
    end = _run_to_end(session, job, spec, backend, folder, front, record_task)
    if spec.tensorboard is None:
        return await end
    async with new_job.shown(session.board, backend, job, display):
        return await end


async def _run_to_end(
    session: Session,
    job: Job,
    spec: JobSpec,
    backend: Backend,
    folder: Path,
    front: FrontEnd,
    record_task: asyncio.Task[None],
) -> JobResult:
    """Follow a cell's own job to its end; its record is being written."""
    # Imported while the job starts.
    from ciao_kernel.session.failure.verdict import judge
    from ciao_kernel.session.following import Following
    from ciao_kernel.session.inspection.watchers import watchers

    delete = session.deletes(spec)
    display, variables, console = front.display, front.variables, front.console
    # Lines left out of the cell are in the log files, which are about to be removed here: only
    # an explicit %lines leaves lines out then.
    shown = replace(job, lines=job.lines or ALL_LINES, logs_kept=False) if delete else job
    describe_leftovers = None if delete else backend.describe_leftovers
    watched = watchers(shown, backend, display.show, session.settings, console, spec=spec)
    following = Following(
        shown,
        backend,
        display,
        spec.follow,
        judge=lambda status, tails: judge(
            shown,
            status,
            tails,
            folder,
            describe_leftovers,
            variables,
            watched.after_kill,
            session.settings.registry,
        ),
        watched=watched,
    )
    return await session.followed(job, following).run_to_end(
        record_task=record_task,
        delete=delete,
        reason=f"interrupted by {session.owner.label}",
        shutdown_wait=lambda: session.settings.shutdown_wait if session.outlives(backend) else None,
    )


def _detached(job: Job, *, deletes: bool) -> str:
    text = (
        f"{job.name} runs in the background. `%ciao attach {job.reference}` follows it, "
        f"`%ciao delete {job.reference}` stops it."
    )
    left = " It is kept after its end: cleanPolicy=all only removes jobs that are followed."
    return text + left if deletes else text
