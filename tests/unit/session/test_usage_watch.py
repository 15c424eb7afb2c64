"""What asks for the columns of %usage: when, how often, and what it tells if there are none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, CiaoError, ClusterFault, NoSuchJob
from ciao_kernel.magics.directives import usage_columns
from ciao_kernel.model import Event, Job, Notice, Replica, ReplicaStatus, State, Status
from ciao_kernel.model.usage import Usage, UsageReport
from ciao_kernel.session.inspection.memory_watch import memory_watch
from ciao_kernel.session.inspection.usage_watch import PATIENCE_NEW, UsageWatch
from ciao_kernel.session.inspection.watchers import watchers
from tests.helpers.jobs import wait

ONE, TWO = Replica("worker", 0), Replica("worker", 1)
JOB = Job("mine", "fake", "python", (ONE, TWO), 0.0, header="%framework=python\n%worker=2\n")


def status(*running: Replica, state: State = State.RUNNING) -> Status:
    return Status(state, tuple(ReplicaStatus(one, State.RUNNING) for one in running))


class Machine:
    """Answers each question with the next of some answers, and the last one again and again."""

    name = "fake"

    def __init__(self, *answers: Usage | CiaoError) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Replica, ...]] = []

    async def usage(self, job: Job, replicas: Sequence[Replica]) -> UsageReport:
        self.asked.append(tuple(replicas))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, CiaoError):
            raise answer
        return UsageReport((answer,))


class Reading(Machine):
    """Also has lasting commands."""

    async def watch_usage(
        self, job: Job, replica: Replica, note: Callable[[Usage], None], *, gpus: bool = False
    ) -> None:
        note(Usage(replica, 1.0, len(self.asked), gpus=()))
        await asyncio.Event().wait()


class Watched:
    """A watch with short pauses, and what it has shown."""

    def __init__(self, backend: object, pause: float = 0.01) -> None:
        self.shown: list[Event] = []
        self.watch = UsageWatch(
            JOB,
            backend,  # type: ignore[arg-type]
            self.shown.append,
            first=0.0,
            pause=pause,
        )

    @property
    def reports(self) -> list[UsageReport]:
        return [event for event in self.shown if isinstance(event, UsageReport)]

    @property
    def texts(self) -> list[str]:
        return [event.text for event in self.shown if isinstance(event, Notice)]


def test_the_replicas_that_run_are_asked_in_turns_by_one_question() -> None:
    machine = Machine(Usage(ONE, 0.5, 100))
    made = Watched(machine)

    async def main() -> None:
        async with made.watch.watching():
            await asyncio.sleep(0.05)
            assert not machine.asked  # nothing runs
            made.watch.note(status(ONE, TWO))
            await wait(lambda: len(made.reports) > 2)
            made.watch.note(status(TWO))
            await wait(lambda: machine.asked[-1] == (TWO,))
            made.watch.note(status(TWO, state=State.FAILED))  # its end
            await asyncio.sleep(0.05)
            ended = len(machine.asked)
            await asyncio.sleep(0.05)
            assert len(machine.asked) == ended

    asyncio.run(main())
    assert machine.asked[0] == (ONE, TWO)
    assert made.reports[0].replicas == (Usage(ONE, 0.5, 100),)
    assert not made.texts


@pytest.mark.parametrize(
    ("backend", "text"),
    [
        (Machine(BackendError("no right.", "Ask.")), "no right. Ask."),
        (object(), "the backend"),
        (Machine(Usage(ONE, fault="it has no Python")), "worker-0: it has no Python."),
    ],
)
def test_why_there_are_no_numbers_is_said_once(backend: object, text: str) -> None:
    if not isinstance(backend, Machine):
        backend = type("Bare", (), {"name": "bare"})()
        text = "the backend bare cannot measure what its replicas use."
    made = Watched(backend)

    async def main() -> None:
        async with made.watch.watching():
            made.watch.note(status(ONE))
            await wait(lambda: made.texts)
            await asyncio.sleep(0.05)

    asyncio.run(main())
    (said,) = made.texts
    assert said.startswith(f"The columns of %usage are empty: {text}")
    assert not made.reports
    if isinstance(backend, Machine):
        assert len(backend.asked) == 3


@pytest.mark.parametrize("answer", [BackendError("slow."), Usage(ONE, fault="it has no answer")])
def test_two_answers_without_numbers_are_no_reason_to_stop(answer: Usage | CiaoError) -> None:
    made = Watched(Machine(answer, answer, Usage(ONE, 0.5, 100)))

    async def main() -> None:
        async with made.watch.watching():
            made.watch.note(status(ONE))
            await wait(lambda: made.reports or made.texts)

    asyncio.run(main())
    assert made.reports[0].replicas == (Usage(ONE, 0.5, 100),)
    assert not made.texts


NEW = Usage(ONE, fault="it is not measured yet", awaited=True)


def test_new_pods_are_measured_after_some_minutes() -> None:
    passing = BackendError("slow.")
    made = Watched(Machine(*[NEW] * 10, passing, passing, NEW, Usage(ONE, 0.5, 100)))

    async def main() -> None:
        async with made.watch.watching():
            made.watch.note(status(ONE))
            await wait(lambda: made.reports or made.texts)

    asyncio.run(main())
    assert made.reports[0].replicas == (Usage(ONE, 0.5, 100),)
    assert not made.texts


def test_new_pods_are_not_waited_for_for_ever() -> None:
    machine = Machine(NEW)
    made = Watched(machine)

    async def main() -> None:
        async with made.watch.watching():
            made.watch.note(status(ONE))
            await wait(lambda: made.texts)

    asyncio.run(main())
    assert len(machine.asked) == PATIENCE_NEW
    assert made.texts == ["The columns of %usage are empty: worker-0: it is not measured yet."]


@pytest.mark.parametrize("error", [BackendError("slow."), ClusterFault("cut")])
def test_old_numbers_go_after_some_errors_and_new_ones_come(error: CiaoError) -> None:
    made = Watched(Machine(Usage(ONE, 0.5, 100), *[error] * 5, Usage(ONE, 0.7, 200)))

    async def main() -> None:
        async with made.watch.watching():
            made.watch.note(status(ONE))
            await wait(lambda: len(made.reports) > 2 or made.texts)

    asyncio.run(main())
    assert [one.replicas for one in made.reports[:3]] == [
        (Usage(ONE, 0.5, 100),),
        (Usage(ONE),),
        (Usage(ONE, 0.7, 200),),
    ]
    assert not made.texts


@pytest.mark.parametrize("error", [ClusterFault("cut"), NoSuchJob("gone")])
def test_an_outage_is_told_by_others(error: CiaoError) -> None:
    made = Watched(Machine(error, error, error, error, Usage(ONE, 0.5, 100)))

    async def main() -> None:
        async with made.watch.watching():
            made.watch.note(status(ONE))
            await wait(lambda: made.reports)

    asyncio.run(main())
    assert not made.texts


def test_readings_of_lasting_commands_are_shown_without_a_question() -> None:
    machine = Machine(Usage(ONE, 0.5, 100))
    made = Watched(machine, pause=1.0)
    made.watch.waits = 100_000

    async def main() -> None:
        async with made.watch.watching():
            made.watch.note(status(ONE, TWO))
            made.watch.take(Usage(ONE, 2.0, 50))
            made.watch.take(Usage(TWO, 3.0, 60))
            await wait(lambda: made.reports)
            made.watch.waits = 1
            old = time.monotonic() - 100
            made.watch._readings = {ONE: (old, Usage(ONE, 2.0, 50))}
            await wait(lambda: machine.asked)

    asyncio.run(main())
    assert made.reports[0].replicas == (Usage(ONE, 2.0, 50), Usage(TWO, 3.0, 60))


def test_a_replica_whose_lasting_command_has_ended_keeps_no_old_numbers() -> None:
    made = Watched(Machine(Usage(ONE, 0.5, 100)), pause=1.0)

    async def main() -> None:
        async with made.watch.watching():
            made.watch.note(status(ONE, TWO))
            made.watch.take(Usage(ONE, 2.0, 50))
            made.watch._readings[TWO] = time.monotonic() - 100, Usage(TWO, 3.0, 60)
            await wait(lambda: made.reports)

    asyncio.run(main())
    assert made.reports[0].replicas == (Usage(ONE, 2.0, 50), Usage(TWO))


def test_a_question_that_lasts_does_not_hold_up_the_end() -> None:
    class Slow(Machine):
        async def usage(self, job: Job, replicas: Sequence[Replica]) -> UsageReport:
            self.asked.append(tuple(replicas))
            await asyncio.Event().wait()
            raise AssertionError

    machine = Slow()
    made = Watched(machine)

    async def main() -> None:
        async with made.watch.watching():
            made.watch.note(status(ONE))
            await wait(lambda: machine.asked)

    asyncio.run(main())  # it returns
    assert not made.shown


def test_only_a_wish_asks_and_attach_asks_too() -> None:
    for header, setting, wanted in (
        ("", "off", False),
        ("%usage=on\n", "off", True),
        ("", "on", True),
        ("%usage=off\n", "on", False),
    ):
        job = replace(JOB, header=JOB.header + header)
        assert usage_columns.has_usage_columns(job.header, setting) is wanted
        settings = Settings(usage=setting)
        made = watchers(job, Reading(Usage(ONE)), lambda _: None, settings, None)  # type: ignore[arg-type]
        assert (made.usage is not None) is wanted
        assert (made.memory is not None) is wanted
        if made.usage:
            assert made.usage.waits
        plain = watchers(job, Machine(Usage(ONE)), lambda _: None, settings, None)  # type: ignore[arg-type]
        assert plain.memory is None
        assert (plain.usage is not None) is wanted
        if plain.usage:
            assert not plain.usage.waits


def test_of_many_replicas_there_are_no_lasting_commands() -> None:
    few = tuple(Replica("worker", number) for number in range(16))
    many = (*few, Replica("worker", 16))
    backend = Reading(Usage(ONE))
    for replicas, lasting in ((few, True), (many, False)):
        job = replace(JOB, replicas=replicas)
        found = memory_watch(job, backend, "off", usage=lambda _: None)  # type: ignore[arg-type]
        assert (found is not None) is lasting


@pytest.mark.parametrize(
    ("line", "has"),
    [
        ("%worker=2;%gpu=1", True),
        ("%gpu=amd.com/gpu:2", True),
        ("%gpu=0", False),
        ("%worker=2;%gpu=0;%cpu=1", False),
        ("%args='a;%gpu=1'", False),
        ("%args=%gpu=1", False),
        ("", False),
    ],
)
def test_a_header_that_asks_for_gpus(line: str, has: bool) -> None:
    assert usage_columns.has_gpus(f"%framework=python\n{line}\n%cpu=1\n") is has
