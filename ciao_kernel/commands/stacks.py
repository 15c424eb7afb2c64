"""``ciao stacks NAME``: show where the processes of a job stand."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from ciao_kernel.commands import Caller
from ciao_kernel.commands.shared_arguments import (
    add_member,
    add_output,
    check_runs,
    chosen,
    running_job,
    take_replica,
)


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the job, ``--all``, ``--replica`` and ``--output``."""
    verb.epilog = (
        "Replicas that stand at the same line of the program are one line. After the arrow is the "
        "function that this line has called; (in C) means that the process is in a library in C, "
        "and does not run Python. The job goes on meanwhile. On a cluster the command requires the "
        "right to get and create pods/exec. Options of a job: %inspect=off."
    )
    text = "the job; it may be left out if only one job runs"
    add_member(verb, nargs="?", default="", help=text)
    verb.add_argument("--all", action="store_true", help="show the whole stacks, of all threads")
    add_output(verb)


async def run(args: argparse.Namespace, caller: Caller) -> None:
    """Write the picture."""
    from ciao_kernel.session.inspection import picture, query

    take_replica(args)
    backend, job, status = await running_job(args, caller)
    check_runs(job, status)
    found = await query.ask(backend, job, chosen(args.replica, job))
    if args.output == "json":
        records = [{**asdict(one), "replica": str(one.replica)} for one in found]
        caller.write(json.dumps(records, indent=2) + "\n")
    else:
        caller.write(picture.text(job, found, whole=args.all) + "\n")
