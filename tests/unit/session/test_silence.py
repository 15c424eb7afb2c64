"""The picture that comes by itself: when, and once."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from ciao_kernel import background
from ciao_kernel.backends.kubernetes.states import job_status
from ciao_kernel.delivery.inspection.breakpoints import Breakpoint
from ciao_kernel.errors import BackendError
from ciao_kernel.model import (
    Event,
    Job,
    Notice,
    Output,
    Replica,
    ReplicaStatus,
    State,
    Status,
)
from ciao_kernel.model.stacks import Answer, Frame, ProcessStacks, ReplicaStacks, ThreadStack
from ciao_kernel.model.status import QUEUED, SUSPENDED
from ciao_kernel.plugins import Elsewhere
from ciao_kernel.session.inspection.prompts import Prompts
from ciao_kernel.session.inspection.silence import SilenceWatch, is_inspected
from ciao_kernel.session.inspection.watchers import Watchers
from tests.helpers.jobs import wait

ONE = Replica("worker", 0)
RUNNING = Status(State.RUNNING, ())
LINE = Output(ONE, b"step 1\n", 1)


class Backend:
    """Has one replica, which stands at the lines of a list, one after the other."""

    name = "fake"

    def __init__(self, *lines: int, error: Exception | None = None) -> None:
        self.lines, self.error = list(lines), error
        self.asked = 0
        self.answers = asyncio.Event()
        self.answers.set()

    async def stacks(self, job: Job, replicas: Sequence[Replica]) -> list[ReplicaStacks]:
        self.asked += 1
        await self.answers.wait()
        if self.error:
            raise self.error
        line = self.lines.pop(0) if len(self.lines) > 1 else self.lines[0]
        frame = Frame("/ciao/program.py", line, "train", own=True)
        thread = ThreadStack("MainThread", True, (frame,))
        return [ReplicaStacks(ONE, (ProcessStacks(1, 0, Answer.PYTHON, (thread,)),))]


class Watched:
    """A watch, and what it has shown."""

    def __init__(
        self,
        backend: Backend,
        limit: float = 0.2,
        deadline: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        created: float = 0.0,
        kind_of_place: str = "folder",
        status: Status = RUNNING,
    ) -> None:
        self.shown: list[Event] = []
        job = Job(
            "mine", "fake", "python", (ONE,), created or time.time(), program="/ciao/program.py",
            kind_of_place=kind_of_place,
        )  # fmt: skip
        self.watch = SilenceWatch(job, backend, self.shown.append, limit, deadline, clock)  # type: ignore[arg-type]
        self.watch.note(status)

    @property
    def texts(self) -> list[str]:
        return [event.text for event in self.shown if isinstance(event, Notice)]


def test_two_equal_pictures_are_shown_once_for_a_silence() -> None:
    backend = Backend(5)

    async def main() -> list[str]:
        made = Watched(backend)
        async with made.watch.watching():
            made.watch.note(LINE)
            await wait(lambda: made.texts)
            await asyncio.sleep(0.5)
        return made.texts

    (text,) = asyncio.run(main())
    assert re.match(r"no line for \d+s; where the replicas of mine stand at ", text)
    assert text.endswith("\n  worker-0  line 5 in train")
    assert backend.asked == 2


def test_a_replica_that_moves_is_left_alone_until_it_stands_still() -> None:
    backend = Backend(1, 2, 3, 4, 9, 9)

    async def main() -> str:
        made = Watched(backend)
        async with made.watch.watching():
            made.watch.note(LINE)
            await wait(lambda: made.texts)
        return made.texts[0]

    assert asyncio.run(main()).endswith("line 9 in train")
    assert backend.asked == 6


@pytest.mark.parametrize(
    "prepare",
    [
        lambda watch: watch.note(Status(State.PENDING, ())),  # an image is pulled
        lambda watch: (watch.note(LINE), watch.note(Status(State.FAILED, ()))),
        lambda watch: (watch.note(LINE), watch.note(Status(State.RUNNING, (), decided=True))),
        lambda watch: [watch.note(one) for one in (LINE,)] and setattr(watch, "_longest", 60.0),
    ],
    ids=["pending", "over", "decided", "usual-pause"],
)
def test_a_silence_that_is_usual_is_not_told(prepare: Callable[[SilenceWatch], object]) -> None:
    backend = Backend(5)

    async def main() -> list[str]:
        made = Watched(backend)
        async with made.watch.watching():
            prepare(made.watch)
            await asyncio.sleep(0.6)
        return made.texts

    assert asyncio.run(main()) == []
    assert backend.asked == 0


def test_a_job_that_has_only_begun_shows_one_notice_and_none_while_it_is_pending() -> None:
    """Ranks that wait for each other before they have written a line."""
    backend = Backend(5)

    async def main() -> list[str]:
        made = Watched(backend, status=Status(State.PENDING, ()))
        async with made.watch.watching():
            await asyncio.sleep(0.5)
            assert not backend.asked
            made.watch.note(RUNNING)
            await wait(lambda: made.texts)
            made.watch.note(RUNNING)
            await asyncio.sleep(0.5)
        return made.texts

    assert len(asyncio.run(main())) == 1
    assert backend.asked == 2


def test_before_the_first_line_the_silence_counts_from_the_newest_start() -> None:
    clock = Clock()
    watch = Watched(Backend(5), limit=300.0, clock=clock, status=of_replicas("r.")).watch
    clock.now = 200.0
    watch.note(of_replicas("rr"))  # the image of a replica took long
    clock.now = 250.0
    watch.note(of_replicas("rr"))
    watch.note(of_replicas("r."))  # it starts again, which is no first start
    watch.note(of_replicas("rr"))
    assert watch.silent_for == 50.0
    watch.note(LINE)
    assert watch._longest == 0.0, "the start is no measure of how the program writes"


def test_replicas_that_wait_for_one_without_a_node_are_not_shown() -> None:
    """They have written nothing yet; the table says for what it waits."""
    backend = Backend(5)

    async def main() -> list[str]:
        made = Watched(backend, status=of_replicas(".."))
        async with made.watch.watching():
            made.watch.note(of_replicas("r."))
            await asyncio.sleep(0.5)
            assert not backend.asked
            made.watch.note(of_replicas("rr"))
            await wait(lambda: made.texts)
        return made.texts

    assert len(asyncio.run(main())) == 1


def of_replicas(states: str) -> Status:
    """A status of a job: ``r`` is a replica that runs, ``.`` one that is pending."""
    of = {"r": State.RUNNING, ".": State.PENDING}
    found = (ReplicaStatus(Replica("worker", at), of[one]) for at, one in enumerate(states))
    return Status(State.RUNNING, tuple(found))


def test_a_prompt_delays_the_notice_until_after_its_end() -> None:
    backend = Backend(5)

    async def main() -> None:
        made = Watched(backend, limit=0.1)
        looked: list[float] = []
        paused = True

        async def look() -> None:
            looked.append(time.monotonic())

        made.watch.pauses = lambda: paused
        made.watch.forget_killed = look
        async with made.watch.watching():
            made.watch.note(LINE)
            await wait(lambda: len(looked) > 2)
            assert not backend.asked
            assert all(after - before > 0.04 for before, after in pairwise(looked))
            paused = False
            await wait(lambda: made.texts)
            assert time.monotonic() - looked[-1] > 0.1

    asyncio.run(main())


class Clock:
    """Seconds that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def needed_after(
    expected: Callable[[SilenceWatch], object],
    then: Callable[[SilenceWatch], object],
    *,
    line_between: bool = False,
) -> float:
    """The longest silence of a job that was expected to be silent for an hour, after a minute."""
    clock = Clock()
    watch = Watched(Backend(5), limit=300.0, clock=clock).watch
    watch.note(LINE)
    clock.now += 60.0
    watch.note(LINE)
    clock.now += 5.0
    expected(watch)
    clock.now += 1800.0
    if line_between:
        watch.note(LINE)
    clock.now += 1800.0
    then(watch)
    watch.note(LINE)
    return watch._longest


