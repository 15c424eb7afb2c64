"""``ciao delete NAME …``: stop jobs and remove what they left."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence

from ciao_kernel.commands import Face
from ciao_kernel.commands.shared_arguments import add_job, add_output, where
from ciao_kernel.errors import BackendError, CiaoError, UsageError
from ciao_kernel.model import Job, Status
from ciao_kernel.plugins import Backend

_AT_ONCE = 50
"""Jobs that are deleted at the same time: backends share work, and clusters are not flooded."""
_NAMED = 3
"""Limit of jobs that an error names."""


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the jobs, ``--finished`` and ``--output``."""
    add_job(verb, dest="names", nargs="*", metavar="NAME", help="the jobs")
    verb.add_argument("--finished", action="store_true", help="all your finished jobs")
    # Accepted only to be refused with a clear error: `ciao jobs -A` suggests that it exists.
    verb.add_argument("--all-namespaces", "-A", action="store_true", help=argparse.SUPPRESS)
    add_output(verb)


async def run(args: argparse.Namespace, face: Face) -> None:
    """Delete the jobs, and report each job after its deletion.

    A job that cannot be deleted does not stop the deletion of the others.

    Raises:
        UsageError: No job is named, or too many could be meant.
        CiaoError: A job was not found, or some jobs could not be deleted.
    """
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
            for job, status in await face.session.jobs(None if place.is_explicit else [], place)
            if status.over and face.session.owns(job) and _key(job) not in known
        ]
    text = args.output == "text"
    gone: set[tuple[str, str, str, str]] = set()
    faults: list[tuple[Job, CiaoError]] = []

    async def delete(backend: Backend, job: Job, status: Status) -> None:
        try:
            await backend.delete(job)
        except CiaoError as fault:
            faults.append((job, fault))
            return
        gone.add(_key(job))
        if text:
            face.write(_sentence(job, status))

    try:
        for start in range(0, len(found), _AT_ONCE):
            await asyncio.gather(*(delete(*one) for one in found[start : start + _AT_ONCE]))
    finally:  # report deleted jobs also after an interrupt
        if not text:
            records = [_record(job, status) for _, job, status in found if _key(job) in gone]
            face.write(json.dumps(records, indent=2) + "\n")
    if faults:
        raise _combined(faults)
    if text and not found:
        face.write("There was nothing to delete.\n")


def _combined(faults: Sequence[tuple[Job, CiaoError]]) -> CiaoError:
    """Return one error for all jobs that could not be deleted."""
    (_, first), *others = faults
    if not others:
        return first
    named = " ".join(f"{job.name}: {fault.message}" for job, fault in faults[:_NAMED])
    more = f" And {len(faults) - _NAMED} more." if len(faults) > _NAMED else ""
    text = f"{len(faults)} jobs could not be deleted completely. {named}{more}"
    return BackendError(text, first.hint)


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
