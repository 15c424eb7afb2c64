"""Asks the processes of a local job where they stand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ciao_kernel.backends.local import hosts, processes
from ciao_kernel.backends.local.record import RECORD_ERRORS, Folder
from ciao_kernel.errors import NoSuchJob
from ciao_kernel.model import Replica
from ciao_kernel.model.stacks import ReplicaStacks

_PATIENCE = 0.25
"""Seconds for the answers in Python, and the same again for those in C."""


async def stacks(
    folder: Folder, host: hosts.Host, replicas: Sequence[Replica]
) -> list[ReplicaStacks]:
    """Return where the processes of some replicas stand.

    Raises:
        UsageError: The job runs on another machine.
        NoSuchJob: Its folder is gone.
    """
    # Late: nothing else needs them.
    from ciao_kernel.delivery.inspection import answers, stack_reader

    try:
        job, status = folder.read_job(), folder.read_status()
    except RECORD_ERRORS:
        raise NoSuchJob(f"the folder of {folder.path.name} is gone.") from None
    hosts.require(host, folder.path.name, status)
    mark = f"{processes.MARK}={job['id']}"
    found = await asyncio.to_thread(stack_reader.look, mark, job["workdir"], _PATIENCE)
    states = {one["name"]: one["state"] for one in (status or {}).get("replicas", ())}
    result = []
    for replica in replicas:
        own = [answers.process(one) for one in found if one["replica"] == str(replica)]
        fault = "" if own else f"it is {states.get(str(replica), 'Pending')}"
        result.append(ReplicaStacks(replica, tuple(own), fault))
    return result
