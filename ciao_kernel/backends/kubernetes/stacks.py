"""Asks the processes in a job's pods where they stand or stood, by one short program in each pod.

The program comes by standard input, so nothing is needed in the image but Python, and it is the one
of this ciao, whatever ciao made the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from ciao_kernel.backends.kubernetes import job_metadata, status
from ciao_kernel.backends.kubernetes.pod_answer import PodAnswer
from ciao_kernel.backends.kubernetes.rights import Right, allowed
from ciao_kernel.errors import BackendError
from ciao_kernel.kube import exec
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job, Manifest, Replica, State
from ciao_kernel.model.queries import Streams
from ciao_kernel.model.stacks import ReplicaSamples, ReplicaStacks

ENTER = Right("get", "pods", subresource="exec")
_AT_ONCE = 16
_SAMPLED_AT_ONCE = 64
"""More, because they should be sampled at the same time."""
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
    from ciao_kernel.delivery.inspection import answers, stack_reader

    program = stack_reader.program(f"CIAO_JOB={job.name}", job.workdir, _PATIENCE)
    asked = _Asked(client, job, python, program, _SLOWEST)
    return [
        ReplicaStacks(replica, tuple(map(answers.process, answers.read(text))), fault)
        for replica, text, fault in await asked.of(pods, replicas, at_once=_AT_ONCE)
    ]


async def samples(
    client: Client,
    job: Job,
    pods: Mapping[Replica, Manifest],
    replicas: Sequence[Replica],
    python: str,
    seconds: float,
) -> list[ReplicaSamples]:
    """Return where the processes of some replicas stood, over some seconds.

    Args:
        client: The API server.
        job: The job.
        pods: The pod of each replica that has one.
        replicas: The replicas to ask.
        python: Interpreter in the image, if a pod does not start one itself.
        seconds: How long; a program whose connection ends does so too.

    Raises:
        BackendError: This user may not enter pods.
    """
    from ciao_kernel.delivery.inspection import answers, sampler

    program = sampler.program(f"CIAO_JOB={job.name}", job.workdir, seconds)
    asked = _Asked(client, job, python, program, _SLOWEST + seconds)
    return [
        ReplicaSamples(replica, tuple(map(answers.samples, answers.read(text))), fault)
        for replica, text, fault in await asked.of(pods, replicas, at_once=_SAMPLED_AT_ONCE)
    ]


@dataclass(frozen=True, slots=True)
class _Asked:
    """One program that runs in several pods."""

    client: Client
    job: Job
    python: str
    program: str
    slowest: float

    async def of(
        self, pods: Mapping[Replica, Manifest], replicas: Sequence[Replica], *, at_once: int
    ) -> list[tuple[Replica, bytes, str]]:
        """Return what the program printed for each replica, or why it printed nothing."""
        (may_enter,) = await allowed(self.client, self.job.place, ENTER)
        if not may_enter:
            raise BackendError(
                f"you may not look into the pods of the namespace {self.job.place}: "
                f"you lack the right to {ENTER}.",
                "Ask an administrator for the Role of deploy/rbac/exec-role.yaml.",
            )
        room = asyncio.Semaphore(at_once)

        async def ask(replica: Replica) -> tuple[Replica, bytes, str]:
            pod = pods.get(replica)
            if pod is None:
                return replica, b"", "it has no pod"
            now = status.of_pod(pod, replica)
            if now.state is not State.RUNNING:
                return replica, b"", f"it is {now.state}"
            try:
                async with room, asyncio.timeout(self.slowest):
                    return replica, *await self._run(pod)
            except TimeoutError:
                return replica, b"", "its node did not answer"
            except BackendError as error:
                return replica, b"", error.message.rstrip(".")

        return list(await asyncio.gather(*map(ask, replicas)))

    async def _run(self, pod: Manifest) -> tuple[bytes, str]:
        from ciao_kernel.delivery.inspection import answers

        answer = PodAnswer()

        async def typed() -> AsyncIterator[bytes]:
            yield repr(self.program).encode() + b"\n"
            await asyncio.Event().wait()  # the end of its input ends a program that samples

        command = [interpreter(pod, self.python), "-I", "-S", "-c", START]
        path = f"/api/v1/namespaces/{self.job.place}/pods/{pod['metadata']['name']}"
        streams = Streams(answer.out, answer.err, typed())
        container = job_metadata.container(pod)
        code = await exec.execute(self.client, path, container, command, streams)
        if code:
            return b"", f"it cannot be asked: {answer.last_error()}"
        text = answer.text
        return text, "" if answers.read(text) else "no process of the job was found"


def interpreter(pod: Manifest, default: str) -> str:
    """Return the interpreter that a pod starts; it may be another one than the image's first."""
    name = job_metadata.container(pod)
    for one in status.many(pod, "spec", "containers"):
        words = one.get("command")
        if one.get("name") == name and isinstance(words, list) and words:
            first = str(words[0])
            return first if first.rpartition("/")[2].startswith("python") else default
    return default