def prompt_opens(watch: SilenceWatch) -> None:
    watch.pauses = lambda: True


def prompt_is_noted(watch: SilenceWatch) -> None:
    prompt_opens(watch)
    watch.note_pause()


def prompt_closes(watch: SilenceWatch) -> None:
    watch.pauses = lambda: False


PAUSES: dict[str, tuple[Callable[[SilenceWatch], object], Callable[[SilenceWatch], object]]] = {
    "queue": (
        lambda watch: watch.note(Status(State.PENDING, (), reason=QUEUED)),
        lambda watch: watch.note(RUNNING),
    ),
    "suspended": (
        lambda watch: watch.note(Status(State.PENDING, (), reason=SUSPENDED)),
        lambda watch: watch.note(RUNNING),
    ),
    "retry": (lambda watch: None, lambda watch: watch.note(replace(RUNNING, tries=2))),
    "prompt": (prompt_is_noted, prompt_closes),
    "prompt-open": (prompt_opens, lambda watch: None),
}


@pytest.mark.parametrize(
    ("pause", "line_between"),
    # A line between two tries is one of the earlier try.
    [*((one, False) for one in PAUSES), *((one, True) for one in PAUSES if one != "retry")],
)
def test_a_silence_that_is_expected_is_no_measure_for_later_ones(
    pause: str, line_between: bool
) -> None:
    assert needed_after(*PAUSES[pause], line_between=line_between) == 60.0


