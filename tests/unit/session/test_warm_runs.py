"""Runs in warm replicas that a test plays: what is sent to them, and what their markers cause."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.delivery import replica_files
from ciao_kernel.delivery.output import results
from ciao_kernel.delivery.output.result_writer import MARK
from ciao_kernel.delivery.warm.marks import marker
from ciao_kernel.errors import (
    BackendError,
    CiaoError,
    ClusterFault,
    JobLost,
    NoRoom,
    SpecError,
    UsageError,
)
from ciao_kernel.frameworks.mpi import Mpi
from ciao_kernel.frameworks.pytorch import PyTorch
from ciao_kernel.frameworks.tensorflow import TensorFlow
from ciao_kernel.magics.header import Style
from ciao_kernel.model import (
    Event,
    Job,
    Notice,
    Output,
    Owner,
    Replica,
    ReplicaStatus,
    Source,
    SourceFile,
    State,
    Status,
)
from ciao_kernel.model.outputs import OutputWay
from ciao_kernel.model.queries import LogOptions, Streams
from ciao_kernel.plugins import Plan, WayBack
from ciao_kernel.session import fetching, returned_values
from ciao_kernel.session.fetching import Fetched
from ciao_kernel.session.planning import parse_cell
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.warm import ended_run, feeder, found_runs, framework, logs
from ciao_kernel.session.warm.backend import WarmBackend
from ciao_kernel.session.warm.pool import WarmPool
from ciao_kernel.session.warm.room import WAITS

HEAD = "%framework=tensorflow\n%worker=2\n%warm\n"
REGISTRY = Registry({})


def plan(header: str = HEAD) -> Plan:
    spec = parse_cell(f"{header}x", REGISTRY, Settings(), style=Style.CELL).spec
    source = Source(SourceFile("cell.py", b"x", size=1))
    return Plan(None, spec, TensorFlow(), source, Path("/x"), header, Owner("me"))


class Replicas:
    """A backend whose replicas say what the test tells them."""

    name, outlives_kernel, keeps_runs = "fake", True, False

    def __init__(self) -> None:
        self.events: asyncio.Queue[Event | CiaoError] = asyncio.Queue()
        self.commands: list[tuple[Replica, dict[str, Any]]] = []
        self.pings: list[tuple[Replica, dict[str, Any]]] = []
        self.told, self.ended = asyncio.Event(), asyncio.Event()
        self.plan = plan()
        self.folder = "/jobs/mine"

    async def submit(self, plan: Plan, *_: Any, **__: Any) -> Job:
        self.plan = plan
        where = {"place": self.folder} if self.keeps_runs else {"folder": self.folder}
        where |= {} if self.keeps_runs else {"kind_of_place": "namespace"}
        return Job("mine", "fake", "tensorflow", plan.spec.replicas(), 1.0, root="/work", **where)

    async def follow(self, job: Job, *, since: float = 0.0) -> AsyncIterator[Event]:
        while True:
            event = await self.events.get()
            if isinstance(event, CiaoError):
                raise event
            yield event

    async def check_feeding(self, plan: Plan) -> None: ...

    async def send(self, job: Job, replica: Replica, data: bytes) -> None:
        command = json.loads(data)
        if command["op"] == "ping":
            self.pings.append((replica, command))
            return
        self.commands.append((replica, command))
        if len(self.commands) == len(job.replicas):
            self.told.set()

    async def stop_feeding(self, job: Job) -> None: ...

    async def stop(self, job: Job, reason: str, **_: Any) -> None:
        self.ended.set()

    @property
    def config(self) -> dict[str, Any]:
        """What the agents are told when they start."""
        return dict(json.loads(dict(self.plan.spec.env)["CIAO_WARM"]))

    def say(self, replica: Replica, **what: Any) -> None:
        """Let a replica write a marker."""
        data = b"\n" + marker(self.config["nonce"]) + json.dumps(what).encode() + b"\n"
        self.events.put_nowait(Output(replica, data, 2))

    def ready(self) -> None:
        for one in self.plan.spec.replicas():
            self.say(one, ev="ready", host="10.0.0.1", port=1000 + one.index, root="/tmp/x")

    def begin(self) -> None:
        for one in self.plan.spec.replicas():
            self.say(one, ev="begin", id=1)


class Cell:
    """A cell in replicas of its own, as far as its program has been sent to them."""

    def __init__(
        self,
        header: str = HEAD,
        busy: float = 30.0,
        lease: float = 300.0,
        clock: Callable[[], float] = time.time,
        **settings: Any,
    ) -> None:
        self.inner, self.plan = Replicas(), plan(header)
        self.pool = WarmPool(lease, clock=clock)
        self.backend = WarmBackend(
            self.inner,  # type: ignore[arg-type]
            self.pool,
            Settings(**settings),
            REGISTRY.table,
            busy,
        )

    async def start(self) -> None:
        self.job = await self.backend.submit(
            self.plan,
            None,
            lambda _: None,
            outlive=True,  # type: ignore[arg-type]
        )
        self.inner.ready()
        await self.inner.told.wait()

    async def events(self) -> list[Event]:
        return [event async for event in self.backend.follow(self.job)]


def run(main: Any) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await main()

    asyncio.run(limited())


def test_a_replica_that_is_started_again_fails_the_run_and_ends_the_job() -> None:
    async def main() -> None:
        cell = Cell()
        await cell.start()
        cell.inner.begin()
        cell.inner.ready()
        with pytest.raises(JobLost) as caught:
            await cell.events()
        assert "worker-0 was started again" in caught.value.message
        await cell.inner.ended.wait()
        assert cell.pool.parked is None, "the next cell starts new replicas"

    run(main)


def test_the_next_cell_has_new_replicas_after_a_run_that_a_replica_did_not_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeder, "_REPEAT", 0.01)

    async def main() -> None:
        cell = Cell()
        deaf, send = cell.plan.spec.replicas()[1], cell.inner.send

        async def refuse(job: Job, replica: Replica, data: bytes) -> None:
            await send(job, replica, data)
            if replica == deaf and json.loads(data)["op"] == "run":
                raise BackendError(f"{replica} takes no command.")

        cell.inner.send = refuse  # type: ignore[method-assign]
        await cell.start()
        cell.inner.say(cell.job.replicas[0], ev="begin", id=1)
        with pytest.raises(BackendError, match="could not be started in worker-1") as caught:
            await cell.events()
        assert caught.value.hint == "The replicas are ended; run the cell again."
        again = await cell.backend.submit(cell.plan, None, print, outlive=True)  # type: ignore[arg-type]
        assert again.warm_run == 1, "the replicas are new ones"
        await cell.inner.ended.wait()

    run(main)


@pytest.mark.parametrize("here", [True, False])
def test_a_run_links_the_volumes_of_all_replicas_that_share_its_folder(here: bool) -> None:
    header = HEAD + "%volume=memory:1Gi:all\n%chief=1;%volume=memory:1Gi:own\n"

    async def main() -> None:
        cell = Cell(header)
        cell.inner.keeps_runs = here
        await cell.start()
        links = {str(to): command["links"] for to, command in cell.inner.commands}
        names = {to: [where for where, _ in of] for to, of in links.items()}
        assert names["chief-0"] == ["all", "own"]
        assert names["worker-0"] == (["all", "own"] if here else ["all"])

    run(main)


def test_idle_replicas_that_are_started_again_are_not_used() -> None:
    async def main() -> None:
        cell = Cell()
        await cell.start()
        cell.inner.begin()
        for one in cell.job.replicas:
            cell.inner.say(one, ev="end", id=1, code=0, why="", port=2000)
        last = (await cell.events())[-1]
        assert isinstance(last, Status)
        assert last.state is State.SUCCEEDED
        assert cell.pool.parked is not None
        cell.inner.ready()
        await cell.inner.ended.wait()
        assert cell.pool.parked is None

    run(main)


def test_the_next_cell_says_why_the_replicas_have_ended_and_starts_new_ones() -> None:
    async def main() -> None:
        cell = Cell()
        await cell.start()
        cell.inner.begin()
        for one in cell.job.replicas:
            last = {"last": "the kernel is gone"} if one.index else {}
            cell.inner.say(one, ev="end", id=1, code=0, why="", port=2000, **last)
        events = await cell.events()
        assert not [one for one in events if isinstance(one, Notice)], "they do not stay warm"
        notices: list[Event] = []
        again = await cell.backend.submit(cell.plan, None, notices.append, outlive=True)  # type: ignore[arg-type]
        assert again.warm_run == 1
        assert notices == [
            Notice(
                "the warm replicas of mine have ended, because they heard nothing of this kernel "
                "for too long; new ones start"
            )
        ]
        while [op["op"] for _, op in cell.inner.commands].count("bye") < 2:
            await asyncio.sleep(0.01)  # one of them may still wait

    run(main)


def test_replicas_that_heard_nothing_of_this_kernel_are_not_used() -> None:
    async def main() -> None:
        now = 1000.0
        cell = Cell(lease=300.0, clock=lambda: now)
        await cell.start()
        cell.inner.begin()
        now += 200  # a run that takes long
        for one in cell.job.replicas:
            cell.inner.say(one, ev="end", id=1, code=0, why="", port=2000)
        await cell.events()
        now += 90
        assert cell.pool.parked is not None
        now += 10  # no time of %warm is over, but the lease
        notices: list[Event] = []
        again = await cell.backend.submit(cell.plan, None, notices.append, outlive=True)  # type: ignore[arg-type]
        assert again.warm_run == 1
        assert "heard nothing of this kernel" in str(notices)

    run(main)


async def fail_with_replica(cell: Cell) -> None:
    """Let a run fail with a lost replica; its job has not ended in all replicas yet."""
    await cell.start()
    cell.inner.begin()
    first, other = cell.job.replicas
    replicas = (ReplicaStatus(first, State.FAILED, exit_code=-9), ReplicaStatus(other))
    now = Status(State.FAILED, replicas, decided_by=first)
    cell.inner.events.put_nowait(now)
    cell.inner.events.put_nowait(replace(now, decided=True))
    assert (await cell.events())[-1].state is State.FAILED  # type: ignore[union-attr]


def test_no_run_begins_in_a_job_that_is_about_to_end() -> None:
    async def main() -> None:
        cell = Cell()
        await fail_with_replica(cell)
        notices: list[Event] = []
        again = await cell.backend.submit(cell.plan, None, notices.append, outlive=True)  # type: ignore[arg-type]
        assert again.warm_run == 1
        assert notices == [Notice("the warm replicas of mine have ended; new ones start")]

    run(main)


def test_new_replicas_wait_for_the_room_of_a_job_that_is_about_to_end() -> None:
    async def main() -> None:
        cell = FullCell()
        await fail_with_replica(cell)
        cell.full.refusals.append(NoRoom("the quota is full.", directive="worker"))
        await cell.backend.submit(cell.plan, None, cell.said.append, outlive=True)  # type: ignore[arg-type]
        assert Notice(WAITS) in cell.said

    run(main)


AWAY = ClusterFault("the API server has not answered for 600 s.")


def test_idle_replicas_that_cannot_be_followed_any_more_are_ended_for_their_room() -> None:
    async def main() -> None:
        cell = FullCell()
        await cell.start()
        cell.inner.begin()
        for one in cell.job.replicas:
            cell.inner.say(one, ev="end", id=1, code=0, why="", port=2000)
        await cell.events()
        cell.inner.events.put_nowait(AWAY)
        while cell.pool.parked is not None:
            await asyncio.sleep(0)
        cell.full.refusals.append(NoRoom("the quota is full.", directive="worker"))
        await cell.backend.submit(cell.plan, None, cell.said.append, outlive=True)  # type: ignore[arg-type]
        assert cell.inner.ended.is_set()
        text = "the warm replicas of mine could not be followed any more; new ones start"
        assert cell.said[0] == Notice(text)
        assert Notice(WAITS) in cell.said

    run(main)


def test_a_run_that_cannot_be_followed_any_more_goes_on() -> None:
    async def main() -> None:
        cell = Cell()
        await cell.start()
        cell.inner.begin()
        cell.inner.events.put_nowait(AWAY)
        with pytest.raises(ClusterFault):
            await cell.events()
        again = await cell.backend.submit(cell.plan, None, print, outlive=True)  # type: ignore[arg-type]
        assert again.warm_run == 1
        await asyncio.sleep(0.05)
        assert not cell.inner.ended.is_set()

    run(main)


def test_an_idle_replica_that_is_lost_ends_the_others_for_the_next_cell() -> None:
    async def main() -> None:
        cell = Cell()
        await cell.start()
        cell.inner.begin()
        first, other = cell.job.replicas
        for one in cell.job.replicas:
            cell.inner.say(one, ev="end", id=1, code=0, why="", port=2000)
        await cell.events()
        assert cell.pool.parked is not None
        replicas = (ReplicaStatus(first, State.FAILED, exit_code=-9), ReplicaStatus(other))
        cell.inner.events.put_nowait(Status(State.FAILED, replicas))
        while not cell.inner.events.empty():
            await asyncio.sleep(0)
        assert cell.pool.parked is None

    run(main)


LATE = [
    {"reason": "DeadlineExceeded", "message": "the job ran longer than its deadline of 60 s."},
    {"reason": "TFJobFailed", "message": "the job ran longer than its %deadline."},
]
"""Ends of a job, of both backends."""


@pytest.mark.parametrize("more", LATE)
@pytest.mark.parametrize("sent", [True, False])
def test_a_run_that_ends_with_the_longest_life_of_its_replicas_names_the_setting(
    more: dict[str, Any], sent: bool
) -> None:
    async def main() -> None:
        cell = Cell(warm_most=3600.0)
        if sent:
            await cell.start()
            cell.inner.begin()
        else:
            cell.job = await cell.backend.submit(cell.plan, None, print, outlive=True)  # type: ignore[arg-type]
        replicas = tuple(map(ReplicaStatus, cell.job.replicas))
        now = Status(State.FAILED, replicas, settled=True, **more)
        cell.inner.events.put_nowait(now)
        last = (await cell.events())[-1]
        assert isinstance(last, Status)
        assert (last.state, last.message) == (
            State.FAILED,
            "the warm replicas of mine have ended after 1h, their longest life (the setting "
            "warmMost).",
        )
        assert cell.pool.parked is None

    run(main)


def test_a_run_in_a_suspended_job_does_not_wait_until_it_is_resumed() -> None:
    async def main() -> None:
        cell = Cell()
        await cell.start()
        cell.inner.begin()
        one = cell.job.replicas[0]
        cell.inner.say(one, ev="end", id=1, code=143, why="terminated", port=2000)
        replicas = tuple(map(ReplicaStatus, cell.job.replicas))
        cell.inner.events.put_nowait(Status(State.PENDING, replicas, reason="Suspended"))
        with pytest.raises(JobLost, match="Suspended"):
            await cell.events()
        await cell.inner.ended.wait()

    run(main)


def test_idle_replicas_that_are_suspended_are_not_used() -> None:
    async def main() -> None:
        cell = Cell()
        await cell.start()
        cell.inner.begin()
        for one in cell.job.replicas:
            cell.inner.say(one, ev="end", id=1, code=0, why="", port=2000)
        await cell.events()
        replicas = tuple(map(ReplicaStatus, cell.job.replicas))
        for now in (Status(State.RUNNING, replicas), Status(State.PENDING, replicas)):
            cell.inner.events.put_nowait(now)
        await cell.inner.ended.wait()
        assert cell.pool.parked is None

    run(main)


def test_the_next_run_waits_for_the_grace_period_of_an_interrupted_one() -> None:
    async def main() -> None:
        cell = Cell(busy=0.0, stop_grace=60.0)
        await cell.start()
        cell.inner.begin()
        following = asyncio.ensure_future(cell.backend.submit(cell.plan, None, print, outlive=True))  # type: ignore[arg-type]
        await asyncio.sleep(0.05)
        assert not following.done()
        for one in cell.job.replicas:
            cell.inner.say(one, ev="end", id=1, code=-9, why="stopped", port=2000)
        assert (await following).warm_run == 2

    run(main)


@pytest.mark.parametrize(
    ("header", "given", "default"),
    [
        ("%nprocPerNode=2\n", {}, {"OMP_NUM_THREADS": "1"}),
        (
            "%nprocPerNode=2\n%envvar=OMP_NUM_THREADS=3\n",
            {"OMP_NUM_THREADS": "3"},
            {"OMP_NUM_THREADS": "1"},
        ),
        ("", {}, {}),
    ],
)
def test_processes_of_one_replica_have_one_thread_unless_a_variable_says_more(
    header: str, given: dict[str, str], default: dict[str, str]
) -> None:
    async def main() -> None:
        cell = Cell()
        asked = plan(f"%framework=pytorch\n%worker=1\n%warm\n{header}")
        cell.plan = replace(asked, framework=PyTorch())
        await cell.start()
        for _, command in cell.inner.commands:
            assert (command["environment"], command["defaults"]) == (given, default)

    run(main)


def test_nothing_is_sent_for_a_run_whose_job_has_ended() -> None:
    async def main() -> None:
        cell = Cell(linger=0.05)
        await cell.start()
        cell.inner.begin()
        first, other = cell.job.replicas
        cell.inner.say(first, ev="end", id=1, code=0, why="", port=2000)  # the other one may linger
        cell.inner.say(other, ev="ready", host="10.0.0.1", port=1, root="/tmp/x")
        await cell.inner.ended.wait()
        await asyncio.sleep(0.1)
        assert [command["op"] for _, command in cell.inner.commands] == ["run", "run"]

    run(main)


def test_a_run_finds_the_volumes_and_checkpoints_of_the_job_beside_its_program() -> None:
    async def main() -> None:
        cell = Cell(HEAD + "%checkpoint\n%volume=data:inputs/all\n%volume=other:/abs\n")
        await cell.start()
        for _, command in cell.inner.commands:
            assert command["links"] == [
                ["inputs/all", "/work/inputs/all"],
                ["checkpoint", "/work/checkpoint"],
            ]

    run(main)


def test_a_run_finds_the_volumes_of_its_role() -> None:
    async def main() -> None:
        cell = Cell("%framework=pytorch\n%master=1;%volume=a:x\n%worker=1;%volume=b:y\n%warm\n")
        await cell.start()
        found = {str(one): command["links"] for one, command in cell.inner.commands}
        assert found == {"master-0": [["x", "/work/x"]], "worker-0": [["y", "/work/y"]]}

    run(main)


@pytest.mark.parametrize("here", [True, False])
def test_files_of_ciao_are_not_in_the_folder_that_the_agent_makes(here: bool) -> None:
    async def main() -> None:
        cell = Cell()
        cell.inner.keeps_runs = here
        await cell.start()
        assert cell.job.files == "/jobs/mine"
        assert cell.job.place.endswith("/run-1") is here

    run(main)


def test_a_framework_whose_programs_cannot_be_forked_is_refused_with_those_that_can() -> None:
    forkable = REGISTRY.table.names.forkable | {"mesh"}
    with pytest.raises(SpecError, match="%warm does not work with mpi, whose") as caught:
        framework.check(plan().spec, Mpi(), forkable=forkable, deletes=False)
    assert "it works with jax, mesh, python, pytorch, tensorflow." in caught.value.hint


def test_a_run_is_not_started_again() -> None:
    spec = replace(plan().spec, retries=2)
    with pytest.raises(SpecError, match="%retries cannot be combined with %warm"):
        framework.check(spec, TensorFlow(), forkable=(), deletes=False)
    framework.check(replace(spec, retries=0), TensorFlow(), forkable=(), deletes=False)


@pytest.mark.parametrize(("more", "reason"), [({"oom": True}, "OOMKilled"), ({}, "")])
def test_a_process_that_is_killed_for_its_memory_is_said_to_be(
    more: dict[str, Any], reason: str
) -> None:
    async def main() -> None:
        cell = Cell()
        await cell.start()
        cell.inner.begin()
        first, other = cell.job.replicas
        cell.inner.say(other, ev="end", id=1, code=-9, why="", port=2000, **more)
        cell.inner.say(first, ev="end", id=1, code=-15, why="stopped", port=2000)
        status = (await cell.events())[-1]
        assert isinstance(status, Status)
        assert (status.replicas[1].reason, status.replicas[1].exit_code) == (reason, -9)
        assert cell.pool.parked is not None, "the replicas stay"

    run(main)


def test_values_in_the_end_marker_of_a_pod_are_kept_for_the_run(tmp_path: Path) -> None:
    async def main() -> None:
        cell = Cell(HEAD + "%output=step\n")
        cell.inner.folder = str(tmp_path)
        await cell.start()
        assert {json.dumps(command["results"]) for _, command in cell.inner.commands} == {
            '{"names": "step", "folder": ""}'
        }
        cell.inner.begin()
        data = base64.b64encode(b"7").decode()
        entry = {"type": "int", "file": "step.json", "size": 1, "data": data}
        text = MARK + json.dumps({"names": ["step"], "values": {"step": entry}})
        for one in cell.job.replicas:
            cell.inner.say(one, ev="end", id=1, code=0, why="", port=2000, values=text)
        status = (await cell.events())[-1]
        assert isinstance(status, Status)
        assert dict(results.of_job(cell.job, status)[1]) == {"step": 7}

        # Also for a kernel that attaches to the job.
        again = str(tmp_path / "again")
        stored = "%warm=10m\n%output=step\n"
        job = replace(cell.job, warm_run=0, header=stored, folder=again)
        ended = {"ev": "end", "id": 1, "values": text}
        line = b"\n" + marker("0" * 16) + json.dumps(ended).encode() + b"\n"
        cell.inner.events.put_nowait(Output(cell.job.replicas[0], line, 2))
        cell.inner.events.put_nowait(Output(cell.job.replicas[0], b"next\n", 1))
        events = logs.follow(cell.inner, job)  # type: ignore[arg-type]
        assert (await anext(events)).data == b"next\n"  # type: ignore[union-attr]
        assert dict(results.of_job(job, status)[1]) == {"step": 7}

    run(main)


@pytest.mark.parametrize(("more", "code"), [("", 0), ("%successPolicy=allWorkers\n", 1)])
def test_all_workers_decide_if_the_header_says_so(more: str, code: int) -> None:
    async def main() -> None:
        cell = Cell(f"{HEAD}{more}")
        await cell.start()
        cell.inner.begin()
        first, other = cell.job.replicas
        cell.inner.say(first, ev="end", id=1, code=0, why="", port=2000)
        cell.inner.say(other, ev="end", id=1, code=code, why="" if code else "stopped", port=2000)
        status = (await cell.events())[-1]
        assert isinstance(status, Status)
        assert status.state is (State.FAILED if code else State.SUCCEEDED)
        assert status.decided_by == (other if code else first)

    run(main)


class FullReplicas(Replicas):
    """A backend that says something and refuses each job as often as the test wants it."""

    def __init__(self, *refusals: CiaoError) -> None:
        super().__init__()
        self.refusals = list(refusals)

    async def submit(self, plan: Plan, *more: Any, **options: Any) -> Job:
        _, emit = more
        emit(Notice("packed"))
        if self.refusals:
            raise self.refusals.pop(0)
        return await super().submit(plan, *more, **options)


class FullCell(Cell):
    """A cell that ran, before one that needs other replicas, whose job is refused some times."""

    def __init__(self, *refusals: CiaoError) -> None:
        super().__init__()
        self.inner = self.full = FullReplicas()
        self.backend = WarmBackend(
            self.inner,  # type: ignore[arg-type]
            self.pool,
            Settings(),
            REGISTRY.table,
        )
        self.said: list[Event] = []
        self._refusals = refusals

    async def submit_other(self) -> Job:
        await self.start()
        self.inner.begin()
        for one in self.job.replicas:
            self.inner.say(one, ev="end", id=1, code=0, why="", port=2000)
        await self.events()
        self.full.refusals += self._refusals
        other = plan(HEAD.replace("%worker=2", "%worker=3"))
        return await self.backend.submit(other, None, self.said.append, outlive=True)  # type: ignore[arg-type]


def test_new_replicas_wait_until_the_old_ones_give_back_their_share_of_a_quota() -> None:
    async def main() -> None:
        cell = FullCell(*(NoRoom("the quota is full.", directive="worker") for _ in range(2)))
        job = await cell.submit_other()
        assert len(job.replicas) == 3
        assert cell.full.refusals == []
        ends, *rest = cell.said
        assert isinstance(ends, Notice)
        assert ends.text.endswith("%worker differs; new ones start")
        assert rest == [Notice("packed"), Notice(WAITS)], "each once"

    run(main)


def test_what_no_wait_can_change_is_refused_at_once() -> None:
    async def main() -> None:
        cell = FullCell(*(SpecError("a webhook says no.", directive="worker") for _ in range(2)))
        with pytest.raises(SpecError, match="a webhook says no"):
            await cell.submit_other()
        assert len(cell.full.refusals) == 1, "asked once"
        assert Notice(WAITS) not in cell.said

    run(main)


def test_files_come_back_only_from_backends_that_say_how() -> None:
    async def main() -> None:
        with pytest.raises(SpecError, match="files of %output do not come back"):
            await Cell(HEAD + "%output=model/\n").backend.check(plan(HEAD + "%output=model/\n"))

    run(main)


class GivingReplicas(Replicas):
    """Replicas whose files leave them by one of the ways."""

    def __init__(self, way: OutputWay, streams: dict[str, bytes]) -> None:
        super().__init__()
        self.way, self._streams = way, streams
        self.asked: list[str] = []
        self.hangs = False

    async def way_back(self, plan: Plan) -> WayBack:
        if self.way is not OutputWay.S3:
            return WayBack(self.way, 1 << 20, notice=f"by {self.way}")
        addresses = {one: f"https://bucket/{one}" for one in plan.spec.replicas()}
        return WayBack(self.way, 1 << 20, addresses=addresses, read=self.read)

    async def read(self, replica: Replica, out: Callable[[bytes], object]) -> None:
        self.asked.append(str(replica))
        out(self._streams[str(replica)])

    async def execute(self, job: Job, replica: Replica, command: Any, streams: Streams) -> int:
        self.asked.append(str(replica))
        if self.hangs:
            await asyncio.Event().wait()
        if str(replica) not in self._streams:
            raise BackendError(f"{replica} has no pod.")
        streams.out(self._streams[str(replica)])
        return 0

    async def log(self, job: Job, replica: Replica, options: Any = None) -> bytes:
        what = [
            {"ev": "ready", "root": "/tmp/x"},
            {"ev": "begin", "id": 1},
            {"ev": "begin", "id": 2},
        ]
        mark = b"\n" + marker("0" * 16)
        return b"a line\n" + b"".join(mark + json.dumps(one).encode() + b"\n" for one in what)

    def give(self, replica: Replica, number: int) -> None:
        """Let a replica write its files into its log, or say that they are in the bucket."""
        if self.way is OutputWay.LOG:
            put = lambda line: self.say(replica, ev="files", id=number, line=line.decode())  # noqa: E731
            writer = replica_files.LogWriter(put)
            writer.write(self._streams[str(replica)])
            writer.end()
        self.say(replica, ev="given", id=number, fault="")


def streams(folder: Path) -> dict[str, bytes]:
    """What two replicas send of their folders, each with its name in a file."""
    found = {}
    for name in ("worker-0", "worker-1"):
        place = folder / f"in-{name}"
        (place / "model").mkdir(parents=True)
        (place / "model/net").write_text(name)
        (place / "same").write_text("the same")
        sent = bytearray()
        with contextlib.chdir(place):
            replica_files.write_stream(sent.extend, ["model/", "same"], 1 << 20, "")
        found[name] = bytes(sent)
    return found


class GivingCell(Cell):
    """A cell whose runs have files."""

    def __init__(self, folder: Path, way: OutputWay) -> None:
        super().__init__(HEAD + "%output=model/ ./same\n")
        self.inner = self.giving = GivingReplicas(way, streams(folder))
        self.inner.folder = str(folder / "job")
        self.backend = WarmBackend(
            self.inner,  # type: ignore[arg-type]
            self.pool,
            Settings(),
            REGISTRY.table,
        )

    async def end(self, number: int = 1) -> None:
        """Let all programs of a run end."""
        for one in self.job.replicas:
            self.inner.say(one, ev="begin", id=number)
        words = ["model/", "./same"]
        gives = {} if self.giving.way is OutputWay.EXEC else {"gives": True, "words": words}
        for one in self.job.replicas:
            self.inner.say(one, ev="end", id=number, code=0, why="", port=2000, **gives)

    def give(self, number: int = 1) -> None:
        for one in self.job.replicas:
            self.giving.give(one, number)


WAYS = (OutputWay.EXEC, OutputWay.LOG, OutputWay.S3)


@pytest.mark.parametrize("way", WAYS)
def test_the_files_of_each_run_come_back_into_a_folder_of_its_own(
    way: OutputWay, tmp_path: Path
) -> None:
    async def main() -> None:
        cell = GivingCell(tmp_path, way)
        await cell.start()
        for number in (1, 2):
            if number == 2:
                cell.inner.told.clear()
                cell.inner.commands.clear()
                cell.job = await cell.backend.submit(cell.plan, None, print, outlive=True)  # type: ignore[arg-type]
                await cell.inner.told.wait()
            for replica, command in cell.inner.commands:
                asked = command["files"]
                if way is OutputWay.EXEC:
                    assert asked == {}
                else:
                    assert (asked["way"], asked["words"]) == (way, ["model/", "./same"])
                    address = f"https://bucket/{replica}" if way is OutputWay.S3 else None
                    assert asked.get("address") == address
            await cell.end(number)
            if way is not OutputWay.EXEC:
                cell.give(number)
            events = await cell.events()
            states = [one.state for one in events if isinstance(one, Status)]
            assert states[-1] is State.SUCCEEDED
            assert set(states[-3:-1]) == {State.RUNNING}, "until the files are here"
            folder = tmp_path / "job" / f"run-{number}"
            assert cell.job.results == str(folder)
            for name in ("worker-0", "worker-1"):
                assert (folder / name / "model/net").read_text() == name
            assert (folder / "same").read_text() == "the same"
            (said, *_) = returned_values.sentences(cell.job, events[-1])  # type: ignore[arg-type]
            words = {OutputWay.EXEC: "exec", OutputWay.LOG: "the log", OutputWay.S3: "the bucket"}
            assert said.startswith(
                f"brought back by {words[way]}: same (8 bytes, worker-0, worker-1)"
            )
            assert said.endswith(f"to {folder}")
            assert not cell.inner.ended.is_set(), "the replicas stay"

    run(main)


def test_a_stopped_run_brings_no_files(tmp_path: Path) -> None:
    async def main() -> None:
        cell = GivingCell(tmp_path, OutputWay.EXEC)
        await cell.start()
        cell.inner.begin()
        cell.inner.told.clear()
        stopping = asyncio.ensure_future(cell.backend.stop(cell.job, "stopped"))
        while not [one for one in cell.inner.commands if one[1]["op"] == "stop"]:
            await asyncio.sleep(0)
        assert all(one["drop"] for _, one in cell.inner.commands if one["op"] == "stop")
        for one in cell.job.replicas:
            cell.inner.say(one, ev="end", id=1, code=-15, why="stopped", port=2000)
        await stopping
        assert (await cell.events())[-1].state is State.STOPPED  # type: ignore[union-attr]
        assert cell.giving.asked == []

    run(main)


def test_the_stop_of_a_run_is_certain_when_all_replicas_were_told(tmp_path: Path) -> None:
    """A kernel's end, which waits for that, may come right after it."""

    async def main() -> None:
        cell = GivingCell(tmp_path, OutputWay.EXEC)
        await cell.start()
        cell.inner.begin()
        certain, may, send = asyncio.Event(), asyncio.Event(), cell.inner.send

        async def slow(job: Job, replica: Replica, data: bytes) -> None:
            if replica.index:
                await may.wait()
            await send(job, replica, data)

        cell.inner.send = slow  # type: ignore[method-assign]
        stopping = asyncio.ensure_future(
            cell.backend.stop(cell.job, "stopped", stop_certain=certain.set)
        )
        while not [one for one in cell.inner.commands if one[1]["op"] == "stop"]:
            await asyncio.sleep(0)
        assert not certain.is_set()
        may.set()
        await certain.wait()
        assert len([one for one in cell.inner.commands if one[1]["op"] == "stop"]) == 2
        assert not stopping.done()
        for one in cell.job.replicas:
            cell.inner.say(one, ev="end", id=1, code=-15, why="stopped", port=2000)
        await stopping
        again = asyncio.Event()
        await cell.backend.stop(cell.job, "stopped", stop_certain=again.set)
        assert again.is_set()  # nothing is left to stop

    run(main)


