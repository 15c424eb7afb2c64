"""Asks the processes of a local job where they stand or stood."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from ciao_kernel.backends.local import hosts
from ciao_kernel.backends.local.inspection.running import RunningJob
from ciao_kernel.backends.local.record import Folder
from ciao_kernel.background import start_background
from ciao_kernel.errors import BackendError
from ciao_kernel.model import Replica
from ciao_kernel.model.stacks import ReplicaSamples, ReplicaStacks
from ciao_kernel.visible_text import short, visible

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

    job = RunningJob(folder, host)
    found = await asyncio.to_thread(stack_reader.look, job.mark, job.workdir, _PATIENCE)
    result = []
    for replica in replicas:
        own = [answers.process(one) for one in found if one["replica"] == str(replica)]
        result.append(ReplicaStacks(replica, tuple(own), "" if own else job.fault(replica)))
    return result


async def samples(
    folder: Folder, host: hosts.Host, replicas: Sequence[Replica], seconds: float
) -> list[ReplicaSamples]:
    """Return where the processes of some replicas stood, over some seconds.

    A process of its own samples them: this one may have other work.

    Raises:
        UsageError: The job runs on another machine.
        NoSuchJob: Its folder is gone.
        BackendError: The process failed.
    """
    from ciao_kernel.delivery.inspection import answers, program_texts, sampler

    job = RunningJob(folder, host)
    program = program_texts.samples(job.mark, job.workdir, seconds)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", sampler.START),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    try:
        process.stdin.write(repr(program).encode() + b"\n")
        text, errors = await asyncio.gather(process.stdout.read(), process.stderr.read())
    finally:
        process.stdin.close()  # ends a process that still samples
        start_background(process.wait())
    found = answers.read(text)
    if not found and errors:
        last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise BackendError(f"the replicas cannot be sampled: {short(visible(last))}")
    result = []
    for replica in replicas:
        own = [answers.samples(one) for one in found if one.get("replica") == str(replica)]
        result.append(ReplicaSamples(replica, tuple(own), "" if own else job.fault(replica)))
    return result
