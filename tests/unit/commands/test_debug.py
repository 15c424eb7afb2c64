"""`ciao debug` is left before its replica stands."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest

from ciao_kernel.commands import completion, debug
from ciao_kernel.errors import BackendError, CiaoError, NoSuchJob, UsageError
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
        self.asked: list[str] = []
        self.fault: CiaoError | None = None
        self.prompts = False
        self.answer = "stops"

    async def why_not_debugged(self, spec: JobSpec) -> str:
        return ""

    async def halt(self, job: Job, replica: Replica, rank: str = "") -> str:
        self.asked.append(rank)
        return self.answer

    async def debug(
        self, job: Job, replica: Replica, pid: int, streams: Streams, rank: str = ""
    ) -> bool:
        self.looks += 1
        self.asked.append(rank)
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


@pytest.mark.parametrize(
    ("name", "asked"), [("mine/worker-0.1", "1"), ("mine/worker-0", ""), ("mine", "")]
)
def test_a_process_is_asked_by_its_number(name: str, asked: str) -> None:
    backend = Backend()
    backend.fault = NoSuchJob("the job is gone.")
    caller: Any = Caller(backend)
    caller.console = caller
    args = argparse.Namespace(name=name, context=None, namespace=None, backend=None)

    with pytest.raises(NoSuchJob):
        asyncio.run(debug.run(args, caller))
    assert backend.asked == [asked] * 3  # its prompt, its stop, its prompt


def test_a_replica_without_a_debugger_is_told_what_it_needs() -> None:
    backend = Backend()
    backend.answer = "none"
    caller: Any = Caller(backend)
    caller.console = caller
    args = argparse.Namespace(name="mine/worker-0", context=None, namespace=None, backend=None)
    with pytest.raises(UsageError, match="worker-0 has no debugger") as caught:
        asyncio.run(debug.run(args, caller))
    assert "Python or the C library must be able to make a file in memory" in caught.value.hint


@pytest.mark.parametrize("number", ["", "x", "-1", "²", "1.1"])
def test_what_is_no_number_of_a_process_is_refused(number: str) -> None:
    caller: Any = Caller(Backend())
    caller.console = caller
    args = argparse.Namespace(
        name=f"mine/worker-0.{number}", context=None, namespace=None, backend=None
    )

    with pytest.raises(UsageError, match="is no number of a process"):
        asyncio.run(debug.run(args, caller))
    assert caller.backend.asked == []


def test_tab_offers_the_processes_of_torchrun() -> None:
    job = replace(JOB, header="%worker=1\n%nprocPerNode=2")
    args = argparse.Namespace(known_jobs=lambda: [job, replace(JOB, name="other")])

    assert completion.processes("m", args) == ["mine"]
    assert completion.processes("mine/w", args) == ["mine/worker-0"]
    assert completion.processes("mine/worker-0", args) == [
        "mine/worker-0",
        "mine/worker-0.0",
        "mine/worker-0.1",
    ]
    assert completion.processes("mine/worker-0.1", args) == ["mine/worker-0.1"]
    assert completion.processes("other/worker-0", args) == ["other/worker-0"]
    alone = replace(JOB, header="%worker=1\n%nprocPerNode=1")
    args = argparse.Namespace(known_jobs=lambda: [alone])
    assert completion.processes("mine/worker-0", args) == ["mine/worker-0"]


@pytest.mark.parametrize("count", ["99999999999", "²", "-1", "x", ""])
def test_tab_believes_no_header_of_somebody_else(count: str) -> None:
    job = replace(JOB, header=f"%worker=1\n%nprocPerNode={count}")
    args = argparse.Namespace(known_jobs=lambda: [job])
    assert completion.processes("mine/worker-0", args) == ["mine/worker-0"]
