"""Asks the processes in a job's pods where they stand or stood, by a program in each pod."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from ciao_kernel.backends.kubernetes.existing.pod_answer import PodAnswer
from ciao_kernel.backends.kubernetes.existing.pod_program import ENTER, EnteredPods, never
from ciao_kernel.errors import BackendError
from ciao_kernel.model import Replica
from ciao_kernel.model.stacks import ReplicaSamples, ReplicaStacks

_AT_ONCE = 16
_SAMPLED_AT_ONCE = 64
"""More, because they should be sampled at the same time."""
_PATIENCE = 0.3
"""Seconds for the answers in Python, and the same again for those in C."""
_SLOWEST = 15.0


async def stacks(pods: EnteredPods, replicas: Sequence[Replica]) -> list[ReplicaStacks]:
    """Return where the processes of some replicas stand.

    Args:
        pods: The pods of the job.
        replicas: The replicas to ask.

    Raises:
        BackendError: This user may not enter pods.
    """
    from ciao_kernel.delivery.inspection import answers, program_texts

    job = pods.job
    program = program_texts.stacks(f"CIAO_JOB={job.name}", job.workdir, _PATIENCE)
    asked = _Asked(pods, program, _SLOWEST)
    return [
        ReplicaStacks(replica, tuple(map(answers.process, answers.read(text))), fault)
        for replica, text, fault in await asked.of(replicas, at_once=_AT_ONCE)
    ]


async def samples(
    pods: EnteredPods, replicas: Sequence[Replica], seconds: float
) -> list[ReplicaSamples]:
    """Return where the processes of some replicas stood, over some seconds.

    Args:
        pods: The pods of the job.
        replicas: The replicas to ask.
        seconds: How long; a program whose connection ends does so too.

    Raises:
        BackendError: This user may not enter pods.
    """
    from ciao_kernel.delivery.inspection import answers, program_texts

    job = pods.job
    program = program_texts.samples(f"CIAO_JOB={job.name}", job.workdir, seconds)
    asked = _Asked(pods, program, _SLOWEST + seconds)
    return [
        ReplicaSamples(replica, tuple(map(answers.samples, answers.read(text))), fault)
        for replica, text, fault in await asked.of(replicas, at_once=_SAMPLED_AT_ONCE)
    ]


@dataclass(frozen=True, slots=True)
class _Asked:
    """One program that runs in several pods."""

    pods: EnteredPods
    program: str
    slowest: float

    async def of(
        self, replicas: Sequence[Replica], *, at_once: int
    ) -> list[tuple[Replica, bytes, str]]:
        """Return what the program printed for each replica, or why it printed nothing."""
        if not await self.pods.may_enter():
            raise BackendError(
                f"you may not look into the pods of the namespace {self.pods.job.place}: "
                f"you lack the right to {ENTER}.",
                "Ask an administrator for the Role of deploy/rbac/exec-role.yaml.",
            )
        room = asyncio.Semaphore(at_once)

        async def ask(replica: Replica) -> tuple[Replica, bytes, str]:
            if obstacle := self.pods.why_not(replica):
                return replica, b"", obstacle
            try:
                async with room, asyncio.timeout(self.slowest):
                    return replica, *await self._run(replica)
            except TimeoutError:
                return replica, b"", "its node did not answer"
            except BackendError as error:
                return replica, b"", error.message.rstrip(".")

        return list(await asyncio.gather(*map(ask, replicas)))

    async def _run(self, replica: Replica) -> tuple[bytes, str]:
        from ciao_kernel.delivery.inspection import answers

        answer = PodAnswer()
        # Without an end of its input: a program that samples would end then.
        code = await self.pods.run(replica, self.program, answer.out, answer.err, never())
        if code:
            return b"", f"it cannot be asked: {answer.last_error()}"
        text = answer.text
        return text, "" if answers.read(text) else "no process of the job was found"