def test_a_stop_that_could_not_be_told_is_not_certain_yet(tmp_path: Path) -> None:
    async def main() -> None:
        cell = GivingCell(tmp_path, OutputWay.EXEC)
        await cell.start()
        cell.inner.begin()
        failed, certain, send = asyncio.Event(), asyncio.Event(), cell.inner.send

        async def cut(job: Job, replica: Replica, data: bytes) -> None:
            if not failed.is_set():
                failed.set()
                raise BackendError("the API server does not answer.")
            await send(job, replica, data)

        cell.inner.send = cut  # type: ignore[method-assign]
        stopping = asyncio.ensure_future(
            cell.backend.stop(cell.job, "stopped", stop_certain=certain.set)
        )
        await failed.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not certain.is_set()
        await certain.wait()  # at the next try
        for one in cell.job.replicas:
            cell.inner.say(one, ev="end", id=1, code=-15, why="stopped", port=2000)
        await stopping

    run(main)


def test_a_stop_while_files_come_ends_the_run_without_them(tmp_path: Path) -> None:
    async def main() -> None:
        cell = GivingCell(tmp_path, OutputWay.EXEC)
        cell.giving.hangs = True
        await cell.start()
        await cell.end()
        while len(cell.giving.asked) < 2:
            await asyncio.sleep(0)
        await cell.backend.stop(cell.job, "stopped")
        assert (await cell.events())[-1].state is State.SUCCEEDED  # type: ignore[union-attr]
        assert not cell.inner.ended.is_set(), "the replicas stay"
        assert (await cell.backend.submit(cell.plan, None, print, outlive=True)).warm_run == 2  # type: ignore[arg-type]

    run(main)


