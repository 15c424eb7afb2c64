"""``ciao attach [NAME]``: follow a job from its first line, like the cell that started it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ciao_kernel.commands import Caller
from ciao_kernel.commands.job_json import reported
from ciao_kernel.commands.shared_arguments import (
    add_lines,
    add_member,
    add_output,
    add_since,
    chosen,
    line_count,
    moment,
    take_replica,
    where,
)
from ciao_kernel.errors import BackendError, NoSuchJob
from ciao_kernel.model import Job, JobResult
from ciao_kernel.model.queries import HERE, Where

if TYPE_CHECKING:
    from ciao_kernel.session.session import Session


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the job, ``--replica``, ``--lines``, ``--since`` and ``--output``."""
    text = "the job; by default the last job that ran here, or else your newest job"
    add_member(verb, nargs="?", default="", help=text)
    add_lines(verb)
    add_since(verb)
    add_output(verb)


async def run(args: argparse.Namespace, caller: Caller) -> JobResult | None:
    """Follow the job, and fail if the job fails."""
    from ciao_kernel.session.warm import ended_run

    take_replica(args)
    since, place, lines = moment(args.since), where(args), line_count(args.lines)
    name = args.name
    if not name:
        last = await _last(caller.session, place)
        name, place = last.name, Where.of(last)
    backend, job, _ = await caller.session.find(name, place)
    chosen(args.replica, job)
    ended = None
    if not since:
        session = caller.session
        ended = await ended_run.find(backend, job, session.registry, session.settings)
    follow = tuple(args.replica)
    following = caller.session.attach(
        job.name,
        caller.display,
        follow,
        where=place,
        since=since,
        folder=caller.folder,
        lines=lines,
        console=caller.console,
        found=(backend, job),
        ended=ended,
    )
    return await reported(following, args, caller, job)


async def _last(session: Session, place: Where) -> Job:
    """Return the default job: a reloaded page has lost the table that shows it.

    Raises:
        NoSuchJob: This user has no job.
        BackendError: A backend does not answer, but may have a job.
    """
    if session.last is not None and place == HERE:
        return session.last.job
    faults: list[BackendError] = []
    # If the user names a place, a missing answer is an error; otherwise follow any job found.
    found = await session.jobs(None if place.is_explicit else faults, place)
    mine = [job for job, _ in found if session.owns(job)]
    if not mine and faults:
        raise faults[0]
    if not mine:
        raise NoSuchJob("you have no job to follow.", "`%ciao jobs` lists all jobs.")
    return mine[-1]
