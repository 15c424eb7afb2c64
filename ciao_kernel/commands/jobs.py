"""``ciao jobs``: every job that this user has, from whatever kernel or terminal."""

from __future__ import annotations

import argparse
import json
import time

from ciao_kernel.commands import Face, add_output
from ciao_kernel.commands.describe import job_record
from ciao_kernel.display.table import columns
from ciao_kernel.errors import BackendError
from ciao_kernel.model import State, Status


def arguments(verb: argparse.ArgumentParser) -> None:
    """``--running`` and ``--output``."""
    verb.add_argument("--running", action="store_true", help="only jobs that still run")
    add_output(verb)


async def run(args: argparse.Namespace, face: Face) -> None:
    """Write one line a job."""
    faults: list[BackendError] = []
    found = await face.session.jobs(faults)
    if args.running:
        found = [(job, status) for job, status in found if not status.over]
    if args.output == "json":
        records = [job_record(job, status) for job, status in found]
        face.write(json.dumps(records, indent=2) + "\n")
        return
    for fault in faults:
        face.write(f"{fault.message}\n")
    if not found:
        face.write("There are no jobs.\n")
        return
    rows = [("NAME", "FRAMEWORK", "BACKEND", "STATE", "REPLICAS", "AGE", "OWNER")]
    rows += [
        (
            job.name,
            job.framework,
            job.backend,
            str(status.state),
            _replicas(status),
            age(time.time() - job.created),
            job.owner + (", detached" if job.detached else ""),
        )
        for job, status in found
    ]
    face.write(columns(rows) + "\n")


def _replicas(status: Status) -> str:
    running = sum(one.state is State.RUNNING for one in status.replicas)
    return f"{running}/{len(status.replicas)} running"


def age(seconds: float) -> str:
    """A time span as kubectl writes it: ``45s``, ``12m``, ``3h``, ``2d``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"
