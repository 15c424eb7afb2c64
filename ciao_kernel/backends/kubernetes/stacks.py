"""Asks the processes in a job's pods where they stand, by one short program in each pod.

The program comes by standard input, so nothing is needed in the image but Python, and it is the one
of this ciao, whatever ciao made the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from ciao_kernel.backends.kubernetes import job_metadata, status
from ciao_kernel.backends.kubernetes.rights import Right, allowed
from ciao_kernel.errors import BackendError
from ciao_kernel.kube import exec
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job, Manifest, Replica, State
from ciao_kernel.model.queries import Streams
from ciao_kernel.model.stacks import ReplicaStacks
from ciao_kernel.visible_text import short

ENTER = Right("get", "pods", subresource="exec")
_AT_ONCE = 16
_PATIENCE = 0.3
"""Seconds for the answers in Python, and the same again for those in C."""
_SLOWEST = 15.0
START = "exec(eval(input()))"
"""The program is one line: the end of standard input needs a server of Kubernetes 1.30."""


async def stacks(
    client: Client,
    job: Job,
    pods: Mapping[Replica, Manifest],
    replicas: Sequence[Replica],
    python: str,
) -> list[ReplicaStacks]:
    """Return where the processes of some replicas stand.

    Args:
        client: The API server.
        job: The job.
        pods: The pod of each replica that has one.
        replicas: The replicas to ask.
        python: Interpreter in the image, if a pod does not start one itself.

    Raises:
        BackendError: This user may not enter pods.
    """
    (may_enter,) = await allowed(client, job.place, ENTER)
    if not may_enter:
        raise BackendError(
            f"you may not look into the pods of the namespace {job.place}: "
            f"you lack the right to {ENTER}.",
            "Ask an administrator for the Role of deploy/rbac/exec-role.yaml.",
        )
    room = asyncio.Semaphore(_AT_ONCE)

    async def ask(replica: Replica) -> ReplicaStacks:
        pod = pods.get(replica)
        if pod is None:
            return ReplicaStacks(replica, fault="it has no pod")
        now = status.of_pod(pod, replica)
        if now.state is not State.RUNNING:
            return ReplicaStacks(replica, fault=f"it is {now.state}")
        try:
            async with room, asyncio.timeout(_SLOWEST):
                return await _ask(client, job, replica, pod, python)
        except TimeoutError:
            return ReplicaStacks(replica, fault="its node did not answer")
        except BackendError as error:
            return ReplicaStacks(replica, fault=error.message.rstrip("."))

    return list(await asyncio.gather(*map(ask, replicas)))


async def _ask(
    client: Client, job: Job, replica: Replica, pod: Manifest, python: str
) -> ReplicaStacks:
    from ciao_kernel.delivery.inspection import answers, stack_reader

    program = stack_reader.program(f"CIAO_JOB={job.name}", job.workdir, _PATIENCE)
    out, err = bytearray(), bytearray()

    async def typed() -> AsyncIterator[bytes]:
        yield repr(program).encode() + b"\n"

    command = [interpreter(pod, python), "-I", "-S", "-c", START]
    path = f"/api/v1/namespaces/{job.place}/pods/{pod['metadata']['name']}"
    streams = Streams(out.extend, err.extend, typed())
    code = await exec.execute(client, path, job_metadata.container(pod), command, streams)
    if code:
        last = err.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return ReplicaStacks(replica, fault=f"it cannot be asked: {short(last)}")
    found = tuple(map(answers.process, answers.read(bytes(out))))
    return ReplicaStacks(replica, found, "" if found else "no process of the job was found")


def interpreter(pod: Manifest, default: str) -> str:
    """Return the interpreter that a pod starts; it may be another one than the image's first."""
    name = job_metadata.container(pod)
    for one in status.many(pod, "spec", "containers"):
        words = one.get("command")
        if one.get("name") == name and isinstance(words, list) and words:
            first = str(words[0])
            return first if first.rpartition("/")[2].startswith("python") else default
    return default
