"""``ciao delete NAME …``: stop jobs and remove what they left."""

from __future__ import annotations

import argparse
import json

from ciao_kernel.commands import Face, add_job, add_output
from ciao_kernel.errors import UsageError


def arguments(verb: argparse.ArgumentParser) -> None:
    """The jobs, or all that are over."""
    add_job(verb, dest="names", nargs="*", metavar="NAME", help="the jobs")
    verb.add_argument("--finished", action="store_true", help="all jobs that are over")
    add_output(verb)


async def run(args: argparse.Namespace, face: Face) -> None:
    """Delete, and say what went."""
    if not args.finished and not args.names:
        raise UsageError("no job is named.", "Name one, or write --finished for all that are over.")
    # All are looked up first: with a wrong name among them, nothing is deleted.
    found = [await face.session.find(name) for name in dict.fromkeys(args.names)]
    if args.finished:
        known = {(job.backend, job.name) for _, job, _ in found}
        found += [
            (face.session.backend(job.backend), job, status)
            for job, status in await face.session.jobs([])
            if status.over and face.session.owns(job) and (job.backend, job.name) not in known
        ]
    text = args.output == "text"
    for backend, job, status in found:
        await backend.delete(job)
        if text:
            face.write(f"{job.name} ({status.state}) and its files were removed.\n")
    if not text:
        records = [{"name": job.name, "was": str(status.state)} for _, job, status in found]
        face.write(json.dumps(records, indent=2) + "\n")
    elif not found:
        face.write("There was nothing to delete.\n")
