"""``ciao suspend NAME``: take the pods of a job away for a while."""

from __future__ import annotations

import argparse

from ciao_kernel.commands import Caller
from ciao_kernel.commands.shared_arguments import add_job, where
from ciao_kernel.errors import BackendError, UsageError
from ciao_kernel.model import Job
from ciao_kernel.plugins import Suspending


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
    job = await changed(args, caller, suspended=True)
    caller.write(f"{job.name} is suspended: `ciao resume {job.reference}` starts it again.\n")


async def changed(args: argparse.Namespace, caller: Caller, *, suspended: bool) -> Job:
    """Suspend or resume the named job, and return it.

    Raises:
        UsageError: Jobs of its backend cannot be suspended.
        BackendError: The job is over, or from the backend.
    """
    backend, job, status = await caller.session.find(args.name, where(args))
    if not isinstance(backend, Suspending):
        raise UsageError(
            f"{job.name} cannot be suspended: the backend {job.backend} keeps no place for it.",
            f"`%ciao delete {job.reference}` ends it; run its cell again later.",
        )
    if status.state.over:
        raise BackendError(f"{job.name} is over: {status.state}.", "Run its cell again.")
    await backend.set_suspended(job, suspended=suspended)
    return job
