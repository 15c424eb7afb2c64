"""``ciao rerun NAME``: start a job again from what it was made of."""

from __future__ import annotations

import argparse

from ciao_kernel.commands import Caller
from ciao_kernel.commands.job_json import reported
from ciao_kernel.commands.shared_arguments import add_job, add_output, where
from ciao_kernel.model import JobResult


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the job and ``--output``."""
    add_job(verb)
    add_output(verb)


async def run(args: argparse.Namespace, caller: Caller) -> JobResult | None:
    """Run a job of the same source and header, and follow it as its cell did.

    Raises:
        EnvironmentFault: The working folder was removed.
        CiaoError: The job cannot be run again, or has failed.
    """
    folder = caller.folder_of()  # the header may have files such as a Dockerfile
    work = caller.session.rerun(
        args.name,
        caller.display,
        where=where(args),
        folder=folder,
        console=caller.prompts,
    )
    return await reported(work, args, caller)
