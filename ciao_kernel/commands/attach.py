"""``ciao attach NAME``: follow a job from its first line, as the cell that started it."""

from __future__ import annotations

import argparse

from ciao_kernel.commands import Face, add_job, add_output, add_replica, chosen
from ciao_kernel.commands.describe import reported
from ciao_kernel.model import JobResult


def arguments(verb: argparse.ArgumentParser) -> None:
    """The job, which replicas, and ``--output``."""
    add_job(verb)
    add_replica(verb)
    add_output(verb)


async def run(args: argparse.Namespace, face: Face) -> JobResult | None:
    """Follow; fails as the job fails."""
    _, job, _ = await face.session.find(args.name)
    chosen(args.replica, job)
    following = face.session.attach(job.name, face.display, tuple(args.replica))
    return await reported(following, args, face, job.name)
