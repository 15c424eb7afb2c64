"""``ciao describe NAME``: show all details of a job."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Awaitable, Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Any

from ciao_kernel.commands import Caller
from ciao_kernel.commands.shared_arguments import add_job, add_output, where
from ciao_kernel.display.columns import columns
from ciao_kernel.display.table import ending
from ciao_kernel.errors import JobError, JobLost, JobStopped, NoSuchJob, UsageError
from ciao_kernel.model import Job, JobResult, ReplicaStatus, State, Status
from ciao_kernel.model.queries import HERE, ClusterEvent, Details
from ciao_kernel.model.times import age, clock_time
from ciao_kernel.visible_text import visible

_NONE = "–"


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the job and ``--output``."""
    add_job(verb)
    add_output(verb, "yaml")


async def run(args: argparse.Namespace, caller: Caller) -> None:
    """Write the job, its header and its replicas, and details from the cluster."""
    backend, job, status = await caller.session.find(args.name, where(args))
    details = await backend.details(job)
    if args.output == "yaml":
        caller.write(_yaml(job, details))
    elif args.output == "json":
        record = job_record(job, status) | _details_record(details)
        caller.write(json.dumps(record, indent=2) + "\n")
    else:
        caller.write("\n\n".join(_blocks(job, status, details)) + "\n")


# ------------------------------------------------------------------------------------- text


def _blocks(job: Job, status: Status, details: Details) -> Iterator[str]:
    facts = [
        ("name", job.name),
        ("state", _state(status)),
        ("framework", job.framework),
        ("backend", job.backend),
        ("created", datetime.fromtimestamp(job.created).strftime("%Y-%m-%d %H:%M:%S")),
        ("owner", job.owner + (", detached" if job.detached else "")),
        (job.kind_of_place, job.place),
        *job.made_of,
        *details.facts,
    ]
    yield columns([map(cell, fact) for fact in facts])
    yield "header\n" + "\n".join(f"  {visible(line)}" for line in job.header.splitlines())
    if any(one.image or one.asks for one in details.groups):
        heads = ("role", "replicas", "image", "resources", "restart")
        yield _table(
            heads,
            [
                (one.role, one.replicas, one.image, one.asks, one.restart_policy)
                for one in details.groups
            ],
        )
    yield _replicas(status, details)
    if details.conditions:
        yield _table(
            ("condition", "status", "reason", "age", "message"),
            [
                (one.type, one.status, one.reason, _age(one.since), one.message)
                for one in details.conditions
            ],
        )
    if details.cluster_events:
        yield _table(
            ("age", "event", "about", "reason", "message"),
            [
                (_times(one), one.kind, one.about, one.reason, one.message)
                for one in details.cluster_events
            ],
        )
    if details.missing:
        yield cell(details.missing)


def _replicas(status: Status, details: Details) -> str:
    heads: tuple[str, ...] = ("replica", "state", "since", "ending", "log")
    rows: list[tuple[Any, ...]] = [
        (str(one.replica), str(one.state), clock_time(one.since), ending(one), one.log)
        for one in status.replicas
    ]
    if details.pods:
        heads = (*heads[:-1], "pod", "node", "restarts", "log")
        rows = [
            (*row[:-1], details.pods.get(one.replica, ""), one.node, one.restarts, one.log)
            for row, one in zip(rows, status.replicas, strict=True)
        ]
    why = [f"\n  {one.replica}: {cell(one.reason)}" for one in status.replicas if one.reason]
    return _table(heads, rows) + "".join(why)


def _times(one: ClusterEvent) -> str:
    return _age(one.since) + (f" x{one.count}" if one.count > 1 else "")


def cell(value: object) -> str:
    """Return text of a cluster or another user on one line: it must not control a terminal."""
    return visible(" ".join(str(value).split("\n")))


def _table(heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    return columns([heads, *([cell(one) or _NONE for one in row] for row in rows)])


def _age(since: float) -> str:
    return age(time.time() - since) if since else _NONE


def _state(status: Status) -> str:
    reason = "" if status.reason == status.word else status.reason
    why = " ".join(part for part in (reason, status.message) if part)
    by = f", decided by {status.decided_by}" if status.decided_by else ""
    return f"{status.word}{f' ({why})' if why else ''}{by}"


def _yaml(job: Job, details: Details) -> str:
    if details.manifest is None:
        raise UsageError(
            f"{job.name} runs on this machine, so there is no Kubernetes object of it.",
            "--output json shows all its details.",
        )
    import yaml

    text: str = yaml.safe_dump(details.manifest, sort_keys=False, allow_unicode=True, width=1000)
    return text


# ------------------------------------------------------------------------------------- json


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


def _details_record(details: Details) -> dict[str, Any]:
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
