"""``ciao tensorboard [NAME …]``: show event files of jobs in TensorBoard."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from ciao_kernel.commands import Caller, completion
from ciao_kernel.commands.shared_arguments import add_replica, add_where, chosen, where
from ciao_kernel.errors import UsageError
from ciao_kernel.magics.directives import event_folder
from ciao_kernel.model import Job
from ciao_kernel.visible_text import listed


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the jobs, their place and ``--replica``."""
    verb.epilog = (
        "In a notebook it stays until the kernel ends, in a terminal until Ctrl-C. TensorBoard is "
        "that of the Python which runs this command (pip install tensorboard). Event files of a "
        "cluster are copied as they grow, which requires the right to create and get pods/exec; "
        "of an ended job, those are shown that came back by %tensorboard."
    )
    names = verb.add_argument(
        "name",
        nargs="*",
        metavar="NAME",
        help="running and ended jobs; by default all of yours that have %%tensorboard",
    )
    completion.by(completion.jobs, names)
    add_replica(verb)
    add_where(verb)


async def run(args: argparse.Namespace, caller: Caller) -> None:
    """Show the jobs; in a terminal wait for Ctrl-C."""
    session = caller.session
    session.board.check()
    place = where(args)
    if args.name:
        found = [(await session.find(name, place))[:2] for name in dict.fromkeys(args.name)]
    else:  # by themselves, because several may have one name
        mine = [job for job, _ in await session.jobs(where=place) if session.owns(job)]
        asked = [job for job in mine if event_folder.event_folder_in(job.header) is not None]
        found = [(session.backend(job.backend), job) for job in asked]
    if not found:
        raise UsageError(
            "no job of yours has %tensorboard.",
            "Name jobs that write event files into the folder logs beside the program.",
        )
    _check_names(args.replica, [job for _, job in found])
    shown = await session.board.show(found, caller.display.show, args.replica)
    if shown is not None:
        await session.board.fill(shown, caller.display.show)
    if caller.terminal:
        await asyncio.Event().wait()


def _check_names(names: Sequence[str], jobs: Sequence[Job]) -> None:
    """Check that each ``--replica`` is one of some job.

    Raises:
        UsageError: No job has such a role or replica.
    """
    if len(jobs) == 1:
        chosen(names, jobs[0])
        return
    for name in names:
        if not any(one.chosen([name]) for job in jobs for one in job.replicas):
            known = dict.fromkeys(str(one) for job in jobs for one in job.replicas)
            raise UsageError(
                f"none of the jobs {listed([job.name for job in jobs])} has a replica {name}.",
                f"There are: {', '.join(known)}.",
            )
