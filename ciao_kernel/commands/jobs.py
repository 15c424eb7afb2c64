"""``ciao jobs``: list all jobs, from any kernel or terminal."""

from __future__ import annotations

import argparse
import json
import time

from ciao_kernel.commands import Face
from ciao_kernel.commands.describe import cell, job_record
from ciao_kernel.commands.shared_arguments import add_output, add_where, where
from ciao_kernel.display.table import columns
from ciao_kernel.errors import BackendError
from ciao_kernel.model import Job, State, Status
from ciao_kernel.model.queries import Where
from ciao_kernel.model.times import age


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the place, the filters and ``--output``."""
    verb.usage = "%(prog)s [options]"
    add_where(verb)
    verb.add_argument(
        "--all-namespaces", "-A", action="store_true", help="look in all namespaces of the cluster"
    )
    verb.add_argument("--mine", action="store_true", help="only your own jobs, not your team's")
    verb.add_argument("--running", action="store_true", help="only jobs that still run")
    add_output(verb)


async def run(args: argparse.Namespace, face: Face) -> None:
    """Write one line per job."""
    place = where(args)
    faults: list[BackendError] = []
    # If the user names a place, a missing answer is an error; otherwise show the jobs found.
    found = await face.session.jobs(
        None if place.is_explicit or place.everywhere else faults, place
    )
    if args.running:
        found = [(job, status) for job, status in found if not status.over]
    if args.mine:
        found = [(job, status) for job, status in found if face.session.owns(job)]
    if args.output == "json":
        records = [job_record(job, status) for job, status in found]
        face.write(json.dumps(records, indent=2) + "\n")
    elif not found:
        face.write("There are no jobs on this machine.\n" if faults else "There are no jobs.\n")
    else:
        _show(found, place, face)
    if faults:
        raise faults[0]  # the jobs found are shown, but an incomplete list is a failure


def _show(found: list[tuple[Job, Status]], place: Where, face: Face) -> None:
    spaces = {job.place for job, _ in found if job.kind_of_place == "namespace"}
    elsewhere = not place.is_explicit and any("--namespace" in job.options for job, _ in found)
    face.write(_table(found, spaces=place.everywhere or elsewhere or len(spaces) > 1))


def _table(found: list[tuple[Job, Status]], *, spaces: bool) -> str:
    heads = ("NAME", "FRAMEWORK", "BACKEND", "STATE", "REPLICAS", "AGE", "OWNER")
    rows = [heads, *(_row(job, status) for job, status in found)]
    if spaces:
        column = ["NAMESPACE"]
        column += [job.place if job.kind_of_place == "namespace" else "–" for job, _ in found]
        rows = [(name, *row) for name, row in zip(column, rows, strict=True)]
    return columns([map(cell, row) for row in rows]) + "\n"


def _row(job: Job, status: Status) -> tuple[str, ...]:
    return (
        job.name,
        job.framework,
        job.backend,
        str(status.state),
        _replicas(status),
        age(time.time() - job.created),
        job.owner + (", detached" if job.detached else ""),
    )


def _replicas(status: Status) -> str:
    running = sum(one.state is State.RUNNING for one in status.replicas)
    return f"{running}/{len(status.replicas)} running"
