"""``ciao top NAME``: show what the replicas of a job use."""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import asdict

from ciao_kernel.commands import Caller
from ciao_kernel.commands.shared_arguments import (
    add_member,
    add_output,
    check_runs,
    chosen,
    running_job,
    take_replica,
)
from ciao_kernel.errors import UsageError
from ciao_kernel.model.queries import Where

_PAUSE = 2.0
"""Seconds between two looks of ``--watch`` on this machine; a cluster is asked less often."""
_PAUSE_CLUSTER = 5.0
_CLEAR = "\x1b[H\x1b[2J"


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the job, ``--watch``, ``--replica`` and ``--output``."""
    verb.epilog = (
        "CPU is the number of processors that are busy. MEMORY is what counts towards LIMIT, the "
        "memory at which a pod is killed. On a cluster up to 16 replicas are entered, which "
        "requires the right to get and create pods/exec; more are looked up in the metrics of the "
        "cluster (metrics.k8s.io), if there are any."
    )
    text = "the job; it may be left out if only one job runs"
    add_member(verb, nargs="?", default="", help=text)
    verb.add_argument(
        "--watch", "-w", action="store_true", help="look again and again, until Ctrl-C (terminal)"
    )
    add_output(verb)


async def run(args: argparse.Namespace, caller: Caller) -> None:
    """Write the table."""
    from ciao_kernel.display import usage_table
    from ciao_kernel.session.inspection import query

    if args.watch and (not caller.terminal or caller.piped or args.output == "json"):
        raise UsageError(
            "--watch needs a terminal.", "Without it the command looks once, also in a notebook."
        )
    take_replica(args)
    backend, job, status = await running_job(args, caller)
    check_runs(job, status)
    while True:
        report = await query.usage(backend, job, chosen(args.replica, job))
        if args.output == "json":
            records = [{**asdict(one), "replica": str(one.replica)} for one in report.replicas]
            caller.write(json.dumps(records, indent=2) + "\n")
        else:
            clear = _CLEAR if args.watch else ""
            caller.write(f"{clear}{usage_table.text(job, report)}\n")
        if not args.watch:
            return
        await asyncio.sleep(_PAUSE_CLUSTER if job.on_cluster else _PAUSE)
        backend, job, status = await caller.session.find(job.name, Where.of(job))
        if status.over:
            caller.write(f"{job.name} is over: {status.state}.\n")
            return
