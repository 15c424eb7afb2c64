"""``ciao attach NAME``: follow a job from its first line, as the cell that started it."""

from __future__ import annotations

import argparse

from ciao_kernel.commands import Face
from ciao_kernel.commands.describe import reported
from ciao_kernel.commands.shared import (
    add_job,
    add_output,
    add_replica,
    add_since,
    chosen,
    moment,
    where,
)
from ciao_kernel.model import JobResult


def arguments(verb: argparse.ArgumentParser) -> None:
    """The job, which replicas, since when, and ``--output``."""
    add_job(verb)
    add_replica(verb)
    add_since(verb)
    add_output(verb)


async def run(args: argparse.Namespace, face: Face) -> JobResult | None:
    """Follow; fails as the job fails."""
    since, place = moment(args.since), where(args)
    _, job, _ = await face.session.find(args.name, place)
    chosen(args.replica, job)
    follow = tuple(args.replica)
    following = face.session.attach(
        job.name, face.display, follow, where=place, since=since, folder=face.folder
    )
    return await reported(following, args, face, job.name)
