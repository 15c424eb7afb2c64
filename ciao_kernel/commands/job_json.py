"""Jobs and their results in JSON, as verbs write them for ``--output json``."""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections.abc import Awaitable
from dataclasses import asdict
from typing import Any

from ciao_kernel import log
from ciao_kernel.commands import Caller
from ciao_kernel.errors import CiaoError, JobError, JobLost, JobStopped
from ciao_kernel.model import Job, JobResult, Replica, ReplicaStatus, State, Status
from ciao_kernel.model.queries import Details, Where

_log = logging.getLogger(__name__)


def job_record(job: Job, status: Status) -> dict[str, Any]:
    """Return a job as ``--output json`` writes it."""
    return {
        "name": job.name,
        "state": str(status.state),
        "reason": status.reason,
        "message": status.message,
        "settled": status.settled,
        "tries": status.tries,
        "decided_by": _name(status.decided_by),
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


def run_record(number: int, status: Status) -> dict[str, Any]:
    """Return the newest run of a warm job as ``ciao describe --output json`` writes it."""
    return {
        "number": number,
        "state": str(status.state),
        "reason": status.reason,
        "message": status.message,
        "decided_by": _name(status.decided_by),
        "replicas": [_replica(one) for one in status.replicas],
    }


async def reported(
    work: Awaitable[JobResult | None],
    args: argparse.Namespace,
    caller: Caller,
    job: Job | None = None,
) -> JobResult | None:
    """Await a job, and for ``--output json`` write its result, even after a failure.

    Args:
        work: Runs or follows the job.
        args: The verb's arguments.
        caller: Who calls it.
        job: The job that is followed; None if it is new.
    """
    if args.output == "text":
        return await work
    session = caller.session
    before = session.last
    try:
        result = await work
    except JobError as error:
        last = None if session.last is before else session.last
        record = await _error_record(error, last, last.job if last else job, caller)
        caller.write(json.dumps(record, indent=2) + "\n")
        raise
    if result is not None:
        record = _result_record(result.name, result.status, str(result.folder))
        caller.write(json.dumps(record, indent=2) + "\n")
    return result


async def _error_record(
    error: JobError, last: JobResult | None, job: Job | None, caller: Caller
) -> dict[str, Any]:
    """Return the record of a job that did not succeed; no error of its own takes its place."""
    if job is None:  # it ended before anybody knew it
        record = _result_record(getattr(error, "job", ""), Status(_state(error), ()), "")
        return {**record, "error": error.message}
    status = _last_status(error, last, job)
    if not job.warm_run:  # the name of a run is that of replicas, which wait for the next one
        with log.ignored(_log, "asking for the status of a job that failed", CiaoError):
            _, _, status = await caller.session.find(job.name, Where.of(job))
    return {**_result_record(job.name, status, job.results), "error": error.message}


def _last_status(error: JobError, last: JobResult | None, job: Job) -> Status:
    """Return the last known status of a job that cannot be asked for: it may be deleted."""
    if last is not None and last.status.state.over:
        return last.status
    state = _state(error)
    return Status(state, tuple(ReplicaStatus(one, state) for one in job.replicas))


def _state(error: JobError) -> State:
    return {JobStopped: State.STOPPED, JobLost: State.LOST}.get(type(error), State.FAILED)


def _result_record(name: str, status: Status, folder: str) -> dict[str, Any]:
    return {
        "name": name,
        "state": str(status.state),
        "tries": status.tries,
        "decided_by": _name(status.decided_by),
        "folder": folder,
        "replicas": [_replica(one) for one in status.replicas],
        "error": None,
    }


def _name(replica: Replica | None) -> str | None:
    return None if replica is None else str(replica)


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