def test_a_silence_of_the_running_program_is_a_measure() -> None:
    assert needed_after(lambda watch: None, lambda watch: None) == 3605.0


def test_a_prompt_that_is_open_for_a_while_between_two_lines_is_noted() -> None:
    clock = Clock()
    made = Watched(Backend(5), limit=300.0, clock=clock)
    backend: Any = made.watch._backend
    prompts = Prompts(made.watch._job, backend, Elsewhere(), made.shown.append)
    made.watch.pauses = lambda: prompts.active
    watched = Watchers(silence=made.watch, prompts=prompts)
    watched.note(LINE)
    watched.note_breakpoint(ONE, Breakpoint(31, "line 7"))
    clock.now += 240.0
    watched.note_breakpoint(ONE, Breakpoint(31, "line 7", over=True))
    watched.note(LINE)
    assert made.watch._longest == 0.0


def test_the_silence_counts_anew_when_the_job_runs_again() -> None:
    clock = Clock()
    watch = Watched(Backend(5), limit=300.0, clock=clock).watch
    watch.note(LINE)
    watch.note(Status(State.PENDING, (), reason=SUSPENDED))
    clock.now = 3600.0
    watch.note(RUNNING)
    clock.now = 3604.0
    assert watch.silent_for == 4.0


def test_a_hang_after_a_prompt_is_told_although_the_prompt_was_open_for_long() -> None:
    async def main() -> None:
        made = Watched(Backend(5), limit=0.2)
        paused = True
        looks = 0

        async def look() -> None:
            nonlocal looks
            looks += 1

        made.watch.pauses = lambda: paused
        made.watch.forget_killed = look
        async with made.watch.watching():
            made.watch.note(LINE)
            await wait(lambda: looks > 4)
            paused = False
            made.watch.note(LINE)
            assert made.watch._longest == 0.0
            await wait(lambda: made.texts)

    asyncio.run(main())


def test_the_notice_comes_although_a_process_was_killed_at_its_prompt() -> None:
    async def main() -> None:
        made = Watched(Backend(5), limit=0.1)
        waits = {31}

        async def look() -> None:
            waits.clear()

        made.watch.pauses = lambda: bool(waits)
        made.watch.forget_killed = look
        async with made.watch.watching():
            made.watch.note(LINE)
            await wait(lambda: made.texts)
        assert not waits

    asyncio.run(main())


def test_a_setting_switches_the_notice_off() -> None:
    backend = Backend(5)

    async def main() -> None:
        made = Watched(backend, limit=0.0)
        async with made.watch.watching():
            made.watch.note(LINE)
            await asyncio.sleep(0.3)

    asyncio.run(main())
    assert backend.asked == 0


def test_without_a_right_the_notice_comes_without_a_picture() -> None:
    backend = Backend(error=BackendError("you lack the right to get pods/exec."))

    async def main() -> list[str]:
        made = Watched(backend)
        async with made.watch.watching():
            made.watch.note(LINE)
            await wait(lambda: made.texts)
            await asyncio.sleep(0.3)
        return made.texts

    (text,) = asyncio.run(main())
    assert re.fullmatch(
        r"mine has not written a line for \d+s\. Where its replicas stand is unknown: "
        r"you lack the right to get pods/exec\.",
        text,
    )


def test_a_stop_waits_for_a_picture_for_half_a_second_at_most() -> None:
    async def main(*, late: bool) -> tuple[list[str], list[str]]:
        backend = Backend(5)
        made = Watched(backend, limit=0.1)
        if late:
            backend.answers.clear()
        await asyncio.sleep(0.2)
        async with asyncio.timeout(30):
            await made.watch.show_before_stop()
        first = made.texts
        backend.answers.set()
        await background.wait_until_idle(10)
        return first, made.texts

    first, _ = asyncio.run(main(late=False))
    assert len(first) == 1
    first, last = asyncio.run(main(late=True))
    assert (len(first), len(last)) == (0, 1)


def test_the_stop_of_a_job_that_writes_shows_nothing() -> None:
    backend = Backend(5)

    async def main() -> list[str]:
        made = Watched(backend, limit=300.0)
        made.watch.note(LINE)
        await made.watch.show_before_stop()
        return made.texts

    assert asyncio.run(main()) == []
    assert backend.asked == 0


