"""`ciao debug` is left before its replica stands."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from typing import Any

import pytest

from ciao_kernel.commands import debug
from ciao_kernel.errors import BackendError, CiaoError, NoSuchJob
from ciao_kernel.model import Job, JobSpec, Replica, State, Status
from ciao_kernel.model.queries import Streams

ZERO = Replica("worker", 0)
JOB = Job("mine", "fake", "python", (ZERO,), 1.0)
TOLD = "worker-0 nevertheless stops at its next line of the program, and waits. `ciao debug mine/"


class Backend:
    """A replica that comes to no next line, until ``fault`` or a prompt is there."""

    name = "fake"

    def __init__(self) -> None:
        self.looks = 0
        self.fault: CiaoError | None = None
        self.prompts = False

    async def why_not_debugged(self, spec: JobSpec) -> str:
        return ""

    async def halt(self, job: Job, replica: Replica) -> str:
        return "stops"

    async def debug(self, job: Job, replica: Replica, pid: int, streams: Streams) -> bool:
        self.looks += 1
        if self.looks > 1 and self.fault:
            raise self.fault
        if self.looks > 1 and self.prompts:
            streams.out(json.dumps({"out": "", "prompt": "(Pdb) "}).encode() + b"\n")
            await asyncio.Event().wait()
        return True


class Caller:
    """A cell, whose person answers nothing."""

    ask = None

    def __init__(self, backend: Backend) -> None:
        self.backend, self.session, self.console, self.text = backend, self, self, ""
        self.asked = asyncio.Event()

    def write(self, text: str) -> None:
        self.text += text

    async def find(self, *_: Any) -> tuple[Backend, Job, Status]:
        return self.backend, JOB, Status(State.RUNNING, ())

    async def prompt(self, prompt: str) -> str:
        self.asked.set()
        await asyncio.Event().wait()
        return ""


@pytest.mark.parametrize(
    ("fault", "prompts", "told"),
    [
        (None, False, True),  # Ctrl-C
        (BackendError("the connection is cut."), False, True),
        (NoSuchJob("the job is gone."), False, False),
        (None, True, False),
    ],
)
def test_who_goes_before_the_stop_is_told_of_it(
    fault: CiaoError | None, prompts: bool, told: bool
) -> None:
    async def main() -> str:
        backend = Backend()
        backend.fault, backend.prompts = fault, prompts
        caller: Any = Caller(backend)
        console: Any = argparse.Namespace(write=caller.write, ask=caller.prompt)
        caller.console = console
        args = argparse.Namespace(name="mine/worker-0", context=None, namespace=None, backend=None)
        work = asyncio.ensure_future(debug.run(args, caller))
        if fault is None:
            while not (caller.asked.is_set() if prompts else backend.looks > 1):
                await asyncio.sleep(0.001)
            work.cancel()
        with contextlib.suppress(CiaoError, asyncio.CancelledError):
            await work
        return str(caller.text)

    text = asyncio.run(main())
    assert (TOLD in text) is told, text
    assert ("worker-0 waits. `ciao debug mine/worker-0` opens its prompt again" in text) is prompts
