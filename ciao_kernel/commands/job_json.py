"""Jobs and their results in JSON, as verbs write them for ``--output json``."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Awaitable
from dataclasses import asdict
from typing import Any

from ciao_kernel.commands import Caller
from ciao_kernel.commands.shared_arguments import where
from ciao_kernel.errors import JobError, JobLost, JobStopped, NoSuchJob
from ciao_kernel.model import Job, JobResult, ReplicaStatus, State, Status
from ciao_kernel.model.queries import HERE, Details


def job_record(job: Job, status: Status) -> dict[str, Any]:
    """Return a job as ``--output json`` writes it."""
    return {
        "name": job.name,
        "state": str(status.state),
        "reason": status.reason,
        "message": status.message,
        "settled": status.settled,
        "framework": job.framework,
        "backend": job.backend,
        "context": job.context,
        "namespace": job.place if job.kind_of_place == "namespace" else "",
        "uid": job.uid,
        "created": job.created,
        "age_seconds": round(time.time() - job.created, 1),
        "owner": job.owner,
        "detached": job.detached,
        "folder": job.files,
        "header": job.header,
        "made_of": dict(job.made_of),
        "replicas": [_replica(one) for one in status.replicas],
    }


def details_record(details: Details) -> dict[str, Any]:
    """Return what ``ciao describe --output json`` adds to a job: details from the cluster."""
    return {
        "spec": dict(details.facts),
        "roles": [asdict(one) for one in details.groups],
        "pods": {str(replica): pod for replica, pod in details.pods.items()},
        "conditions": [asdict(one) for one in details.conditions],
        "events": [asdict(one) for one in details.cluster_events],
        "missing": details.missing,
    }


async def reported(
    work: Awaitable[JobResult | None], args: argparse.Namespace, caller: Caller, name: str = ""
) -> JobResult | None:
    """Await a job, and for ``--output json`` write its result, even after a failure."""
    if args.output == "text":
        return await work
    try:
        result = await work
    except JobError as error:
        record = await _error_record(error, getattr(error, "job", "") or name, args, caller)
        caller.write(json.dumps(record, indent=2) + "\n")
        raise
    if result is not None:
        record = _result_record(result.name, result.status, str(result.folder))
        caller.write(json.dumps(record, indent=2) + "\n")
    return result


async def _error_record(
    error: JobError, name: str, args: argparse.Namespace, caller: Caller
) -> dict[str, Any]:
    try:
        place = where(args) if hasattr(args, "namespace") else HERE
        _, job, status = await caller.session.find(name, place)
        record = _result_record(job.name, status, job.files)
    except NoSuchJob:
        # The job was deleted, by %cleanPolicy=all or by a user: only the error is left.
        states = {JobStopped: State.STOPPED, JobLost: State.LOST}
        status = Status(states.get(type(error), State.FAILED), ())
        record = _result_record(name, status, "")
    return {**record, "error": error.message}


def _result_record(name: str, status: Status, folder: str) -> dict[str, Any]:
    return {
        "name": name,
        "state": str(status.state),
        "folder": folder,
        "replicas": [_replica(one) for one in status.replicas],
        "error": None,
    }


def _replica(one: ReplicaStatus) -> dict[str, Any]:
    return {
        "name": str(one.replica),
        "state": str(one.state),
        "since": one.since,
        "exit_code": one.exit_code,
        "reason": one.reason,
        "node": one.node,
        "restarts": one.restarts,
        "log": one.log,
    }
