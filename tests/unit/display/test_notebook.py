"""The cell: one table that is updated in place, lines below it, and Jupyter's limits."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.display.excerpt import Excerpt
from ciao_kernel.display.held_tracebacks import HeldTracebacks
from ciao_kernel.display.live_lines import LiveLines
from ciao_kernel.display.notebook import NotebookDisplay
from ciao_kernel.display.redraw_pause import quiet_pause
from ciao_kernel.display.table import Table
from ciao_kernel.display.table_output import TableOutput
from ciao_kernel.errors import JobFailed
from ciao_kernel.model import (
    ALL_LINES,
    Job,
    Notice,
    Output,
    Replica,
    ReplicaStatus,
    State,
    Status,
)

ONE, TWO = Replica("worker", 0), Replica("worker", 1)
JOB = Job("mnist", "local", "tensorflow", (ONE, TWO), 0.0, "/jobs/mnist/work")
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;"


class Recorder:
    """A publisher that keeps what it is given, with the time."""

    def __init__(self) -> None:
        self.texts: list[tuple[float, str]] = []
        self.tables: list[tuple[float, dict[str, str], str, bool]] = []
        self.fails = 0

    def stream(self, text: str) -> None:
        self._fail()
        self.texts.append((time.monotonic(), text))

    def display(
        self, data: dict[str, str], display_id: str, *, update: bool, metadata: Any = None
    ) -> None:
        self._fail()
        self.tables.append((time.monotonic(), data, display_id, update))

    def _fail(self) -> None:
        if self.fails:
            self.fails -= 1
            raise OSError("no socket")

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.texts)

    @property
    def html(self) -> str:
        return self.tables[-1][1]["text/html"]


def made(**settings: Any) -> tuple[NotebookDisplay, Recorder]:
    recorder = Recorder()
    return NotebookDisplay(recorder, Settings(**{"color": "never", **settings})), recorder


def output(replica: Replica, *lines: str) -> Output:
    return Output(replica, "".join(f"{line}\n" for line in lines).encode(), len(lines))


def status(state: State, one: State = State.RUNNING, **more: Any) -> Status:
    replicas = (ReplicaStatus(ONE, one, 1.0, log="/l/worker-0.log"), ReplicaStatus(TWO))
    return Status(state, replicas, **more)


def test_one_table_stays_and_is_updated_in_place() -> None:
    async def main() -> None:
        display, recorder = made()
        display.begin(JOB, ())
        display.show(status(State.RUNNING))
        display.show(output(ONE, "first"))
        await asyncio.sleep(0.5)
        display.show(output(ONE, "last"))
        display.show(status(State.SUCCEEDED, State.SUCCEEDED, settled=True))
        await display.end()
        _, first, name, update = recorder.tables[0]
        assert not update
        # Where no output is updated it stands there for ever.
        assert first["text/plain"] == (
            "mnist: a job of 2 replicas. `%ciao describe mnist` shows its status."
        )
        assert len(recorder.tables) >= 3
        assert all(table[2] == name and table[3] for table in recorder.tables[1:])
        assert "mnist: Succeeded" in recorder.html
        assert "last" in recorder.html
        assert recorder.text == "[worker-0] first\n[worker-0] last\n"
        plain = recorder.tables[-1][1]["text/plain"]
        assert plain.splitlines()[0] == "mnist: Succeeded"
        assert re.search(r"^worker-0 +Succeeded", plain, re.M)
        assert plain.endswith("folder: /jobs/mnist/work\nlogs: /l")
        assert "/l/worker-0.log" in recorder.html
        # A second job in the same cell gets a table of its own.
        display.begin(JOB, ())
        await display.end()
        assert recorder.tables[-1][2] != name

    asyncio.run(main())


def test_the_first_line_is_shown_at_once() -> None:
    async def main() -> None:
        display, recorder = made()
        display.begin(JOB, ())
        display.show(output(ONE, "now"))
        assert recorder.text == "[worker-0] now\n"
        display.show(output(ONE, "soon"))
        assert "soon" not in recorder.text
        async with asyncio.timeout(20):
            while "soon" not in recorder.text:
                await asyncio.sleep(0.02)
        while time.monotonic() - recorder.texts[-1][0] < 0.3:
            await asyncio.sleep(0.02)
        display.show(output(ONE, "and again at once"))
        assert "again" in recorder.text
        await display.end()

    asyncio.run(main())


def test_messages_and_bytes_stay_within_jupyters_limits() -> None:
    async def main() -> None:
        display, recorder = made(lines=ALL_LINES)
        display.begin(JOB, ())
        display.show(status(State.RUNNING))
        started = time.monotonic()
        count = 0
        while time.monotonic() - started < 3.0:
            for replica in (ONE, TWO):
                display.show(
                    output(replica, *(f"line {count + n} " + "x" * 90 for n in range(500)))
                )
                count += 500
            await asyncio.sleep(0.005)
        await display.end()
        times = sorted([t for t, _ in recorder.texts] + [table[0] for table in recorder.tables])
        for start in times:
            assert sum(start <= t < start + 1.0 for t in times) <= 20
        sizes = [(t, len(text.encode())) for t, text in recorder.texts]
        assert sum(size for t, size in sizes if t < started + 3.0) < 3_000_000
        assert sum(size for _, size in sizes) > 1_000_000
        lines = recorder.text.splitlines()
        shown = sum(line.startswith("[worker") for line in lines)
        match = re.fullmatch(r"([\d,]+) of ([\d,]+) lines are shown; all are in .*", lines[-1])
        assert match
        assert [int(number.replace(",", "")) for number in match.groups()] == [shown, count]
        markers = re.findall(r"^… ([\d,]+) lines of", recorder.text, re.M)
        assert sum(int(number.replace(",", "")) for number in markers) == count - shown
        assert f"[worker-0] line {count - 501} " in recorder.text  # the end is there

    asyncio.run(main())


@pytest.mark.parametrize("plot", [(), ("loss",)])
def test_what_is_drawn_leaves_room_for_the_lines(plot: tuple[str, ...]) -> None:
    async def main() -> None:
        rate = 6_500  # a table has 2 kB, and a plot 5 kB
        display, recorder = made(output_rate=rate)
        display.begin(replace(JOB, plot=plot), ())
        display.show(status(State.RUNNING))
        count, started = 0, time.monotonic()
        while time.monotonic() - started < 3.0:
            for replica in (ONE, TWO):
                display.show(output(replica, f"step {count} loss {1 / (count + 1)}"))
            count += 1
            await asyncio.sleep(0.1)
        sizes = [sum(map(len, data.values())) for _, data, *_ in recorder.tables]
        took = time.monotonic() - started
        await display.end()
        assert recorder.text.count("[worker-") == 2 * count
        assert sum(sizes) - max(sizes) < rate * (took + 1.0) / 2

    asyncio.run(main())


def test_a_table_that_moves_by_itself_keeps_to_its_pause() -> None:
    async def main() -> None:
        display, recorder = made(output_rate=1_000)
        display.begin(JOB, ())
        display.show(status(State.RUNNING))
        display.show(output(ONE, "x"))
        display._draw(update=True)  # which leaves nothing but the rate of lines to draw
        before = len(recorder.tables)
        await asyncio.sleep(1.5)
        assert len(recorder.tables) == before
        await display.end()

    asyncio.run(main())


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.data = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.data += data


class EvilLinks:
    """Links that contain the path unchanged."""

    def file(self, path: str) -> str:
        return path

    def directory(self, path: str) -> str:
        return path


def test_nothing_from_a_job_becomes_html() -> None:
    async def main() -> None:
        recorder = Recorder()
        display = NotebookDisplay(recorder, Settings(color="never"), EvilLinks())
        job = Job(EVIL, "local", EVIL, (Replica(EVIL, 0),), 0.0, EVIL)
        display.begin(job, ())
        replica = job.replicas[0]
        one = ReplicaStatus(replica, State.FAILED, 1.0, 1, reason=EVIL, log=f"/{EVIL}/{EVIL}")
        display.show(Status(State.FAILED, (one,), message=EVIL, reason=EVIL))
        display.show(Output(replica, b"", 0, f"\x1b[31m{EVIL}".encode()))
        await display.end()
        seen = _Tags()
        seen.feed(recorder.html)
        assert seen.tags <= {
            "div",
            "b",
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "span",
            "code",
            "style",
            "i",
            "a",
        }
        assert seen.attributes <= {"style", "title", "class", "href", "target", "rel"}
        assert seen.data.count(EVIL[:40]) >= 4

    asyncio.run(main())


def test_only_what_is_followed_is_shown_and_all_is_in_the_table() -> None:
    async def main() -> None:
        for follow in (("worker-1",), ("worker",)):
            display, recorder = made()
            display.begin(JOB, follow)
            display.show(output(ONE, "one"))
            display.show(output(TWO, "two"))
            await display.end()
            assert ("one" in recorder.text) == (follow == ("worker",))
            assert "two" in recorder.text
            assert "one" in recorder.html

    asyncio.run(main())


def test_notices_stand_in_their_place() -> None:
    async def main() -> None:
        display, recorder = made()
        display.show(Notice("before"))
        display.begin(JOB, ())
        display.show(output(ONE, "a"))
        display.show(output(ONE, "b"))
        display.show(Notice("a word"))
        display.show(output(ONE, "c"))
        await display.end()
        display.show(Notice("after"))
        display.show(output(ONE, "lost: nothing is followed"))
        assert recorder.text == (
            "before\n[worker-0] a\n[worker-0] b\na word\n[worker-0] c\nafter\n"
        )

    asyncio.run(main())


def test_notices_stand_behind_lines_that_wait_for_the_rate() -> None:
    async def main() -> None:
        display, recorder = made(output_rate=1_000)
        display.begin(JOB, ())  # the table takes what may be sent at once
        for number in range(3):
            display.show(output(ONE, f"last words {number}"))
        assert not recorder.text
        display.show(Notice("worker-0 was started again"))
        display.show(output(ONE, "first words"))
        await display.end()
        assert recorder.text.splitlines() == [
            *(f"[worker-0] last words {number}" for number in range(3)),
            "worker-0 was started again",
            "[worker-0] first words",
        ]

    asyncio.run(main())


def test_a_fault_while_drawing_loses_no_line_and_is_told() -> None:
    async def main() -> None:
        display, recorder = made()
        display.begin(JOB, ())
        recorder.fails = 3
        for number in range(20):
            display.show(output(ONE, f"line {number}"))
            await asyncio.sleep(0.05)
        await display.end()
        assert [line for line in recorder.text.splitlines() if line.startswith("[")] == [
            f"[worker-0] line {number}" for number in range(20)
        ]
        assert "could not keep this output up to date while mnist ran: OSError: no socket" in (
            recorder.text
        )
        assert "line 19" in recorder.html

    asyncio.run(main())


def test_a_fault_in_the_table_loses_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        display, recorder = made()
        display.begin(JOB, ())
        assert display._table is not None

        def broken() -> Any:
            raise KeyError("a fault")

        monkeypatch.setattr(display._table, "rows", broken)
        display.show(output(ONE, "a"))
        await asyncio.sleep(0.5)
        display.show(output(ONE, "b"))
        await asyncio.sleep(0.2)
        await display.end()
        assert recorder.text.startswith("[worker-0] a\n[worker-0] b\n")
        assert "KeyError: 'a fault'" in recorder.text

    asyncio.run(main())


def test_an_end_takes_no_interrupt_for_its_own() -> None:
    async def main() -> None:
        display, recorder = made()

        async def cell() -> None:
            display.begin(JOB, ())
            display.show(output(ONE, "a"))
            display.show(output(ONE, "b"))
            try:
                await asyncio.sleep(60)
            finally:
                await display.end()

        task = asyncio.ensure_future(cell())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert recorder.text == "[worker-0] a\n[worker-0] b\n"
        await display.end()  # a second one does nothing
        before = len(recorder.tables)
        await asyncio.sleep(0.3)
        assert len(recorder.tables) == before  # no ticker is left

    asyncio.run(main())


def test_elapsed_time_is_drawn_at_most_once_a_second_and_later_less_often() -> None:
    async def main() -> None:
        display, recorder = made()
        display.begin(replace(JOB, created=time.time()), ())
        display.show(status(State.RUNNING))
        display._draw(update=True)  # which leaves nothing but the time to draw
        before = len(recorder.tables)
        while len(recorder.tables) < before + 2:
            await asyncio.sleep(0.05)
        moments = [table[0] for table in recorder.tables[before - 1 :]]
        assert all(b - a >= 1.0 for a, b in itertools.pairwise(moments))
        await display.end()

    asyncio.run(main())
    pauses = [quiet_pause(age, changing=False) for age in (5, 600, 7200)]
    assert pauses == [1.0, 10.0, 60.0]
    assert quiet_pause(7200, changing=True) == 5.0  # a rate must fall to zero


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_job_that_writes_for_hours_sends_few_messages() -> None:
    clock, recorder = Clock(), Recorder()
    job = replace(JOB, created=clock.now)
    table = Table(job, clock, clock)
    table.status = status(State.RUNNING)
    drawn = TableOutput(table, recorder, None, 60_000, clock)
    box = LiveLines(job, recorder, "box", 10, 60_000, clock)
    held, tracebacks = Excerpt(1, 2), HeldTracebacks(2)

    def messages(seconds: float) -> int:
        before, end = len(recorder.tables), clock.now + seconds
        while clock.now < end:
            clock.now += 0.125
            event = output(ONE, f"step {clock.now} loss 0.25")
            table.output(event)
            held.add(event)
            drawn.dirty = True
            drawn.draw_if_due()
            box.draw_if_due(held, tracebacks, table.watched())
        return len(recorder.tables) - before

    assert 400 < messages(60) <= 500  # four a second, of each
    assert messages(540) <= 2 * 545
    clock.now = job.created + 3600
    assert messages(3600) <= 2 * 725

    # What is more than lines does not wait.
    clock.now += 0.5
    drawn.dirty = drawn.urgent = box.urgent = True
    assert messages(0.25) == 2
    assert messages(1.0) == 0


RUNS = Status(State.RUNNING, (ReplicaStatus(ONE, State.RUNNING, 1.0),))


@pytest.mark.parametrize(
    ("now", "urgent"),
    [
        (RUNS, False),
        (replace(RUNS, message="waits"), False),
        (replace(RUNS, state=State.PENDING), True),
        (replace(RUNS, tries=2), True),
        (replace(RUNS, replicas=(replace(RUNS.replicas[0], reason="Evicted"),)), False),
        (replace(RUNS, replicas=(replace(RUNS.replicas[0], state=State.FAILED),)), True),
        (replace(RUNS, replicas=(replace(RUNS.replicas[0], restarts=1),)), True),
    ],
)
def test_a_state_that_changes_is_shown_soon_however_long_the_job_runs(
    now: Status, urgent: bool
) -> None:
    async def main() -> None:
        display, _ = made(lines=1)
        display.begin(JOB, ())
        display.show(RUNS)
        display.show(output(ONE, "a", "b", "c"))
        display._draw(update=True)
        live = display._lines._live
        assert live
        live.urgent = False
        display.show(now)
        assert (display._table_output.urgent, live.urgent) == (urgent, urgent)
        await display.end()

    asyncio.run(main())


def test_what_is_redrawn_counts_from_the_first_run() -> None:
    clock = Clock()
    table = Table(replace(JOB, created=1.0), clock, clock)
    clock.now += 7200
    assert table.watched() == 7200
    table.watch_anew()
    assert table.watched() == 0


def test_a_table_at_rest_is_not_drawn_again() -> None:
    async def main() -> None:
        display, recorder = made()
        display.begin(JOB, ())
        display.show(status(State.RUNNING))
        await asyncio.sleep(0.4)
        before = len(recorder.tables)
        await asyncio.sleep(0.8)
        assert len(recorder.tables) == before
        await display.end()

    asyncio.run(main())


def test_a_stop_after_the_end_is_in_the_table() -> None:
    """A cell that is interrupted follows no more, and then the job is stopped."""

    async def main() -> None:
        display, recorder = made()
        display.begin(JOB, ())
        display.show(status(State.RUNNING))
        await display.end()
        assert "mnist: Running" in recorder.html
        display.show(status(State.STOPPED, State.STOPPED))
        assert "mnist: Stopped" in recorder.html
        assert [update for *_, update in recorder.tables] == [False, True, True]
        assert len({one for *_, one, _ in recorder.tables}) == 1

    asyncio.run(main())


def test_lines_are_coloured_by_replica() -> None:
    async def main() -> None:
        display, recorder = made(color="auto")
        display.begin(JOB, ())
        display.show(output(ONE, "x"))
        await display.end()
        # A fixed colour: the front end's own yellow cannot be read on white.
        assert re.fullmatch(r"\x1b\[38;5;\d+m\[worker-0\] \x1b\[0mx\n", recorder.text)

    asyncio.run(main())


def test_a_long_log_keeps_its_ends_and_shows_the_newest_lines_meanwhile() -> None:
    async def main() -> None:
        display, recorder = made(lines=3)
        display.begin(JOB, ())
        display.show(status(State.RUNNING))
        display.show(output(ONE, *(f"line {n} {EVIL}" for n in range(10))))
        assert recorder.text == "".join(f"[worker-0] line {n} {EVIL}\n" for n in range(3))
        mine = recorder.tables[0][2]
        while not (live := [one for one in recorder.tables if one[2] != mine and one[3]]):
            await asyncio.sleep(0.01)
        announced = next(one for one in recorder.tables if one[2] != mine)
        assert not announced[3]
        assert announced[1] == {
            "text/plain": "… more lines; the newest of them follow at the end. "
            "`%ciao logs mnist` shows all …"
        }
        parser = _Tags()
        parser.feed(live[0][1]["text/html"])
        assert parser.tags == {"div", "pre"}
        assert [line.split(" <")[0] for line in parser.data.splitlines()] == [
            "[worker-0] line 7",
            "[worker-0] line 8",
            "[worker-0] line 9",
        ]
        assert f"[worker-0] line 9 {EVIL}" in live[0][1]["text/plain"]
        display.show(output(ONE, "the last one"))
        await display.end()
        assert recorder.text.splitlines()[3:] == [
            "… 5 lines of worker-0 are left out here: `%ciao logs mnist --replica worker-0` shows "
            "them; all are in /l/worker-0.log …",
            f"[worker-0] line 8 {EVIL}",
            f"[worker-0] line 9 {EVIL}",
            "[worker-0] the last one",
        ]
        # The lines stand there as text now.
        assert recorder.tables[-1][1:] == ({"text/plain": "", "text/html": ""}, live[0][2], True)

    asyncio.run(main())


def test_the_place_of_newest_lines_names_no_command_that_will_find_nothing() -> None:
    async def main() -> None:
        display, recorder = made(lines=1)
        display.begin(replace(JOB, logs_kept=False), ())
        display.show(output(ONE, "a", "b", "c"))
        while len({one[2] for one in recorder.tables}) < 2:
            await asyncio.sleep(0.01)
        mine = recorder.tables[0][2]
        announced = next(one for one in recorder.tables if one[2] != mine)
        assert announced[1] == {
            "text/plain": "… more lines; the newest of them follow at the end …"
        }
        await display.end()

    asyncio.run(main())


def test_held_lines_stay_within_jupyters_limits() -> None:
    async def main() -> None:
        display, recorder = made()
        display.begin(JOB, ())
        display.show(status(State.RUNNING))
        started = time.monotonic()
        while time.monotonic() - started < 2.0:
            for replica in (ONE, TWO):
                display.show(output(replica, *("x" * 90 for _ in range(500))))
            await asyncio.sleep(0.005)
        await display.end()
        times = sorted([t for t, _ in recorder.texts] + [table[0] for table in recorder.tables])
        for start in times:
            assert sum(start <= t < start + 1.0 for t in times) <= 20
        drawn = [data for _, data, *_ in recorder.tables]
        assert max(sum(map(len, data.values())) for data in drawn) < 40_000
        assert recorder.text.count("[worker-0]") == recorder.text.count("[worker-1]") == 400

    asyncio.run(main())


@pytest.mark.parametrize("line", ["x" * 130, "0\t1\t" * 32])
def test_all_of_the_last_lines_are_shown_also_of_many_replicas(line: str) -> None:
    async def main() -> None:
        display, recorder = made()
        replicas = tuple(Replica("worker", index) for index in range(16))
        display.begin(replace(JOB, replicas=replicas), ())
        display.show(status(State.RUNNING))
        for lines in (["step"] * 200, [line] * 400):
            for replica in replicas:
                display.show(output(replica, *lines))
        await display.end()
        assert recorder.text.count("] step\n") == recorder.text.count(f"] {line}\n") == 16 * 200
        assert "are shown; all" not in recorder.text

    asyncio.run(main())


def test_the_header_of_the_job_decides_how_many_lines_stay() -> None:
    async def main() -> None:
        for lines, shown in ((ALL_LINES, 10), (2, 4), (None, 6)):
            display, recorder = made(lines=3)
            display.begin(replace(JOB, lines=lines), ())
            display.show(output(ONE, *(f"line {n}" for n in range(10))))
            await display.end()
            assert recorder.text.count("[worker-0]") == shown
            assert ("left out here" in recorder.text) == (shown < 10)

    asyncio.run(main())


def test_the_last_lines_of_a_failed_job_stand_before_its_error() -> None:
    async def main() -> None:
        display, recorder = made(lines=1)
        display.begin(JOB, ())
        display.show(output(ONE, "a", "b", "why"))
        display.show(status(State.FAILED, State.FAILED, decided=True))
        assert recorder.text.splitlines()[-1] == "[worker-0] why"  # the cell may end now
        display.show(output(TWO, "behind"))
        await display.end()
        assert recorder.text.splitlines()[-1] == "[worker-1] behind"

    asyncio.run(main())


def test_the_last_line_of_a_failed_replica_is_its_exception() -> None:
    async def main() -> None:
        display, recorder = made()
        display.begin(JOB, ())
        display.show(output(ONE, "W1130 16:12:02 torch/distributed behind"))
        display.show(output(TWO, "its own last line"))
        display.show(status(State.FAILED, State.FAILED, decided=True))
        error = JobFailed("it failed")
        error.exceptions = {ONE: "RuntimeError: bad batch"}
        display.conclude(error)  # the cell may end here
        assert "<code>RuntimeError: bad batch</code>" in recorder.html
        await display.end()
        assert "<code>RuntimeError: bad batch</code>" in recorder.html
        assert "<code>its own last line</code>" in recorder.html
        assert "W1130" not in recorder.html

    asyncio.run(main())


def test_the_curves_of_a_failed_job_stand_before_its_error() -> None:
    async def main() -> None:
        display, recorder = made(lines=1)
        display.begin(replace(JOB, plot=("loss",)), ())
        for step in range(1, 4):
            display.show(output(ONE, f"step {step} loss {step}"))
        display.show(status(State.FAILED, State.FAILED, decided=True))
        assert display.conclude(JobFailed("it failed")) is False  # the cell ends here
        *_, last, plot = recorder.text.splitlines()
        assert last == "[worker-0] step 3 loss 3"
        assert plot.startswith("%plot: loss")
        assert recorder.tables[-1][2].endswith("-plot")
        assert "<img" in recorder.html
        display.show(output(TWO, "behind"))
        await display.end()
        assert recorder.text.splitlines()[-1] == "[worker-1] behind"
        assert recorder.text.count("%plot:") == 1
        assert "image/png" in recorder.tables[-1][1]

    asyncio.run(main())


def test_the_newest_lines_of_a_stopped_job_do_not_wait_for_its_last_replica() -> None:
    async def main() -> None:
        display, recorder = made(lines=1)
        display.begin(JOB, ())
        display.show(output(ONE, "a", "b", "step 99"))
        display.show(status(State.STOPPED))  # the cell may end while replicas are still ending
        assert recorder.text.splitlines()[-1] == "[worker-0] step 99"
        display.show(output(ONE, "checkpoint saved"))
        await display.end()
        assert recorder.text.splitlines()[-1] == "[worker-0] checkpoint saved"
        assert recorder.text.count("[worker-0] step 99") == 1

    asyncio.run(main())


def test_lines_left_out_in_both_ways_are_counted_once() -> None:
    async def main() -> None:
        display, recorder = made(lines=50, output_rate=1000, output_limit=1000)
        display.begin(JOB, ())
        display.show(output(ONE, *(f"line {n} " + "x" * 50 for n in range(200))))
        await display.end()
        shown = recorder.text.count("[worker-0] line")
        assert 0 < shown < 100
        assert f"{shown} of 200 lines are shown; all are in the log files." in recorder.text

    asyncio.run(main())
