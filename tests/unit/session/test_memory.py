"""Advice about memory: from recorded series, and when a replica is read at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from ciao_kernel.errors import BackendError, ClusterFault, Refused
from ciao_kernel.model import Job, Output, Replica, ReplicaStatus, State, Status
from ciao_kernel.model.usage import Usage
from ciao_kernel.session.inspection import memory_advice
from ciao_kernel.session.inspection.memory_advice import Point
from ciao_kernel.session.inspection.memory_watch import MemoryWatch, memory_watch
from tests.helpers.jobs import wait

MI = 1024 * 1024
ONE, TWO = Replica("worker", 0), Replica("worker", 1)
HEADER = "%framework=pytorch\n%worker=2;%memory=256Mi\n"
JOB = Job(
    "mine", "kubernetes", "pytorch", (ONE, TWO), 0.0, "team",
    kind_of_place="namespace", header=HEADER,
)  # fmt: skip
LEAK = [(9, None), (60, None), (122, 0), (140, 8), (172, 16), (180, 24), (211, 32), (244, 60)]
"""MiB and step, every two seconds, of a program that keeps something of each step."""


def series(found: Iterable[tuple[int, int | None]]) -> list[Point]:
    return [Point(2.0 * n, mi * MI, mi * MI, 256 * MI, step) for n, (mi, step) in enumerate(found)]


def advice(*found: tuple[int, int | None], memory: str = "256Mi") -> str:
    return memory_advice.after_kill(ONE, memory, series(found))


def test_a_series_that_grows_names_its_growth_a_step() -> None:
    assert advice(*LEAK) == (
        "worker-0 asked for %memory=256Mi and stood at 244Mi at step 60, after a growth of 2.0Mi "
        "a step: try %memory=512Mi, or find out what the program keeps."
    )


def test_without_steps_it_names_the_growth_a_second() -> None:
    found = [(mi, None) for mi, _ in LEAK]
    assert "stood at 244Mi after a growth of 13Mi a second: try %memory=512Mi" in advice(*found)


def test_steps_that_begin_again_are_no_measure() -> None:
    found = [(mi, number % 3) for number, (mi, _) in enumerate(LEAK)]
    assert " a second: try %memory=512Mi" in advice(*found)


@pytest.mark.parametrize(
    "found",
    [
        [(9, None), (120, None), (121, 0), (120, 8), (121, 16), (120, 24), (121, 32)],
        [(9, None), (120, None), (120, None), (120, None), (120, None), (120, None)],
        [(9, 0), (120, 1), (120, 2), (120, 3), (120, 4), (120, 5)],  # only its start grows
        [(90, 0), (90, 1), (90, 2), (90, 3), (230, 4)],  # and only its end
    ],
)
def test_a_flat_series_that_jumped_asks_for_half_as_much_again(
    found: list[tuple[int, int | None]],
) -> None:
    stood = found[-1][0]
    assert advice(*found) == (
        f"worker-0 asked for %memory=256Mi and stood at {stood}Mi until its last seconds, so it "
        "took much more at once: try %memory=384Mi, or smaller batches."
    )


def test_a_few_readings_tell_nothing() -> None:
    assert advice(*LEAK[-3:]) == ""
    assert advice() == ""


def test_a_quantity_that_cannot_be_read_is_not_multiplied() -> None:
    assert "try a higher %memory, or" in advice(*LEAK, memory="1e9")
    assert "try %memory=3Gi, or" in advice(*LEAK, memory="1.5Gi")


def test_a_peak_below_the_half_is_named() -> None:
    low = series([(9, None), *[(90, None)] * 5])
    text = "each worker used at most 90Mi of its %memory=256Mi."
    most = {ONE: 90 * MI, TWO: 80 * MI}
    assert memory_advice.after_success(JOB, {ONE: low, TWO: low}, most) == text
    alone = replace(JOB, replicas=(ONE,))
    told = memory_advice.after_success(alone, {ONE: low}, most)
    assert told.startswith("worker-0 used at most 90Mi")
    assert memory_advice.after_success(JOB, {ONE: low, TWO: low}, most | {TWO: 129 * MI}) == ""
    assert memory_advice.after_success(JOB, {ONE: low, TWO: low[:4]}, most) == ""
    assert memory_advice.after_success(JOB, {ONE: low}, most) == ""


class Readings:
    """Gives one command's readings after the other, without a peak, as older kernels of Linux do.

    Args:
        commands: MiB, of each command; the last one lasts.
    """

    name = "fake"

    def __init__(self, *commands: list[int]) -> None:
        self.commands = list(commands)

    async def watch_usage(
        self, job: Job, replica: Replica, note: Callable[[Usage], None], *, gpus: bool = False
    ) -> None:
        for mi in self.commands.pop(0):
            note(Usage(replica, None, mi * MI, limit=256 * MI))
        if self.commands:
            raise ClusterFault("cut")
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("commands", "told"),
    [
        ([[90] * 9], "worker-0 used at most 90Mi of its %memory=256Mi."),
        ([[90] * 9, [40] * 9], "worker-0 used at most 90Mi of its %memory=256Mi."),
        ([[240] * 9 + [90] * 1000], ""),  # more than are kept for advice after a kill
        ([[240], [90] * 9], ""),
    ],
    ids=["one", "highest", "long", "cut"],
)
def test_the_highest_reading_counts_however_long_ago(commands: list[list[int]], told: str) -> None:
    async def main() -> str:
        backend = Readings(*commands)
        job = replace(JOB, replicas=(ONE,))
        made = MemoryWatch(job, backend, {ONE: "256Mi"}, first=0.0, again=0.0)
        async with made.watching():
            made.note(running(ONE))
            await wait(lambda: not backend.commands)
            await asyncio.sleep(0)
        return made.after_success()

    assert asyncio.run(main()) == told


class Cluster:
    """Gives readings, and ends each command with an error or not.

    Args:
        readings: MiB, for each command.
        error: How a command ends; None: it lasts.
    """

    name = "fake"

    def __init__(self, *readings: int, error: Exception | None = None) -> None:
        self.readings, self.error = readings, error
        self.begun: list[Replica] = []
        self.gpus = False
        self.cancelled = 0

    async def watch_usage(
        self, job: Job, replica: Replica, note: Callable[[Usage], None], *, gpus: bool = False
    ) -> None:
        self.begun.append(replica)
        self.gpus = gpus
        for mi in self.readings:
            note(Usage(replica, None, mi * MI, mi * MI, 256 * MI))
        if self.error:
            raise self.error
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            await asyncio.Event().wait()  # the server never answers that it is closed


def running(*replicas: Replica) -> Status:
    return Status(State.RUNNING, tuple(ReplicaStatus(one, State.RUNNING) for one in replicas))


def watch(cluster: Cluster) -> MemoryWatch:
    limits = {ONE: "256Mi", TWO: "256Mi"}
    return MemoryWatch(JOB, cluster, limits, first=0.0, again=0.0)


def test_each_replica_has_one_command_which_holds_nothing_up() -> None:
    cluster = Cluster(122, 140, 160, 180, 211, 244)
    made = watch(cluster)

    async def main() -> None:
        async with made.watching():
            made.note(running(ONE))
            made.note(running(ONE))
            await wait(lambda: cluster.begun)
            assert cluster.begun == [ONE]
            made.note(running(ONE, TWO))
            await wait(lambda: len(cluster.begun) == 2)

    asyncio.run(main())  # it returns
    assert cluster.begun == [ONE, TWO]
    assert cluster.cancelled == 2
    assert "after a growth of" in made.after_kill(ONE)
    assert made.after_kill(Replica("ps", 0)) == ""
    made.note(running(ONE))  # behind the end: there is no loop either
    assert cluster.begun == [ONE, TWO]


def test_who_may_not_enter_a_replica_does_not_ask_again() -> None:
    cluster = Cluster(error=Refused("no", code=403))
    made = watch(cluster)

    async def main() -> None:
        async with made.watching():
            for _ in range(40):
                made.note(running(ONE))
                await asyncio.sleep(0)

    asyncio.run(main())
    assert cluster.begun == [ONE]
    assert made.after_kill(ONE) == ""


class Night:
    """Pauses that are over at once, and a clock that they move.

    Args:
        endless: Pauses of so many seconds last until the end of the test.
    """

    def __init__(self, endless: float = float("inf")) -> None:
        self.endless = endless
        self.now = 0.0
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await (asyncio.Event().wait() if seconds >= self.endless else asyncio.sleep(0))
        self.now += seconds


class Breaking(Cluster):
    """Each of its commands lasts for some seconds, and breaks then."""

    def __init__(self, night: Night, error: Exception, *seconds: float) -> None:
        super().__init__(error=error)
        self.night, self.seconds = night, list(seconds)

    async def watch_usage(
        self, job: Job, replica: Replica, note: Callable[[Usage], None], *, gpus: bool = False
    ) -> None:
        self.night.now += self.seconds.pop(0) if self.seconds else 0.0
        await super().watch_usage(job, replica, note, gpus=gpus)


@pytest.mark.parametrize(
    "error",
    [
        Refused("sign in", code=401),
        Refused("no Python", code=500),
        ClusterFault("cut"),
        BackendError("it ended"),
    ],
)
def test_a_command_that_ends_is_begun_again_with_growing_pauses(error: Exception) -> None:
    async def main() -> tuple[Night, Cluster]:
        night = Night()
        cluster = Breaking(night, error, *[0.0] * 9, 40.0)
        made = MemoryWatch(
            JOB,
            cluster,
            {ONE: ""},
            first=2.0,
            again=5.0,
            sleep=night.sleep,
            clock=lambda: night.now,
        )
        async with made.watching():
            made.note(running(ONE))
            await wait(lambda: len(night.pauses) > 12)
        return night, cluster

    night, cluster = asyncio.run(main())
    assert night.pauses[:10] == [2, 5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert night.pauses[10:13] == [5, 10, 20]  # after one that has lasted
    assert len(cluster.begun) >= 12


def test_the_next_container_of_a_replica_is_not_held_up_by_a_pause() -> None:
    async def main() -> list[Replica]:
        night = Night(endless=20.0)
        cluster = Cluster(error=ClusterFault("cut"))
        made = MemoryWatch(
            JOB, cluster, {ONE: ""}, first=0.0, again=5.0, sleep=night.sleep,
            clock=lambda: night.now,
        )  # fmt: skip
        async with made.watching():
            made.note(running(ONE))
            await wait(lambda: night.pauses[-1:] == [20.0])
            made.note(running(TWO))
            made.note(running(ONE))
            await wait(lambda: night.pauses[-1] == 40.0)
        return cluster.begun

    assert asyncio.run(main()) == [ONE] * 4


def test_the_series_of_a_container_begins_with_its_first_reading() -> None:
    cluster = Cluster(120, 121, 120, 121, 120, error=ClusterFault("cut"))
    made = watch(cluster)

    async def main() -> None:
        async with made.watching():
            made.note(running(ONE))
            await wait(lambda: cluster.begun)
            cluster.readings = ()  # the next container was never read
            await wait(lambda: len(cluster.begun) >= 4)

    asyncio.run(main())
    assert "stood at 120Mi until its last seconds" in made.after_kill(ONE)


@pytest.mark.parametrize(
    ("data", "step"),
    [
        (b"step 60 loss 0.1\n", 60),
        (b"Step: 7\nepoch 2 step=8\n", 8),
        (b" 12/1000 [====>..] - loss: 3\n", 12),
        (b"it begins\n", None),
        (b"2026/01/02 10:00 steps: 9 1.5/3\n", None),
        (b"global_step 5, step time 9\n", 5),
        (b"step 60 epoch 1/3 loss 0.3\n", 60),
        (b"step=60 acc 9900/10000\n", 60),
        (b"[rank 0] step 60 mem 3/80\n", 60),
        (b"step 60 batch 3/80\n", 60),
        (b"60/1000 [00:01<00:05, 2.00it/s, val_acc=9/10]\n", 60),
        (b"step 60\nEpoch [1/3], accuracy: 9/10\n", 60),
        (b" 5/10 [00:01]\r 6/10 [00:02]\r", 6),
    ],
)
def test_the_step_of_a_line(data: bytes, step: int | None) -> None:
    made = watch(Cluster())
    made.note(Output(ONE, data, 1))
    assert made._steps.get(ONE) == step


@pytest.mark.parametrize(
    ("header", "count", "setting", "reads"),
    [
        (HEADER, 16, "on", True),
        (HEADER, 17, "on", False),
        (HEADER, 2, "off", False),
        (f"{HEADER}%inspect=off\n", 2, "on", False),
        (f"{HEADER}%inspect=on\n", 2, "off", True),
        ("%framework=pytorch\n%worker=2\n", 2, "on", False),
        ("%framework=pytorch\n%worker=2\n%ps=1;%memory=1Gi\n", 2, "on", False),
    ],
)
def test_only_few_replicas_with_a_limit_are_read(
    header: str, count: int, setting: str, reads: bool
) -> None:
    replicas = tuple(Replica("worker", number) for number in range(count))
    job = replace(JOB, header=header, replicas=replicas)
    assert (memory_watch(job, Cluster(), setting) is not None) is reads  # type: ignore[arg-type]
    assert memory_watch(job, object(), setting) is None  # type: ignore[arg-type]
