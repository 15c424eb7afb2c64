"""``ciao suspend NAME``: take the pods of a job away for a while."""

from __future__ import annotations

import argparse

from ciao_kernel.commands import Caller
from ciao_kernel.commands.shared_arguments import add_job, suspendable


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the job."""
    verb.epilog = (
        "The pods end, and others can use their place; the program begins anew when the job is "
        "resumed, or goes on from its %checkpoint. On a cluster it requires the right to patch "
        "jobs, for jobs in queues that to patch Workloads of Kueue."
    )
    add_job(verb, help="the job")


async def run(args: argparse.Namespace, caller: Caller) -> None:
    """Suspend the job."""
    backend, job = await suspendable(args, caller.session, suspended=True)
    await backend.set_suspended(job, suspended=True)
    caller.write(f"{job.name} is suspended: `ciao resume {job.reference}` starts it again.\n")
