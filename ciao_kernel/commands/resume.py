"""``ciao resume NAME``: start a suspended job again."""

from __future__ import annotations

import argparse

from ciao_kernel.commands import Caller
from ciao_kernel.commands.shared_arguments import add_job, suspendable


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the job."""
    verb.epilog = "A job in a queue waits there again until it is admitted."
    add_job(verb, help="the job")


async def run(args: argparse.Namespace, caller: Caller) -> None:
    """Resume the job."""
    backend, job = await suspendable(args, caller.session, suspended=False)
    await backend.set_suspended(job, suspended=False)
    caller.write(f"{job.name} is resumed: `ciao attach {job.reference}` follows it.\n")
