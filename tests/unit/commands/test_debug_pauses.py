"""How often ``ciao debug`` asks a replica that is in a long call."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ciao_kernel import commands
from ciao_kernel.commands import debug
from ciao_kernel.model import Job, JobSpec, Replica, State, Status
from ciao_kernel.model.queries import Streams, Where

WORKER = Replica("worker", 0)
JOB = Job("mine", "kubernetes", "pytorch", (WORKER,), 0.0, "team")


class Busy:
    """A session, its backend and a console: the replica runs no line of its program."""

    name = "kubernetes"

    def __init__(self) -> None:
        self.state = State.RUNNING
        self.looks = 0

    async def find(self, name: str, where: Where) -> tuple[Busy, Job, Status]:
        return self, JOB, Status(self.state, (), 0.0, settled=self.state is State.SUCCEEDED)

    async def why_not_debugged(self, spec: JobSpec) -> str:
        return ""

    async def debug(
        self, job: Job, replica: Replica, pid: int, streams: Streams, rank: str = ""
    ) -> bool:
        self.looks += 1
        return True

    async def halt(self, job: Job, replica: Replica, rank: str = "") -> str:
        return "stops"

    def write(self, text: str) -> None:
        """Nobody reads it."""

    async def ask(self, prompt: str) -> str:
        raise AssertionError(prompt)


def test_the_pause_between_two_looks_grows_up_to_five_seconds() -> None:
    busy, pauses, written = Busy(), list[float](), list[str]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        assert len(pauses) < 9
        if len(pauses) == 7:
            busy.state = State.SUCCEEDED

    args = commands.parse(["debug", "mine"], written.append)
    caller = commands.Caller(busy, None, written.append, Path(), console=busy)  # type: ignore[arg-type]
    asyncio.run(debug.run(args, caller, sleep))
    assert pauses == [0.3, 0.6, 1.2, 2.4, 4.8, 5.0, 5.0]
    assert busy.looks == 8
    assert written[-1] == "worker-0 has ended.\n"
