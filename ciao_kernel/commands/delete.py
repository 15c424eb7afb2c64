"""``ciao delete NAME …``: stop jobs and remove what they left."""

from __future__ import annotations

import argparse
import json

from ciao_kernel.commands import Face
from ciao_kernel.commands.shared import add_job, add_output, where
from ciao_kernel.errors import UsageError
from ciao_kernel.model import Job, Status


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the jobs, ``--finished`` and ``--output``."""
    add_job(verb, dest="names", nargs="*", metavar="NAME", help="the jobs")
    verb.add_argument("--finished", action="store_true", help="all your finished jobs")
    # Accepted only to be refused with a clear error: `ciao jobs -A` suggests that it exists.
    verb.add_argument("--all-namespaces", "-A", action="store_true", help=argparse.SUPPRESS)
    add_output(verb)


async def run(args: argparse.Namespace, face: Face) -> None:
    """Delete the jobs, and report each job after its deletion."""
    if args.all_namespaces:
        raise UsageError(
            "delete cannot be combined with --all-namespaces: a mistake could delete too much.",
            "Name one namespace: --namespace NAME.",
        )
    if not args.finished and not args.names:
        raise UsageError("no job is named.", "Name a job, or use --finished for finished jobs.")
    place = where(args)
    # All jobs are looked up first: if one name is wrong, nothing is deleted.
    found = [await face.session.find(name, place) for name in dict.fromkeys(args.names)]
    if args.finished:
        known = {_key(job) for _, job, _ in found}
        # If the user names a place and it does not answer, this is an error, not an empty list.
        found += [
            (face.session.backend(job.backend), job, status)
            for job, status in await face.session.jobs(None if place.said else [], place)
            if status.over and face.session.owns(job) and _key(job) not in known
        ]
    text = args.output == "text"
    records: list[dict[str, str]] = []
    try:
        for backend, job, status in found:
            await backend.delete(job)
            records.append(_record(job, status))
            if text:
                face.write(_sentence(job, status))
    finally:  # report deleted jobs even if a later job cannot be deleted
        if not text:
            face.write(json.dumps(records, indent=2) + "\n")
    if text and not found:
        face.write("There was nothing to delete.\n")


def _key(job: Job) -> tuple[str, str, str, str]:
    return job.backend, job.context, job.place, job.name


def _sentence(job: Job, status: Status) -> str:
    if job.kind_of_place == "folder":
        return f"{job.name} ({status.state}) and its files were removed.\n"
    place = f"{job.kind_of_place} {job.place}"
    return f"{job.name} ({status.state}) was deleted from the {place}, with its local logs.\n"


def _record(job: Job, status: Status) -> dict[str, str]:
    record = {"name": job.name, "was": str(status.state), "backend": job.backend}
    return record if job.kind_of_place == "folder" else {**record, "namespace": job.place}