def test_no_idle_time_passes_while_files_come(tmp_path: Path) -> None:
    async def main() -> None:
        cell = GivingCell(tmp_path, OutputWay.EXEC)
        cell.plan = plan(HEAD.replace("%warm", "%warm=1s") + "%output=model/ ./same\n")
        cell.giving.hangs = True
        await cell.start()
        await cell.end()
        for count in (2, 4, 6):  # at once, and then more than once in the time of %warm
            while len(cell.inner.pings) < count:
                await asyncio.sleep(0.01)
        assert cell.inner.pings[:2] == [
            (one, {"op": "ping", "busy": True}) for one in cell.job.replicas
        ]
        await cell.backend.stop(cell.job, "stopped")

    run(main)


def test_the_idle_time_begins_when_the_files_are_here(tmp_path: Path) -> None:
    async def main() -> None:
        cell = GivingCell(tmp_path, OutputWay.EXEC)
        await cell.start()
        await cell.end()
        await cell.events()
        while len(cell.inner.pings) < 4:  # when the files begin to come, and when they are here
            await asyncio.sleep(0.01)
        assert all(one["busy"] for _, one in cell.inner.pings)

    run(main)


@pytest.mark.parametrize("way", WAYS)
def test_a_replica_that_vanishes_after_its_run_has_lost_its_files_and_no_more(
    way: OutputWay, tmp_path: Path
) -> None:
    async def main() -> None:
        cell = GivingCell(tmp_path, way)
        cell.giving.hangs = True
        await cell.start()
        await cell.end()
        if way is OutputWay.EXEC:
            while len(cell.giving.asked) < 2:
                await asyncio.sleep(0)
        gone = Status(State.FAILED, tuple(map(ReplicaStatus, cell.job.replicas)), settled=True)
        cell.inner.events.put_nowait(gone)
        events = await cell.events()
        assert events[-1].state is State.SUCCEEDED  # type: ignore[union-attr]
        if way is OutputWay.EXEC:
            said = [one.text for one in events if isinstance(one, Notice)]
            assert "the files of worker-0 did not come back: its pod has ended." in said

    run(main)


