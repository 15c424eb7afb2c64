"""Asks the processes in a job's pods where they stand or stood, by a program in each pod."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ciao_kernel.backends.kubernetes.existing import pod_program
from ciao_kernel.backends.kubernetes.existing.pod_answer import PodAnswer
from ciao_kernel.backends.kubernetes.rights import allowed
from ciao_kernel.errors import BackendError
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job, Manifest, Replica
from ciao_kernel.model.stacks import ReplicaSamples, ReplicaStacks

_AT_ONCE = 16
_SAMPLED_AT_ONCE = 64
"""More, because they should be sampled at the same time."""
_PATIENCE = 0.3
"""Seconds for the answers in Python, and the same again for those in C."""
_SLOWEST = 15.0


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
        (may_enter,) = await allowed(self.client, self.job.place, pod_program.ENTER)
        if not may_enter:
            raise BackendError(
                f"you may not look into the pods of the namespace {self.job.place}: "
                f"you lack the right to {pod_program.ENTER}.",
                "Ask an administrator for the Role of deploy/rbac/exec-role.yaml.",
            )
        room = asyncio.Semaphore(at_once)

        async def ask(replica: Replica) -> tuple[Replica, bytes, str]:
            if obstacle := pod_program.why_not(pods.get(replica), replica):
                return replica, b"", obstacle
            try:
                async with room, asyncio.timeout(self.slowest):
                    return replica, *await self._run(pods[replica])
            except TimeoutError:
                return replica, b"", "its node did not answer"
            except BackendError as error:
                return replica, b"", error.message.rstrip(".")

        return list(await asyncio.gather(*map(ask, replicas)))

    async def _run(self, pod: Manifest) -> tuple[bytes, str]:
        from ciao_kernel.delivery.inspection import answers

        answer = PodAnswer()
        code = await pod_program.run(
            self.client,
            self.job,
            pod,
            self.python,
            self.program,
            answer.out,
            answer.err,
            pod_program.never(),  # a program that samples would end
        )
        if code:
            return b"", f"it cannot be asked: {answer.last_error()}"
        text = answer.text
        return text, "" if answers.read(text) else "no process of the job was found"
