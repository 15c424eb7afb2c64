"""``%ciao warm``: the replicas that this kernel keeps for the next run."""

from __future__ import annotations

import argparse
import json
import time

from ciao_kernel.commands import Caller
from ciao_kernel.commands.shared_arguments import add_output
from ciao_kernel.display.columns import columns
from ciao_kernel.errors import UsageError
from ciao_kernel.model.times import age


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add ``--output``."""
    add_output(verb)


async def run(args: argparse.Namespace, caller: Caller) -> None:
    """Write one line for each job whose replicas wait.

    Raises:
        UsageError: The command runs outside of a notebook's kernel.
    """
    pool = caller.session.warm
    if pool is None:
        raise UsageError(
            "only a notebook's kernel keeps replicas.",
            "In a notebook, %ciao warm lists them; `ciao jobs` lists all jobs.",
        )
    parked = pool.parked
    if parked is None:
        caller.write("[]\n" if args.output == "json" else "no replicas are kept\n")
        return
    spec = parked.key.spec
    gpus = sum(
        gpu.count * group.count for group in spec.groups if (gpu := spec.asks(group.role).gpu)
    )
    left = max(0.0, parked.idle_end - time.time())
    record = {
        "job": parked.job.reference,
        "replicas": len(parked.job.replicas),
        "gpus": gpus,
        "memoryMB": parked.memory,
        "runs": parked.runs,
        "age": age(time.time() - parked.job.created),
        "state": "running" if parked.run else f"idle, ends in {age(left)}",
    }
    if args.output == "json":
        caller.write(json.dumps([record], indent=2) + "\n")
        return
    names = ("job", "replicas", "GPUs", "imported MB", "runs", "age", "state")
    caller.write(columns([names, map(str, record.values())]) + "\n")
    caller.write(f"`%ciao delete {parked.job.reference}` ends them.\n")
