"""``ciao describe NAME``: show all details of a job."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ciao_kernel import log
from ciao_kernel.commands import Caller
from ciao_kernel.commands.job_json import details_record, job_record, run_record
from ciao_kernel.commands.shared_arguments import add_job, add_output, where
from ciao_kernel.display.columns import columns
from ciao_kernel.display.table import ending
from ciao_kernel.errors import CiaoError, UsageError
from ciao_kernel.magics.directives.warm import is_warm
from ciao_kernel.model import Job, Status
from ciao_kernel.model.queries import ClusterEvent, Details
from ciao_kernel.model.times import age, clock_time
from ciao_kernel.plugins import Backend
from ciao_kernel.session.job_record import of_newest_run
from ciao_kernel.visible_text import one_line, visible

if TYPE_CHECKING:
    from ciao_kernel.session.session import Session
    from ciao_kernel.session.warm.ended_run import EndedRun

_log = logging.getLogger(__name__)

_NONE = "–"


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the job and ``--output``."""
    add_job(verb)
    add_output(verb, "yaml")


async def run(args: argparse.Namespace, caller: Caller) -> None:
    """Write the job, its header and its replicas, and details from the cluster."""
    backend, job, status = await caller.session.find(args.name, where(args))
    details = await backend.details(job)
    job = await asyncio.to_thread(of_newest_run, job)
    if args.output == "yaml":
        caller.write(_yaml(job, details))
        return
    run = await _newest_run(backend, job, caller.session)
    if args.output == "json":
        newest = run_record(run.job.warm_run, run.status) if run is not None else None
        record = job_record(job, status) | {"newest_run": newest} | details_record(details)
        caller.write(json.dumps(record, indent=2) + "\n")
    else:
        caller.write("\n\n".join(_blocks(job, status, details, run)) + "\n")


async def _newest_run(backend: Backend, job: Job, session: Session) -> EndedRun | None:
    """Return the newest run of a warm job, whose own state is only that of its replicas."""
    if not is_warm(job.header):
        return None
    from ciao_kernel.session.warm import ended_run

    with log.ignored(_log, "the newest run of a warm job", CiaoError):
        return await ended_run.find(
            backend, job, session.registry, session.settings, result_only=True
        )
    return None


def _blocks(
    job: Job, status: Status, details: Details, run: EndedRun | None = None
) -> Iterator[str]:
    ended = [] if run is None else [("newest run", f"run {run.job.warm_run}: {_state(run.status)}")]
    facts = [
        ("name", job.name),
        ("state", _state(status)),
        *ended,
        *([("tries", str(status.tries))] if status.tries > 1 else []),
        ("framework", job.framework),
        ("backend", job.backend),
        ("created", datetime.fromtimestamp(job.created).strftime("%Y-%m-%d %H:%M:%S")),
        ("owner", job.owner + (", detached" if job.detached else "")),
        (job.kind_of_place, job.place),
        *job.made_of,
        *details.facts,
    ]
    yield columns([map(one_line, fact) for fact in facts])
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
        yield one_line(details.missing)


def _replicas(status: Status, details: Details) -> str:
    heads: tuple[str, ...] = ("replica", "state", "since", "ending")
    rows: list[tuple[Any, ...]] = [
        (str(one.replica), str(one.state), clock_time(one.since), ending(one))
        for one in status.replicas
    ]
    if details.pods:
        heads = (*heads, "pod", "node")
        rows = [
            (*row, details.pods.get(one.replica, ""), one.node)
            for row, one in zip(rows, status.replicas, strict=True)
        ]
    # As in the table of the cell: on this machine few jobs have replicas that start again.
    if details.pods or any(one.restarts for one in status.replicas):
        heads = (*heads, "restarts")
        rows = [(*row, one.restarts) for row, one in zip(rows, status.replicas, strict=True)]
    heads = (*heads, "log")
    rows = [(*row, one.log) for row, one in zip(rows, status.replicas, strict=True)]
    why = [f"\n  {one.replica}: {one_line(one.reason)}" for one in status.replicas if one.reason]
    return _table(heads, rows) + "".join(why)


def _times(one: ClusterEvent) -> str:
    return _age(one.since) + (f" x{one.count}" if one.count > 1 else "")


def _table(heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    return columns([heads, *([one_line(one) or _NONE for one in row] for row in rows)])


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
