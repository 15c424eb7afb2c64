"""``ciao describe NAME``: all that is known of one job."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Awaitable
from datetime import datetime
from typing import Any

from ciao_kernel.commands import Face, add_job, add_output
from ciao_kernel.display.table import clock_time, columns, ending
from ciao_kernel.errors import JobError, JobLost, JobStopped, NoSuchJob
from ciao_kernel.model import Job, JobResult, ReplicaStatus, State, Status


def arguments(verb: argparse.ArgumentParser) -> None:
    """The job, and ``--output``."""
    add_job(verb)
    add_output(verb)


async def run(args: argparse.Namespace, face: Face) -> None:
    """Write the job, its header and its replicas."""
    _, job, status = await face.session.find(args.name)
    if args.output == "json":
        face.write(json.dumps(job_record(job, status), indent=2) + "\n")
        return
    facts = [
        ("name", job.name),
        ("state", _state(status)),
        ("framework", job.framework),
        ("backend", job.backend),
        ("created", datetime.fromtimestamp(job.created).strftime("%Y-%m-%d %H:%M:%S")),
        ("owner", job.owner + (", detached" if job.detached else "")),
        (job.kind_of_place, job.place),
    ]
    rows = [("replica", "state", "since", "ending", "log")]
    rows += [
        (str(one.replica), str(one.state), clock_time(one.since), ending(one), one.log)
        for one in status.replicas
    ]
    header = "\n".join(f"  {line}" for line in job.header.splitlines())
    face.write(f"{columns(facts)}\n\nheader\n{header}\n\n{columns(rows)}\n")


def _state(status: Status) -> str:
    why = " ".join(part for part in (status.reason, status.message) if part)
    by = f", decided by {status.decided_by}" if status.decided_by else ""
    return f"{status.state}{f' ({why})' if why else ''}{by}"


def job_record(job: Job, status: Status) -> dict[str, Any]:
    """A job as ``--output json`` writes it."""
    return {
        "name": job.name,
        "state": str(status.state),
        "reason": status.reason,
        "message": status.message,
        "settled": status.settled,
        "framework": job.framework,
        "backend": job.backend,
        "created": job.created,
        "age_seconds": round(time.time() - job.created, 1),
        "owner": job.owner,
        "detached": job.detached,
        "folder": job.files,
        "header": job.header,
        "replicas": [_replica(one) for one in status.replicas],
    }


async def reported(
    work: Awaitable[JobResult | None], args: argparse.Namespace, face: Face, name: str = ""
) -> JobResult | None:
    """Await a job, and for ``--output json`` write how it ended, a failure included."""
    if args.output == "text":
        return await work
    try:
        result = await work
    except JobError as error:
        record = await _error_record(error, getattr(error, "job", "") or name, face)
        face.write(json.dumps(record, indent=2) + "\n")
        raise
    if result is not None:
        face.write(json.dumps(_result_record(result), indent=2) + "\n")
    return result


async def _error_record(error: JobError, name: str, face: Face) -> dict[str, Any]:
    try:
        _, job, status = await face.session.find(name)
        result = JobResult(job.name, status.state, job.files, status.replicas)
    except NoSuchJob:
        # %cleanPolicy=all, or someone deleted it: nothing is left but the error.
        states = {JobStopped: State.STOPPED, JobLost: State.LOST}
        result = JobResult(name, states.get(type(error), State.FAILED), "")
    return {**_result_record(result), "error": error.message}


def _result_record(result: JobResult) -> dict[str, Any]:
    return {
        "name": result.name,
        "state": str(result.state),
        "folder": result.place,
        "replicas": [_replica(one) for one in result.replicas],
        "error": None,
    }


def _replica(one: ReplicaStatus) -> dict[str, Any]:
    return {
        "name": str(one.replica),
        "state": str(one.state),
        "since": one.since,
        "exit_code": one.exit_code,
        "reason": one.reason,
        "log": one.log,
    }
