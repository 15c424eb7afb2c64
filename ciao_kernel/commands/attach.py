"""``ciao attach NAME``: follow a job from its first line, as the cell that started it."""

from __future__ import annotations

import argparse

from ciao_kernel.commands import Face
from ciao_kernel.errors import UsageError
from ciao_kernel.model import Job, JobResult, Replica

HELP = "follow a job from its first line to its end; an interrupt leaves it running"


def arguments(verb: argparse.ArgumentParser) -> None:
    """The job and which replicas."""
    verb.add_argument("name", help="the job")
    verb.add_argument("--replica", action="append", default=[], help="only this role or replica")


async def run(args: argparse.Namespace, face: Face) -> JobResult:
    """Follow; fails as the job fails."""
    _, job, _ = await face.session.find(args.name)
    chosen(args.replica, job)
    return await face.session.attach(args.name, face.display, tuple(args.replica))


def chosen(names: list[str], job: Job) -> list[Replica]:
    """The replicas that ``--replica`` names; all where it is not given."""
    for name in names:
        if all(name not in (one.role, str(one)) for one in job.replicas):
            known = ", ".join(map(str, job.replicas))
            raise UsageError(f"{job.name} has no replica {name}.", f"There are: {known}.")
    return [one for one in job.replicas if not names or one.role in names or str(one) in names]
