"""``ciao delete NAME …``: stop jobs and remove what they left."""

from __future__ import annotations

import argparse

from ciao_kernel.commands import Face
from ciao_kernel.errors import UsageError

HELP = "stop jobs, and remove their folders with all that they wrote there"


def arguments(verb: argparse.ArgumentParser) -> None:
    """The jobs, or all that are over."""
    verb.add_argument("names", nargs="*", metavar="NAME", help="the jobs")
    verb.add_argument("--finished", action="store_true", help="all jobs that are over")


async def run(args: argparse.Namespace, face: Face) -> None:
    """Delete, and say what went."""
    names = list(args.names)
    if args.finished:
        names += [job.name for job, status in await face.session.jobs() if status.settled]
    elif not names:
        raise UsageError("no job is named.", "Name one, or write --finished for all that are over.")
    # All are looked up first: with a wrong name among them, nothing is deleted.
    found = [await face.session.find(name) for name in dict.fromkeys(names)]
    for backend, job, status in found:
        await backend.delete(job)
        was = "was " + str(status.state).lower()
        face.write(f"{job.name} ({was}) and its folder are removed.\n")
    if not found:
        face.write("There was nothing to delete.\n")
