"""``ciao profile NAME[/REPLICA]``: show where a running job spends its time."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict

from ciao_kernel.commands import Caller, completion
from ciao_kernel.commands.shared_arguments import (
    add_job,
    add_output,
    named_replica,
    running_job,
)
from ciao_kernel.errors import UsageError
from ciao_kernel.plugins import Step

_USUAL, _LONGEST = 10.0, 120.0


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the job or the replica, ``--seconds`` and ``--output``."""
    verb.epilog = (
        "The main thread of each process is sampled about 45 times a second, from outside and also "
        "in libraries in C. Lines of the program keep their numbers. The slow replica, for which "
        "the others wait, is named. The job goes on meanwhile; "
        "the stop button ends the wait. On a cluster the command requires the right to get and "
        "create pods/exec. Options of a job: %inspect=off."
    )
    text = "the job or one of its replicas; it may be left out if only one job runs"
    add_job(verb, completion.members, nargs="?", default="", metavar="NAME[/REPLICA]", help=text)
    verb.add_argument(
        "--seconds",
        type=float,
        default=_USUAL,
        metavar="N",
        help=f"how long, from 1 to {_LONGEST:g}; without it {_USUAL:g}",
    )
    add_output(verb, "svg")


async def run(args: argparse.Namespace, caller: Caller) -> None:
    """Show the profile."""
    from ciao_kernel.session.inspection import profile, query

    seconds: float = args.seconds
    if not (math.isfinite(seconds) and 1 <= seconds <= _LONGEST):
        raise UsageError(
            f"--seconds cannot be {seconds:g}.", f"Use a number from 1 to {_LONGEST:g}."
        )
    name, slash, member = args.name.partition("/")
    backend, job, status = await running_job(args, caller, name)
    if status.over:
        raise UsageError(
            f"{job.name} is over ({status.state}), and only a running job has a profile.",
            f"`%ciao rerun {job.reference}` starts it again.",
        )
    replicas = [named_replica(job, member, slash)] if slash else list(job.replicas)
    with Step(caller.display.show, f"profiling {job.name} for {seconds:g} s"):
        found = await query.sample(backend, job, replicas, seconds)
    made = profile.of(job, found, seconds)
    if args.output == "json":
        caller.write(json.dumps(asdict(made), indent=2) + "\n")
    elif args.output == "svg":
        from ciao_kernel.display import flame

        caller.write(flame.svg(made) + "\n")
    else:
        caller.display.show(made)
