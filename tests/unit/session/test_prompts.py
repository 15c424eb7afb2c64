"""Prompts of replicas: one at a time, closed and opened again, gone with their process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from ciao_kernel.delivery.inspection.breakpoints import Breakpoint
from ciao_kernel.errors import BackendError
from ciao_kernel.model import (
    Event,
    Job,
    JobSpec,
    Notice,
    Replica,
    ReplicaStatus,
    State,
    Status,
)
from ciao_kernel.model.queries import Streams
from ciao_kernel.model.stacks import Answer, ProcessStacks, ReplicaStacks
from ciao_kernel.plugins import Elsewhere, PromptClosed
from ciao_kernel.session.inspection.prompts import Prompts

ZERO, ONE = REPLICAS = (Replica("worker", 0), Replica("worker", 1))
JOB = Job("mine", "fake", "python", REPLICAS, 1.0)


class Backend:
    """Processes that wait at a prompt; each says what the test lets it say."""

    def __init__(self, *waiting: Replica) -> None:
        self.waiting = set(waiting)
        self.heard: list[tuple[Replica, str]] = []
        self.connected: list[tuple[Replica, int]] = []
        self.fault: BackendError | None = None
        self.cut: BackendError | None = None
        self.dies = asyncio.Event()
        self.elsewhere = False

    async def why_not_debugged(self, spec: JobSpec) -> str:
        return ""

    async def halt(self, job: Job, replica: Replica, rank: str = "") -> str:
        return "stops"

    async def debug(
        self, job: Job, replica: Replica, pid: int, streams: Streams, rank: str = ""
    ) -> bool:
        self.connected.append((replica, pid))
        if self.fault:
            raise self.fault
        if self.elsewhere:
            return False
        if replica not in self.waiting:
            return True
        assert streams.input
        dying = asyncio.ensure_future(self.dies.wait())

        def say(**message: str) -> None:
            streams.out(json.dumps(message).encode() + b"\n")

        say(out="> here\n", prompt="(Pdb) ")
        talking = asyncio.ensure_future(self._answer(replica, streams, say))
        await asyncio.wait({talking, dying}, return_when=asyncio.FIRST_COMPLETED)
        talking.cancel()
        dying.cancel()
        if self.cut:
            raise self.cut
        return True

    async def _answer(self, replica: Replica, streams: Streams, say: Callable[..., None]) -> None:
        assert streams.input
        async for data in streams.input:
            line = json.loads(data)["line"]
            self.heard.append((replica, line))
            if line == "n\n":
                continue  # a line that waits for another process
            if line in ("c\n", "q\n"):
                self.waiting.discard(replica)
                say(out="", end="goes on")
                return
            say(out=f"did {line}", prompt="(Pdb) ")


class Console:
    """A person who types what the test says."""

    def __init__(self) -> None:
        self.text = ""
        self.prompts: list[str] = []
        self.typed: asyncio.Queue[str | None] = asyncio.Queue()

    def write(self, text: str) -> None:
        self.text += text

    async def ask(self, prompt: str) -> str:
        self.prompts.append(prompt)
        line = await self.typed.get()
        if line is None:
            raise PromptClosed
        return line


class Cell:
    def __init__(
        self,
        *waiting: Replica,
        console: Any = None,
        deadline: float | None = None,
        job: Job = JOB,
        gpus: int = 0,
    ):
        self.backend, self.console = Backend(*waiting), Console()
        self.events: list[Event] = []
        self.sleeps: list[float] = []
        self.wakes = asyncio.Queue[None]()
        self.prompts = Prompts(
            job,
            self.backend,
            console or self.console,
            self.events.append,
            deadline,
            self._sleep,
            {"worker": gpus},
        )

    async def _sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        await self.wakes.get()

    @property
    def notices(self) -> str:
        return "\n".join(one.text for one in self.events if isinstance(one, Notice))


def in_loop(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(30):
            await test()

    asyncio.run(main())


async def until(true: Callable[[], object]) -> None:
    while not true():
        await asyncio.sleep(0.001)


def at(
    line: int, *, pid: int = 31, again: bool = False, asked: bool = False, over: bool = False
) -> Breakpoint:
    return Breakpoint(pid, f"line {line}", again, asked, over)


def failed(line: int, *, pid: int = 31, again: bool = False) -> Breakpoint:
    return Breakpoint(pid, f"line {line}", again, failed="ValueError: no.")


def test_answers_go_to_the_process_until_it_goes_on() -> None:
    async def test() -> None:
        cell = Cell(ZERO, deadline=600.0)
        async with cell.prompts.opened():
            cell.prompts.note(ZERO, at(7))
            await until(lambda: cell.console.prompts)
            assert cell.prompts.active
            cell.console.typed.put_nowait("p x")
            await until(lambda: len(cell.console.prompts) == 2)
            cell.console.typed.put_nowait("c")
            await until(lambda: not cell.prompts.active)
        assert cell.backend.connected == [(ZERO, 31)]
        assert cell.backend.heard == [(ZERO, "p x\n"), (ZERO, "c\n")]
        assert cell.console.text == "> here\ndid p x\n"
        assert cell.console.prompts == ["worker-0 (Pdb) "] * 2
        assert "worker-0 stands at line 7." in cell.notices
        assert "30 minutes with gloo" in cell.notices
        assert "%deadline=10m goes on" in cell.notices
        assert "worker-0 goes on." in cell.notices

    in_loop(test)


def test_a_later_prompt_waits_and_is_named() -> None:
    async def test() -> None:
        cell = Cell(ZERO, ONE)
        async with cell.prompts.opened():
            cell.prompts.note(ZERO, at(7))
            await until(lambda: cell.console.prompts)
            cell.prompts.note(ONE, at(9))
            await until(lambda: "worker-1 stands at line 9 too" in cell.notices)
            assert len(cell.console.prompts) == 1
            cell.console.typed.put_nowait("c")
            await until(lambda: len(cell.console.prompts) == 2)
            assert cell.console.prompts[1] == "worker-1 (Pdb) "

    in_loop(test)


def test_a_closed_prompt_is_not_opened_again_by_itself() -> None:
    async def test() -> None:
        cell = Cell(ZERO)
        async with cell.prompts.opened():
            cell.prompts.note(ZERO, at(7))
            await until(lambda: cell.console.prompts)
            cell.console.typed.put_nowait(None)
            await until(lambda: "the prompt is closed, and worker-0 waits" in cell.notices)
            cell.prompts.note(ZERO, at(7, again=True))
            assert cell.prompts.active  # no silence is noticed meanwhile
            cell.prompts.note(ZERO, at(8))  # somebody else let it go on
            await until(lambda: len(cell.console.prompts) == 2)
        assert cell.backend.connected == [(ZERO, 31), (ZERO, 31)]

    in_loop(test)


def lives(
    state: State = State.RUNNING, *, restarts: int = 0, tries: int = 1, replica: Replica = ZERO
) -> Status:
    one = ReplicaStatus(replica, state, restarts=restarts)
    return Status(State.RUNNING, (one,), tries=tries)


@pytest.mark.parametrize(
    ("then", "active"),
    [
        (lives(), True),
        (lives(replica=ONE, state=State.FAILED), True),
        (lives(State.FAILED), False),
        (lives(State.PENDING), False),
        (lives(restarts=1), False),  # no status between the two starts
        (lives(tries=2), False),
    ],
)
def test_a_process_that_is_killed_behind_a_closed_prompt_is_forgotten(
    then: Status, active: bool
) -> None:
    async def test() -> None:
        cell = Cell(ZERO)
        cell.prompts.note_status(lives())
        async with cell.prompts.opened():
            cell.prompts.note(ZERO, at(7))
            await until(lambda: cell.console.prompts)
            cell.prompts.note_status(lives(State.FAILED))
            assert cell.prompts.active  # an open prompt is known by its connection
            cell.console.typed.put_nowait(None)
            await until(lambda: "the prompt is closed" in cell.notices)
            cell.prompts.note_status(lives())
            assert cell.prompts.active
            cell.prompts.note_status(then)
            assert cell.prompts.active is active
            cell.prompts.note(ZERO, at(7, again=True))
            assert cell.prompts.active

    in_loop(test)


def stands(replica: Replica, *pids: int) -> ReplicaStacks:
    return ReplicaStacks(replica, tuple(ProcessStacks(one, 1, Answer.PYTHON) for one in pids))


@pytest.mark.parametrize(
    ("found", "active"),
    [
        ([stands(ZERO, 30, 31)], True),
        ([stands(ONE, 30)], True),
        ([stands(ZERO)], True),  # it could not be asked
        ([stands(ZERO, *range(100, 200))], True),  # more than are told
        ([stands(ZERO, 30), stands(ONE, 31)], False),
        ([stands(ZERO, 30), stands(ONE, *range(100, 200))], False),
    ],
)
def test_a_child_that_is_killed_behind_a_closed_prompt_is_forgotten(
    found: list[ReplicaStacks], active: bool
) -> None:
    """As of torchrun, which starts another one in the same replica."""
    asked = 0

    async def ask() -> list[ReplicaStacks]:
        nonlocal asked
        asked += 1
        return found

    async def test() -> None:
        cell = Cell(ZERO)
        async with cell.prompts.opened():
            cell.prompts.note(ZERO, at(7))
            await until(lambda: cell.console.prompts)
            await cell.prompts.forget_killed(ask)
            assert cell.prompts.active  # an open prompt is known by its connection
            assert not asked
            cell.console.typed.put_nowait(None)
            await until(lambda: "the prompt is closed" in cell.notices)
            await cell.prompts.forget_killed(ask)
            assert cell.prompts.active is active
            assert asked == 1

    in_loop(test)


def test_a_process_that_is_killed_before_its_prompt_opens_is_forgotten() -> None:
    async def test() -> None:
        cell = Cell()
        cell.prompts.note_status(lives())
        async with cell.prompts.opened():
            cell.prompts.note(ZERO, at(7))
            await until(lambda: cell.sleeps)
            cell.prompts.note_status(lives(restarts=1))
            for _ in range(9):
                cell.wakes.put_nowait(None)
            await until(lambda: not cell.prompts.active)
        assert not cell.notices

    in_loop(test)


def test_a_cut_connection_is_opened_again() -> None:
    async def test() -> None:
        cell = Cell(ZERO)
        async with cell.prompts.opened():
            cell.prompts.note(ZERO, at(7))
            await until(lambda: cell.console.prompts)
            cell.backend.dies.set()
            await until(lambda: "worker-0 has ended" in cell.notices)
            cell.backend.dies.clear()
            cell.prompts.note(ZERO, at(7, again=True))
            await until(lambda: len(cell.console.prompts) == 2)

    in_loop(test)


def test_the_end_of_a_pod_at_its_prompt_is_no_fault() -> None:
    async def test() -> None:
        cell = Cell(ZERO)
        cell.backend.cut = BackendError("the connection ended before the command did")
        async with cell.prompts.opened():
            cell.prompts.note(ZERO, at(7))
            await until(lambda: cell.console.prompts)
            cell.backend.dies.set()
            await until(lambda: "worker-0 has ended, or its connection is cut." in cell.notices)
        assert "cannot be opened" not in cell.notices

    in_loop(test)


def test_old_markers_open_nothing() -> None:
    async def test() -> None:
        cell = Cell()
        async with cell.prompts.opened():
            cell.prompts.note(ZERO, at(7))
            cell.prompts.note(ZERO, at(7, over=True))
            cell.prompts.note(ONE, at(7))
            await until(lambda: cell.sleeps)
            cell.prompts.note(ONE, at(7, over=True))
            assert not cell.prompts.active
            cell.wakes.put_nowait(None)
            await until(lambda: not cell.prompts._tasks)
        assert cell.backend.connected == [(ONE, 31)]
        assert cell.notices == ""
        assert cell.console.prompts == []

    in_loop(test)


def test_a_process_that_is_not_there_yet_is_tried_again() -> None:
    async def test() -> None:
        cell = Cell()
        async with cell.prompts.opened():
            cell.prompts.note(ZERO, at(7))
            await until(lambda: cell.sleeps)
            cell.backend.waiting.add(ZERO)
            cell.wakes.put_nowait(None)
            await until(lambda: cell.console.prompts)
        assert "cannot" not in cell.notices

    in_loop(test)


@pytest.mark.parametrize(
    ("fault", "why"),
    [(None, ""), (BackendError("the pod is gone.", "Look."), ": the pod is gone. Look")],
)
def test_a_process_that_cannot_be_reached_is_told(fault: BackendError | None, why: str) -> None:
    async def test() -> None:
        cell = Cell()
        cell.backend.fault = fault
        for _ in range(9):
            cell.wakes.put_nowait(None)
        async with cell.prompts.opened():
            cell.prompts.note(ZERO, at(7))
            await until(lambda: cell.notices)
        assert cell.notices == (
            f"the prompt of worker-0 cannot be opened{why}. worker-0 stands at line 7, and waits. "
            "`ciao debug mine/worker-0` in another terminal opens its prompt."
        )
        assert len(cell.backend.connected) == len(cell.sleeps) + 1 == 5

    in_loop(test)


def test_who_asked_for_the_stop_has_the_prompt() -> None:
    async def test() -> None:
        cell = Cell(ZERO)
        cell.backend.elsewhere = True
        async with cell.prompts.opened():
            cell.prompts.note(ZERO, at(7, asked=True))
            await until(lambda: cell.sleeps)
            assert cell.backend.connected == []
            cell.wakes.put_nowait(None)
            await until(lambda: not cell.prompts._tasks)
            cell.prompts.note(ZERO, at(7, asked=True, again=True))
            assert not cell.prompts._tasks
        assert cell.notices == ""

    in_loop(test)


def test_a_stop_whose_asker_is_gone_has_its_prompt_here() -> None:
    async def test() -> None:
        cell = Cell(ZERO)
        async with cell.prompts.opened():
            cell.prompts.note(ZERO, at(7, asked=True))
            await until(lambda: cell.sleeps)
            cell.wakes.put_nowait(None)
            await until(lambda: cell.console.prompts)
        assert "worker-0 stands at line 7." in cell.notices

    in_loop(test)


def test_each_process_of_a_replica_has_its_prompt() -> None:
    async def test() -> None:
        cell = Cell(ZERO)
        async with cell.prompts.opened():
            cell.prompts.note(ZERO, at(7))
            cell.prompts.note(ZERO, at(7, pid=32))
            await until(lambda: cell.console.prompts)
            cell.console.typed.put_nowait("n")  # it waits for the other one
            await until(lambda: len(cell.console.prompts) == 2)
            cell.console.typed.put_nowait("c")
            await until(lambda: "worker-0 goes on." in cell.notices)
        assert sorted(cell.backend.connected) == [(ZERO, 31), (ZERO, 32)]

    in_loop(test)


def test_the_prompts_of_a_replica_have_a_limit() -> None:
    async def test() -> None:
        cell = Cell(ZERO)
        async with cell.prompts.opened():
            for pid in range(1, 500):
                cell.prompts.note(ZERO, at(7, pid=pid))
            assert len(cell.prompts._tasks) == 64

    in_loop(test)


def test_closing_a_prompt_closes_those_that_wait_for_it() -> None:
    async def test() -> None:
        cell = Cell(ZERO, ONE)
        async with cell.prompts.opened():
            cell.prompts.note(ZERO, at(7))
            await until(lambda: cell.console.prompts)
            cell.prompts.note(ONE, at(9))
            await until(lambda: "worker-1 stands at line 9 too" in cell.notices)
            cell.console.typed.put_nowait(None)
            await until(lambda: not cell.prompts._tasks)
            cell.prompts.note(ZERO, at(7, again=True))
            cell.prompts.note(ONE, at(9, again=True))
            assert not cell.prompts._tasks
        assert len(cell.console.prompts) == 1
        assert "closed, and 2 processes wait, of worker-0, worker-1. `ciao debug" in cell.notices

    in_loop(test)


def test_a_closed_prompt_that_goes_on_elsewhere_is_over() -> None:
    async def test() -> None:
        cell = Cell(ZERO)
        async with cell.prompts.opened():
            cell.prompts.note(ZERO, at(7))
            await until(lambda: cell.console.prompts)
            cell.console.typed.put_nowait(None)
            await until(lambda: not cell.prompts._tasks)
            assert cell.prompts.active
            cell.prompts.note(ZERO, at(7, over=True))
            assert not cell.prompts.active

    in_loop(test)


def test_a_process_that_writes_without_end_is_cut() -> None:
    async def test() -> None:
        cell, ticks, seen = Cell(ZERO), 0, list[int]()
        cell.console.write = lambda text: (texts.append(text), seen.append(ticks))
        texts: list[str] = []

        async def debug(
            job: Job, replica: Replica, pid: int, streams: Streams, rank: str = ""
        ) -> bool:
            for _ in range(1000):
                for _ in range(10):
                    streams.out(json.dumps({"out": "x" * 10_000}).encode() + b"\n")
                await asyncio.sleep(0)
            return True

        cell.backend.debug = debug

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.ensure_future(tick())
        async with cell.prompts.opened():
            cell.prompts.note(ZERO, at(7))
            await until(lambda: texts and texts[-1].endswith("the rest is not shown.\n"))
            await until(lambda: not cell.prompts._talks)
        ticking.cancel()
        assert 200_000 <= len("".join(texts)) < 200_100
        assert len(set(seen)) == len(seen)  # the loop had its turn between two of them

    in_loop(test)


def test_a_terminal_with_a_table_names_the_command() -> None:
    async def test() -> None:
        cell = Cell(ZERO, console=Elsewhere())
        async with cell.prompts.opened():
            cell.prompts.note(ZERO, at(7))
            cell.prompts.note(ZERO, at(7, again=True))
        assert cell.notices.count("`ciao debug mine/worker-0` in another terminal") == 1
        assert cell.backend.connected == []

    in_loop(test)


@pytest.mark.parametrize("text", ["\x1b[2J", "\r", "\u202e"])
def test_what_a_process_says_is_no_command_of_a_terminal(text: str) -> None:
    async def test() -> None:
        cell = Cell(ZERO)
        async with cell.prompts.opened():
            cell.prompts.note(ZERO, Breakpoint(31, f"line {text}"))
            await until(lambda: cell.console.prompts)
            cell.console.typed.put_nowait(text)
            await until(lambda: len(cell.console.prompts) == 2)
        assert text not in cell.console.text + cell.notices

    in_loop(test)


def test_only_the_first_failed_process_has_a_prompt() -> None:
    async def test() -> None:
        cell = Cell(ZERO, ONE, job=replace(JOB, header="%onError=debug:7200s"), gpus=2)
        async with cell.prompts.opened():
            cell.prompts.note(ONE, failed(7))
            await until(lambda: cell.console.prompts)
            cell.prompts.note(ZERO, failed(9))
            cell.prompts.note(ZERO, failed(9, again=True))
            assert "worker-1 has failed at line 7: ValueError: no. It is kept there for 2h" in (
                cell.notices
            )
            assert "It holds 2 GPUs meanwhile. c ends it, u and d change the frame," in cell.notices
            told = "worker-0 has failed too, at line 9: ValueError: no. It ends after worker-1."
            assert cell.notices.count(told) == 1
            assert cell.backend.connected == [(ONE, 31)]

            cell.console.typed.put_nowait("c")
            await until(lambda: "worker-1 goes on." in cell.notices)
            cell.prompts.note(ONE, at(7, over=True))
            await until(lambda: (ZERO, "q\n") in cell.backend.heard)
        assert len(cell.console.prompts) == 1

    in_loop(test)


def test_what_fails_after_the_prompt_is_ended_at_once() -> None:
    async def test() -> None:
        cell = Cell(ZERO, ONE)
        async with cell.prompts.opened():
            cell.prompts.note(ONE, failed(7))
            cell.prompts.note(ONE, at(7, over=True))
            cell.prompts.note(ZERO, failed(9))
            await until(lambda: (ZERO, "q\n") in cell.backend.heard)
            cell.prompts.note(ZERO, at(9, over=True))
        assert cell.console.prompts == []
        assert cell.notices == ""

    in_loop(test)


def test_the_first_failed_process_has_its_prompt_again() -> None:
    async def test() -> None:
        cell = Cell(ONE)
        async with cell.prompts.opened():
            cell.prompts.note(ONE, failed(7))
            await until(lambda: cell.console.prompts)
            cell.backend.dies.set()
            await until(lambda: "worker-1 has ended" in cell.notices)
            cell.backend.dies.clear()
            cell.prompts.note(ONE, failed(7, again=True))
            await until(lambda: len(cell.console.prompts) == 2)

    in_loop(test)


SUSPENDED = Status(State.PENDING, tuple(ReplicaStatus(one, State.STOPPED) for one in REPLICAS))


def runs(tries: int = 1, restarts: int = 0) -> Status:
    of = (ReplicaStatus(one, State.RUNNING, restarts=restarts) for one in REPLICAS)
    return Status(State.RUNNING, tuple(of), tries=tries)


@pytest.mark.parametrize(
    "then",
    [(runs(tries=2),), (runs(restarts=1),), (SUSPENDED, runs())],
    ids=["try", "restart", "suspended"],
)
def test_the_first_process_that_fails_after_a_new_start_has_a_prompt(
    then: tuple[Status, ...],
) -> None:
    async def test() -> None:
        cell = Cell(ZERO, ONE)
        cell.prompts.note_status(runs())
        async with cell.prompts.opened():
            cell.prompts.note(ONE, failed(7))
            await until(lambda: cell.console.prompts)
            cell.prompts.note(ZERO, failed(9))
            cell.backend.dies.set()  # with its pod: it cannot say that it waits no longer
            await until(lambda: "worker-1 has ended" in cell.notices)
            cell.backend.dies.clear()
            for status in then:
                cell.prompts.note_status(status)
            cell.prompts.note(ZERO, failed(8))
            await until(lambda: cell.console.prompts[-1] == "worker-0 (Pdb) ")
            cell.prompts.note(ONE, failed(6))
        assert cell.notices.endswith(
            "worker-1 has failed too, at line 6: ValueError: no. It ends after worker-0."
        )
        assert cell.backend.heard == []

    in_loop(test)


def test_those_that_wait_for_a_process_that_is_started_again_are_ended() -> None:
    """Their replica is not: a restart policy restarts one replica alone."""

    async def test() -> None:
        cell = Cell(ZERO, ONE)
        cell.prompts.note_status(runs())
        async with cell.prompts.opened():
            cell.prompts.note(ONE, failed(7))
            await until(lambda: cell.console.prompts)
            cell.prompts.note(ZERO, failed(9))
            cell.backend.dies.set()
            await until(lambda: "worker-1 has ended" in cell.notices)
            cell.backend.dies.clear()
            one, two = runs().replicas
            cell.prompts.note_status(replace(runs(), replicas=(one, replace(two, restarts=1))))
            cell.prompts.note(ZERO, failed(9, again=True))
            await until(lambda: (ZERO, "q\n") in cell.backend.heard)
            cell.prompts.note(ZERO, at(9, over=True))
        assert cell.console.prompts == ["worker-1 (Pdb) "]

    in_loop(test)


def test_the_end_of_the_first_replica_gives_no_other_one_a_prompt() -> None:
    async def test() -> None:
        cell = Cell(ZERO, ONE)
        cell.prompts.note_status(runs())
        async with cell.prompts.opened():
            cell.prompts.note(ONE, failed(7))
            cell.prompts.note(ONE, at(7, over=True))
            one, two = runs().replicas
            ended = replace(two, state=State.FAILED)
            cell.prompts.note_status(replace(runs(), replicas=(one, ended)))
            cell.prompts.note(ZERO, failed(9))
            await until(lambda: (ZERO, "q\n") in cell.backend.heard)
        assert cell.console.prompts == []

    in_loop(test)


def test_a_process_of_torchrun_is_named() -> None:
    async def test() -> None:
        cell = Cell(ZERO)
        async with cell.prompts.opened():
            cell.prompts.note(ZERO, replace(at(7), rank="1"))
            await until(lambda: cell.console.prompts)
            cell.console.typed.put_nowait(None)
            await until(lambda: "the prompt is closed" in cell.notices)
        assert "worker-0.1 stands at line 7." in cell.notices
        assert "and worker-0.1 waits. `ciao debug mine/worker-0.1` opens it again" in cell.notices

    in_loop(test)


def test_many_failed_processes_are_one_notice() -> None:
    async def test() -> None:
        cell = Cell(ONE)
        async with cell.prompts.opened():
            for pid in range(31, 60):
                cell.prompts.note(ONE, failed(7, pid=pid))
        assert cell.notices.count("has failed too") == 5
        assert cell.notices.count("more replicas have failed, and wait too.") == 1

    in_loop(test)


def test_a_failed_process_that_cannot_be_ended_is_left_to_its_time() -> None:
    async def test() -> None:
        cell = Cell()
        cell.backend.fault = BackendError("the pod is gone.")
        async with cell.prompts.opened():
            cell.prompts.note(ONE, failed(7))
            cell.prompts.note(ONE, at(7, over=True))
            cell.prompts.note(ZERO, failed(9))
            for tries in range(1, 5):
                await until(lambda tries=tries: len(cell.sleeps) == tries)
                cell.wakes.put_nowait(None)
            await until(lambda: cell.backend.connected == [(ZERO, 31)] * 5)
        assert cell.notices == ""

    in_loop(test)


def test_a_failed_process_that_cannot_be_reached_is_tried_again() -> None:
    async def test() -> None:
        cell = Cell()
        cell.backend.fault = BackendError("the connection was cut.")
        async with cell.prompts.opened():
            cell.prompts.note(ONE, failed(7))
            cell.prompts.note(ONE, at(7, over=True))
            cell.prompts.note(ZERO, failed(9))
            await until(lambda: len(cell.sleeps) == 1)
            cell.backend.fault = None  # nobody is there yet
            cell.wakes.put_nowait(None)
            await until(lambda: len(cell.sleeps) == 2)
            cell.backend.waiting.add(ZERO)
            cell.wakes.put_nowait(None)
            await until(lambda: (ZERO, "q\n") in cell.backend.heard)
        assert cell.notices == ""

    in_loop(test)