def test_files_that_a_replica_cannot_give_are_named_with_the_reason(tmp_path: Path) -> None:
    async def main() -> None:
        cell = GivingCell(tmp_path, OutputWay.LOG)
        await cell.start()
        await cell.end()
        first, other = cell.job.replicas
        cell.inner.say(first, ev="files", id=1, line="ciao-output AAAA")
        cell.inner.say(first, ev="files", id=1, line="ciao-output-end 9 00")
        cell.inner.say(first, ev="given", id=1, fault="")
        cell.inner.say(other, ev="given", id=1, fault="the disk is full")
        said = [one.text for one in await cell.events() if isinstance(one, Notice)]
        lost = "the files of worker-0 did not come back: their log has lost lines. Does"
        assert any(one.startswith(lost) for one in said)
        assert "the files of worker-1 did not come back: the disk is full." in said

    run(main)


def test_somebody_who_finds_the_job_has_the_files_of_its_newest_run(tmp_path: Path) -> None:
    async def main() -> None:
        cell = GivingCell(tmp_path, OutputWay.EXEC)
        await cell.start()
        await cell.end()
        await cell.events()
        header = "%warm=10m\n%output=model/ ./same\n"
        found = replace(cell.job, warm_run=0, root="/work", header=header)
        reading = asyncio.ensure_future(found_runs.find_run(cell.inner, found))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        assert not reading.done()  # a long log is read beside the loop
        run = await reading
        assert (run.warm_run, run.workdir, run.results) == (
            2,
            "/tmp/x/run-2",
            f"{found.files}/run-2",
        )
        assert await found_runs.find_run(cell.inner, run) is run  # type: ignore[arg-type]
        now = Status(State.RUNNING, ())
        (said,) = returned_values.sentences(found, now)
        assert said.endswith(f"to {found.files}/run-1"), "the newest one with files here"
        nothing = replace(found, folder=str(tmp_path / "other"))
        assert list(returned_values.sentences(nothing, now)) == []

    run(main)