def fast() -> float:
    """A clock for which a job is silent for long at once."""
    return 1000 * time.monotonic()


def test_the_picture_before_a_deadline_is_shown_after_it() -> None:
    async def main(reason: str) -> list[str]:
        made = Watched(Backend(5), limit=0.0, deadline=2.0, clock=fast)
        async with made.watch.watching():
            await wait(lambda: made.watch._at_deadline)
        made.watch.show_after_deadline(Status(State.FAILED, (), reason=reason))
        return made.texts

    (text,) = asyncio.run(main("DeadlineExceeded"))
    assert "line 5 in train" in text
    assert asyncio.run(main("ReplicaFailed")) == []


def picture_after(status: Status) -> list[str]:
    """What is shown after the end of a job of which there is a picture."""

    async def main() -> list[str]:
        made = Watched(Backend(5), limit=0.0, deadline=1.6, clock=fast)
        async with made.watch.watching():
            await wait(lambda: made.watch._at_deadline)
        made.watch.show_after_deadline(status)
        return made.texts

    return asyncio.run(main())


def of_condition(state: State, end: str = "", **condition: str) -> Status:
    job = Job("mine", "kubernetes", "pytorch", (ONE,), 1.0, "team", resource="pytorchjobs")
    conditions = [{"type": "Failed", "status": "True", **condition}]
    item = {
        "metadata": {"name": "mine"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": {}}}},
        "status": {"conditions": conditions if condition else []},
    }
    return job_status.of_job(job, item, {ONE: ReplicaStatus(ONE, state, 1.0, reason=end)})


def test_the_training_operator_names_the_deadline_only_in_its_message() -> None:
    late = of_condition(
        State.RUNNING,
        reason="PyTorchJobFailed",
        message="Job mine has failed because it was active longer than specified deadline",
    )
    assert "Deadline" not in late.reason
    assert len(picture_after(late)) == 1
    other = of_condition(State.FAILED, reason="PyTorchJobFailed", message="it failed")
    assert picture_after(other) == []


def test_a_pod_that_its_deadline_has_ended_shows_the_picture() -> None:
    foreseen = replace(of_condition(State.FAILED, "DeadlineExceeded"), state=State.FAILED)
    assert len(picture_after(foreseen)) == 1


@pytest.mark.parametrize(
    "status",
    [
        Status(State.PENDING, (), reason=QUEUED),
        Status(State.PENDING, (), reason=SUSPENDED),
        Status(State.PENDING, (), tries=2),
    ],
    ids=["queue", "suspended", "try"],
)
def test_on_a_cluster_the_deadline_counts_from_the_last_start(status: Status) -> None:
    """The picture before the start is of another run, and a new one is taken at its deadline."""

    async def main(kind_of_place: str) -> tuple[int, int]:
        backend = Backend(5)
        created = time.time() - 57.5
        made = Watched(backend, 0.0, 60.0, fast, created=created, kind_of_place=kind_of_place)
        async with made.watch.watching():
            await wait(lambda: made.watch._at_deadline)
            made.watch.note(status)
            made.watch.note(replace(RUNNING, tries=status.tries))
            made.watch.show_after_deadline(Status(State.FAILED, (), reason="DeadlineExceeded"))
        return backend.asked, len(made.texts)

    assert asyncio.run(main("namespace")) == (1, 0)
    assert asyncio.run(main("folder")) == (1, 1)


def test_a_job_that_is_admitted_late_has_a_picture_of_its_deadline() -> None:
    async def main() -> list[str]:
        created = time.time() - 60
        made = Watched(Backend(5), 0.0, 1.7, fast, created=created, kind_of_place="namespace")
        made.watch.note(Status(State.PENDING, (), reason=QUEUED))
        async with made.watch.watching():
            await asyncio.sleep(0.2)  # the deadline of a job that was never in a queue is over
            made.watch.note(RUNNING)
            await wait(lambda: made.watch._at_deadline)
        made.watch.show_after_deadline(Status(State.FAILED, (), reason="DeadlineExceeded"))
        return made.texts

    assert len(asyncio.run(main())) == 1


@pytest.mark.parametrize(
    ("header", "setting", "inspected"),
    [
        ("%framework=python", "on", True),
        ("%framework=python", "off", False),
        ("%framework=python\n%inspect=off", "on", False),
        ("%framework=python\n%inspect=on", "off", True),
    ],
)
def test_a_job_without_the_handler_is_not_watched(
    header: str, setting: str, inspected: bool
) -> None:
    job = Job("mine", "fake", "python", (ONE,), 1.0, header=header)
    assert is_inspected(job, setting) is inspected
