"""Runs a job again from what it was made of (``ciao rerun``)."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ciao_kernel.delivery import inspection
from ciao_kernel.magics import render
from ciao_kernel.model import Job, JobResult
from ciao_kernel.plugins import Backend
from ciao_kernel.session import job_record, planning, selection, submission
from ciao_kernel.session.front_end import FrontEnd
from ciao_kernel.session.inspection.watchers import why_passed_over

if TYPE_CHECKING:
    from ciao_kernel.session.session import Session


async def rerun(
    session: Session, job: Job, backend: Backend, folder: Path, front: FrontEnd
) -> JobResult:
    """Run a job again; the errors of :meth:`Session.rerun`.

    Args:
        session: What runs it.
        job: The job, which may still run.
        backend: Where it runs.
        folder: The user's working folder, for errors of the program.
        front: Who shows and answers.
    """
    record = await asyncio.to_thread(job_record.read, job)
    with tempfile.TemporaryDirectory(prefix="ciao-") as programs:
        plan = planning.plan_again(
            job,
            record.header,
            record.shown,
            job_record.source(record, Path(programs)),
            folder,
            session.registry,
            session.settings,
            session.owner,
        )
        header = render.render(plan.spec, session.registry.table)  # with the name, for another one
        record = replace(record, header=header, shown=plan.header)
        builder = selection.builder(plan.spec, backend, session.registry, session.settings)
        session.check_kept(plan.spec)  # the setting may be another one than at its first run
        await backend.check(plan)
        if inspection.has_files(plan.source):
            passed_over = await why_passed_over(plan.spec, backend, session.settings, front.console)
            wait, kept_for = session.settings.debug_wait, plan.spec.on_error
            plan = replace(
                plan,
                source=inspection.with_files(plan.source, passed_over, wait, kept_for),
            )
        end = submission.submit(session, plan, record, backend, builder, front)
        del plan, record
        return await end