def test_the_newest_run_is_found_by_its_end_alone() -> None:
    class Logs:
        async def log(self, job: Job, replica: Replica) -> bytes:
            return b"many lines\n\n" + marker("0" * 16) + b'{"ev":"end","id":3}\n'

    async def main() -> None:
        cell = Cell()
        await cell.start()
        found = replace(cell.job, warm_run=0, root="/work", header="%warm=10m\n")
        newest = await found_runs.find_run(Logs(), found)  # type: ignore[arg-type]
        assert (newest.warm_run, newest.workdir) == (3, "/tmp/ciao-warm/run-3")

    run(main)


class LoggingReplicas(GivingReplicas):
    """Replicas that have run three programs, and write all that they say into a log."""

    def __init__(self, folder: Path, words: tuple[str, ...] = ("model/", "./same")) -> None:
        super().__init__(OutputWay.LOG, streams(folder))
        self.logs: dict[Replica, bytes] = dict.fromkeys(self.plan.spec.replicas(), b"")
        self.folder = str(folder / "job")
        for one in self.logs:
            self.say(one, ev="ready", host="10.0.0.1", port=1, root="/tmp/x")
            for number in (1, 2, 3):
                self.say(one, ev="begin", id=number)
                self.logs[one] += b"a line\n"
                self.say(one, ev="end", id=number, code=0, why="", gives=True, words=words)
                self.give(one, number)

    def say(self, replica: Replica, **what: Any) -> None:
        self.logs[replica] += b"\n" + marker("0" * 16) + json.dumps(what).encode() + b"\n"

    async def log(self, job: Job, replica: Replica, options: Any = None) -> bytes:
        return self.logs[replica]

    async def found(self) -> Job:
        """Return the job as somebody finds it."""
        job = await self.submit(plan())
        return replace(job, header="%warm=10m\n%output=model/ ./same\n")

    async def follow(self, job: Job, *, since: float = 0.0) -> AsyncIterator[Event]:
        for replica, data in self.logs.items():
            cut = data.index(b"\n", len(data) // 2) + 1
            for part in (data[:cut], data[cut:]):
                yield Output(replica, part, part.count(b"\n"))


async def events(inner: LoggingReplicas, job: Job) -> list[Event]:
    return [event async for event in logs.follow(inner, job)]  # type: ignore[arg-type]


def test_somebody_who_attaches_takes_the_files_of_each_run_out_of_the_log(tmp_path: Path) -> None:
    async def main() -> None:
        inner = LoggingReplicas(tmp_path)
        job = await inner.found()
        # Words of the run, not of the first one: %output may change between runs.
        told = await events(inner, replace(job, header="%warm=10m\n"))
        lines = b"".join(one.data for one in told if isinstance(one, Output))
        assert lines == b"a line\n" * 6
        for number in (1, 2, 3):
            folder = tmp_path / "job" / f"run-{number}"
            assert (folder / "same").read_text() == "the same"
            for name in ("worker-0", "worker-1"):
                assert (folder / name / "model/net").read_text() == name
                said = f"brought back by the log: the files of run {number} of {name}, to {folder}"
                assert Notice(said) in told
        # What is here is not taken again: the user may have changed it.
        (tmp_path / "job/run-2/same").write_text("mine")
        again = await events(inner, job)
        assert [one for one in again if isinstance(one, Notice)] == []
        assert (tmp_path / "job/run-2/same").read_text() == "mine"

    run(main)


@pytest.mark.parametrize("words", [("/etc/",), ("../model/",), (7,), "model/"])
def test_words_of_a_log_lead_out_of_no_folder(words: Any, tmp_path: Path) -> None:
    async def main() -> None:
        inner = LoggingReplicas(tmp_path, words)
        assert not [
            one for one in await events(inner, await inner.found()) if isinstance(one, Notice)
        ]
        assert not (tmp_path / "job").exists()

    run(main)


def test_a_log_without_the_beginning_of_some_files_gives_the_others(tmp_path: Path) -> None:
    async def main() -> None:
        inner = LoggingReplicas(tmp_path)
        for one, data in inner.logs.items():
            lines = data.splitlines(keepends=True)
            begin = next(at for at, line in enumerate(lines) if b'"files"' in line)
            inner.logs[one] = b"".join(lines[begin:])
        await events(inner, await inner.found())
        assert sorted(path.name for path in (tmp_path / "job").glob("run-*")) == ["run-2", "run-3"]

    run(main)


async def fetched(inner: LoggingReplicas, job: Job, number: int | None, *words: str) -> Fetched:
    return await fetching.fetch(
        inner,  # type: ignore[arg-type]
        job,
        job.replicas,
        words,
        Settings(),
        print,
        number,
    )


def test_files_of_an_earlier_run_are_fetched_out_of_the_log(tmp_path: Path) -> None:
    async def main() -> None:
        inner = LoggingReplicas(tmp_path)
        job = await inner.found()

        fetch = partial(fetched, inner, job)
        (said,) = (await fetch(1)).lines
        assert said.startswith("brought back by the log: same (8 bytes, worker-0, worker-1)")
        assert said.endswith("job/run-1")
        (tmp_path / "job/run-1/same").unlink()
        await fetch(1)
        assert (tmp_path / "job/run-1/same").exists(), "it was asked for again"
        await fetch(None)
        assert (tmp_path / "job/run-3/same").exists(), "the newest run"
        with pytest.raises(UsageError, match=r"mine has no run 4: its runs are 1 to 3\."):
            await fetch(4)
        with pytest.raises(UsageError, match="no run 0"):
            await fetch(0)
        with pytest.raises(BackendError, match="worker-0 has no files of run 1 of mine any more"):
            await fetch(1, "other/")
        assert inner.asked == []
        await fetch(2, "model/", "same", "other/")
        assert inner.asked == ["worker-0", "worker-1"], "its folder is still there"
        job = replace(job, header="%output=model/\n")
        with pytest.raises(UsageError, match="mine has no runs"):
            await fetched(inner, job, 1)

    run(main)


class TooLarge(LoggingReplicas):
    """Replicas whose files were too large for their logs."""

    alive = True

    def give(self, replica: Replica, number: int) -> None:
        self.say(replica, ev="given", id=number, fault="they are too large")

    async def execute(self, job: Job, replica: Replica, command: Any, streams: Streams) -> int:
        if not self.alive:
            raise BackendError(f"{replica} has no pod.")
        return await super().execute(job, replica, command, streams)


def test_what_was_too_much_for_a_log_is_fetched_from_replicas_that_still_live(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        inner = TooLarge(tmp_path)
        job, said = await inner.found(), list[Event]()

        async def fetch() -> list[str]:
            del said[:]
            await fetching.fetch(
                inner,  # type: ignore[arg-type]
                job,
                job.replicas,
                (),
                Settings(),
                said.append,
            )
            return [one.text for one in said if isinstance(one, Notice)]

        assert await fetch() == []
        assert (tmp_path / "job/run-3/same").exists()
        (tmp_path / "job/run-3/same").unlink()
        inner.alive = False
        assert await fetch() == [
            f"the files of worker-{number} did not come back: they are too large."
            for number in (0, 1)
        ]

    run(main)


@pytest.mark.parametrize(
    ("ends", "idle"),
    [
        (("end", "end"), True),
        (("ready", "given"), True),
        (("end", "begin"), False),
        (("end", "files"), False),
        (("end", ""), False),
    ],
)
def test_replicas_of_another_kernel_wait_if_no_log_ends_in_a_run(
    ends: tuple[str, str], idle: bool
) -> None:
    class Logs:
        async def log(self, job: Job, replica: Replica, options: LogOptions) -> bytes:
            said = ends[replica.index]
            if not said:
                raise BackendError("there is no log yet.")
            mark = marker("0" * 16) + json.dumps({"ev": said, "id": 3}).encode()
            return b"early\n\n" + mark + b"\nlines\nof a library\n"

    async def main() -> None:
        job = Job("mine", "fake", "tensorflow", plan().spec.replicas(), 1.0, header="%warm=10m")
        logs: Any = Logs()
        assert await found_runs.is_idle(logs, job) is idle
        assert not await found_runs.is_idle(logs, replace(job, header="%worker=2"))

    run(main)


END = {"ev": "end", "id": 1, "code": 0, "why": "", "took": 2.0}


@pytest.mark.parametrize(
    ("ends", "state", "reason"),
    [
        (({}, {}), State.SUCCEEDED, ""),
        (({}, {"code": -15, "why": "stopped"}), State.SUCCEEDED, ""),
        (({"code": 3}, {"code": -15, "why": "stopped"}), State.FAILED, "ReplicaFailed"),
        (({"code": 1}, {"code": 3, "took": 1.0}), State.FAILED, "ReplicaFailed"),
        (({"code": -9, "oom": True}, {}), State.FAILED, "ReplicaFailed"),
        (({"code": 143, "why": "deadline"}, {}), State.FAILED, "DeadlineExceeded"),
        (({"code": -15, "why": "stopped"}, {"code": -15, "why": "stopped"}), State.STOPPED, ""),
        (({"code": -15, "why": "stopped"}, {}), State.STOPPED, ""),
        (({}, {"code": 1, "took": 3.0}), State.SUCCEEDED, ""),  # it lost the one that decides
        (({}, {"code": 1, "took": 1.0}), State.FAILED, "ReplicaFailed"),
    ],
)
def test_the_newest_run_of_idle_replicas_ends_for_who_attaches_as_it_did(
    ends: tuple[dict[str, Any], dict[str, Any]], state: State, reason: str
) -> None:
    class Logs:
        keeps_runs = True

        async def log(self, job: Job, replica: Replica, options: Any = None) -> bytes:
            mark = b"\n" + marker("0" * 16)
            marks = ({"ev": "begin", "id": 1}, {**END, **ends[replica.index]})
            first, last = (mark + json.dumps(one).encode() + b"\n" for one in marks)
            return b"early\n" + first + b"a line\n" + last

        async def find(self, name: str, where: Any) -> tuple[Job, Status]:
            return job, Status(State.RUNNING, tuple(map(ReplicaStatus, job.replicas)))

    header = "%framework=tensorflow\n%worker=2\n%warm=10m"
    job = Job("mine", "fake", "tensorflow", plan().spec.replicas(), 1.0, header=header)

    async def main() -> None:
        found = await ended_run.find(Logs(), job, REGISTRY, Settings())  # type: ignore[arg-type]
        assert found is not None
        events = [event async for event in found.events()]
        assert [one.data for one in events if isinstance(one, Output)] == [b"a line\n"] * 2
        last = events[-1]
        assert isinstance(last, Status)
        assert (last.state, last.reason, last.settled) == (state, reason, True)
        codes = [one.exit_code for one in last.replicas]
        assert codes == [one.get("code", 0) for one in ends]
        if state is State.FAILED:
            assert last.decided_by == job.replicas[1 if codes in ([1, 3], [0, 1]) else 0]

    run(main)


def test_a_run_that_is_active_is_not_shown_as_one_that_is_over(tmp_path: Path) -> None:
    async def main() -> None:
        inner = LoggingReplicas(tmp_path)
        job = await inner.found()
        no = replace(job, header="%worker=2")
        assert await ended_run.find(inner, no, REGISTRY, Settings()) is None  # type: ignore[arg-type]
        inner.say(job.replicas[1], ev="begin", id=4)
        assert await ended_run.find(inner, job, REGISTRY, Settings()) is None  # type: ignore[arg-type]

    run(main)


def test_the_result_of_the_newest_run_is_known_after_its_replicas_have_ended(
    tmp_path: Path,
) -> None:
    class Ended(LoggingReplicas):
        async def find(self, name: str, where: Any) -> tuple[Job, Status]:
            replicas = map(ReplicaStatus, self.logs)
            return await self.found(), Status(State.STOPPED, tuple(replicas), settled=True)

    async def result(inner: Ended, job: Job) -> ended_run.EndedRun | None:
        return await ended_run.find(inner, job, REGISTRY, Settings(), result_only=True)  # type: ignore[arg-type]

    async def main() -> None:
        inner = Ended(tmp_path)
        header = "%framework=tensorflow\n%worker=2\n%warm=10m"
        job = replace(await inner.found(), header=header)
        assert await result(inner, replace(job, replicas=())) is None
        for one in job.replicas:
            inner.say(one, ev="bye", why="asked", code=0)
        found = await result(inner, job)
        assert found is not None
        assert (found.job.warm_run, found.status.state) == (3, State.SUCCEEDED)
        inner.say(job.replicas[0], ev="begin", id=4)
        assert await result(inner, job) is None

    run(main)


def test_paths_of_a_run_are_those_of_its_own_cell(tmp_path: Path) -> None:
    async def main() -> None:
        inner = LoggingReplicas(tmp_path)
        job = replace(await inner.found(), header="%warm=10m\n%output=other/\n")
        await fetched(inner, job, 1, "model/")
        assert (tmp_path / "job/run-1/worker-0/model/net").read_text() == "worker-0"
        await fetched(inner, job, 3)
        assert (tmp_path / "job/run-3/same").exists(), "all that the run gave"
        with pytest.raises(BackendError, match="worker-0 has no files of run 1 of mine any more"):
            await fetched(inner, job, 1, "other/")
        assert inner.asked == []

    run(main)


REFUSED = {
    "detach": "",
    "serve": "=worker",
    "min": "=1",
    "max": "=2",
    "retries": "=2",
    "restartPolicy": "=OnFailure",
    "backoffLimit": "=3",
    "tensorboard": "",
    "cleanPolicy": "=none",
}


def test_the_page_names_all_that_is_refused() -> None:
    page = (Path(__file__).parents[3] / "docs" / "warm.md").read_text(encoding="utf-8")
    names = re.findall(r"`%(\w+)`", page.partition("- Not together with")[2].partition("\n- ")[0])
    assert set(names) == set(REFUSED)
    for name, value in REFUSED.items():
        other = PyTorch() if name in ("min", "max") else TensorFlow()
        header = f"%framework={other.name}\n%worker=2\n%warm\n%{name}{value}\n"
        with pytest.raises(SpecError, match=f"%{name} cannot be combined"):
            framework.check(plan(header).spec, other, forkable=(), deletes=False)


def test_replicas_wait_longer_for_a_silent_kernel_between_runs_than_at_the_end_of_one() -> None:
    pool = WarmPool()
    assert (pool.lease, pool.run_lease) == (300.0, 90.0)
