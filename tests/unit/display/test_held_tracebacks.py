"""A failure shows its traceback once: in the cell's error, with one line among the replica's."""

from __future__ import annotations

import asyncio
import io
import sys
from pathlib import Path

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.display.held_tracebacks import HeldTracebacks
from ciao_kernel.display.lines import NO_LIMIT, Prefixer
from ciao_kernel.display.notebook import NotebookDisplay
from ciao_kernel.display.screen import Screen
from ciao_kernel.display.terminal import TerminalDisplay
from ciao_kernel.errors import JobFailed, describe
from ciao_kernel.model import Job, Notice, Output, Replica, ReplicaStatus, State, Status
from ciao_kernel.session.failure.verdict import judge
from ciao_kernel.session.following import Tails
from tests.helpers.growth import is_linear
from tests.helpers.torchrun_report import KILLED, STOPPED, report

ONE, TWO = REPLICAS = (Replica("worker", 0), Replica("worker", 1))
JOB = Job("mnist", "local", "tensorflow", REPLICAS, 0.0, "/jobs/mnist/work")
TRACE = 'Traceback (most recent call last):\n  File "/jobs/x.py", line 1, in <module>\n{}\n'
FOLDED = "[{}] … 3 lines of the traceback shown below …\n"


def output(replica: Replica, text: str) -> Output:
    return Output(replica, text.encode(), text.removesuffix("\n").count("\n") + 1)


def failed(*ended: Replica) -> Status:
    states = (State.FAILED if one in ended else State.RUNNING for one in REPLICAS)
    replicas = (ReplicaStatus(*two, 1.0, 1) for two in zip(REPLICAS, states, strict=True))
    return Status(State.FAILED, tuple(replicas), settled=True, decided_by=ONE)


class Publisher:
    """Keeps the text of a cell and its other outputs."""

    def __init__(self) -> None:
        self.text = ""
        self.outputs: dict[str, dict[str, str]] = {}

    def stream(self, text: str) -> None:
        self.text += text

    def display(self, data: dict[str, str], display_id: str, **_: object) -> None:
        self.outputs[display_id] = data


class Cell:
    """A cell that shows events; :meth:`error` judges the job and ends it."""

    def __init__(self, job: Job = JOB, lines: int = 200) -> None:
        self.publisher, self.tails, self.job = Publisher(), Tails(2), job
        self.display = NotebookDisplay(self.publisher, Settings(color="never", lines=lines))
        self.display.begin(job, ())

    def output(self, replica: Replica, text: str) -> None:
        event = output(replica, text)
        self.tails.add(event)
        self.display.show(event)

    def conclude(self, status: Status) -> JobFailed:
        self.display.show(status)
        leftovers = (lambda _: "") if self.job.logs_kept else None
        error = judge(self.job, status, self.tails.data, Path("/nowhere"), leftovers)
        assert isinstance(error, JobFailed)
        assert not self.display.conclude(error)
        return error

    async def end(self, *ended: Replica) -> str:
        self.conclude(failed(*(ended or (ONE,))))
        await self.display.end()
        return self.publisher.text


def shown(*texts: tuple[Replica, str], job: Job = JOB, ended: tuple[Replica, ...] = ()) -> str:
    """Return the text of the cell of a failed job."""

    async def main() -> str:
        cell = Cell(job)
        for replica, text in texts:
            cell.output(replica, text)
        return await cell.end(*ended)

    return asyncio.run(main())


def prefixed(replica: Replica, text: str) -> str:
    return "".join(f"[{replica}] {line}\n" for line in text.splitlines())


BAD = TRACE.format("ValueError: bad")


def test_one_line_stands_for_the_traceback_that_the_error_repeats() -> None:
    text = shown((ONE, f"step 1\n{BAD}"), (TWO, "step 1\n"))
    assert text == f"[worker-0] step 1\n[worker-1] step 1\n{FOLDED.format(ONE)}"
    # In pieces, without a last line feed, and with a replica's lines around it.
    one, two, three = BAD.splitlines(keepends=True)
    text = shown((ONE, one), (TWO, "a\n"), (ONE, two), (ONE, three.rstrip()))
    assert text == f"[worker-1] a\n{FOLDED.format(ONE)}"
    text = shown((ONE, f"{BAD}INFO behind\n"))
    assert text == f"{FOLDED.format(ONE)}[worker-0] INFO behind\n"


def test_a_chain_of_tracebacks_is_one() -> None:
    link = "\nDuring handling of the above exception, another exception occurred:\n\n"
    text = shown((ONE, f"{TRACE.format('KeyError: 1')}{link}{BAD}"))
    assert text == "[worker-0] … 9 lines of the traceback shown below …\n"


def test_a_traceback_that_the_error_does_not_repeat_stays() -> None:
    other = TRACE.format("KeyError: 'other'")
    caught = f"{TRACE.format('OSError: retried')}step 2\n"
    text = shown((ONE, caught), (TWO, other), (ONE, BAD), ended=REPLICAS)
    assert prefixed(ONE, caught) + FOLDED.format(ONE) in text
    assert prefixed(TWO, other) in text
    survived = BAD + "step\n" * 80
    assert shown((ONE, survived)) == prefixed(ONE, survived)


def test_replicas_with_the_same_error_are_folded_and_none_loses_an_address() -> None:
    here, there = (TRACE.format(f"ValueError: <A at 0x{n}>") for n in ("7f01", "7f02"))
    text = shown((ONE, here), (TWO, there), ended=REPLICAS)
    assert text == FOLDED.format(ONE) + FOLDED.format(TWO)
    gone = Job("mnist", "local", "tensorflow", REPLICAS, 0.0, "/w", logs_kept=False)
    text = shown((ONE, here), (TWO, there), job=gone, ended=REPLICAS)
    assert text == FOLDED.format(ONE) + prefixed(TWO, there)
    text = shown((ONE, here), (TWO, here), job=gone, ended=REPLICAS)
    assert text == FOLDED.format(ONE) + FOLDED.format(TWO)


def test_lines_of_another_process_within_a_traceback_stay() -> None:
    mixed = BAD.replace("\n  File", "\nepoch 3 of another thread\n  File")
    assert shown((ONE, mixed)) == (
        "[worker-0] … 1 line of the traceback shown below …\n"
        "[worker-0] epoch 3 of another thread\n"
        "[worker-0] … 2 lines of the traceback shown below …\n"
    )
    bar = shown((ONE, f" 50%|##  | {BAD}"))
    assert bar.splitlines() == [
        "[worker-0]  50%|##  | Traceback (most recent call last):",
        "[worker-0] … 2 lines of the traceback shown below …",
    ]


def test_one_line_stands_for_the_report_of_torchrun_in_each_replica() -> None:
    """A process that was killed has written no traceback; torchrun's report begins by itself."""
    said = report(0)
    count = said.count("\n")
    text = shown((ONE, "go\n"), (ONE, f"{BAD}{said}"), (TWO, f"go\n{STOPPED}"))
    assert text == (
        f"[worker-0] go\n[worker-1] go\n{FOLDED.format(ONE)}"
        f"[worker-0] … {count} lines of torchrun's own report: rank 0 ended with exit code 1 …\n"
        f"[worker-1] … {STOPPED.count(chr(10))} lines of torchrun's own report …\n"
    )
    first, rest = KILLED.split("\n", 1)
    text = shown((ONE, f"go\n{first}\n"), (ONE, rest))
    assert text == (
        f"[worker-0] go\n"
        f"[worker-0] … {count} lines of torchrun's own report: rank 0 was killed by SIGKILL …\n"
    )


def test_a_traceback_that_the_error_cuts_is_folded_if_the_log_files_have_it() -> None:
    deep = BAD.replace("  File", '  File "y.py", line 1, in f\n' * 120 + "  File")
    wide = TRACE.format("ValueError: " + "x" * 2000)
    sizes = "".join(f"\tsize mismatch for layer.{n}: torch.Size([{n}])\n" for n in range(150))
    long = TRACE.format(f"RuntimeError: Error(s) in loading state_dict for Net:\n{sizes}".rstrip())
    gone = Job("mnist", "local", "tensorflow", REPLICAS, 0.0, "/w", logs_kept=False)
    for text in (deep, wide, long):
        lines = text.rstrip("\n").count("\n") + 1
        folded = f"[worker-0] … {lines} lines of the traceback shown below …"
        assert shown((ONE, text)) == f"{folded}\n"
        assert shown((ONE, text), job=gone) == prefixed(ONE, text)


def test_a_long_log_is_shortened_and_its_traceback_folded() -> None:
    async def main() -> None:
        cell = Cell(lines=2)
        cell.output(ONE, "".join(f"step {n}\n" for n in range(10)) + BAD)
        text = await cell.end()
        assert text.splitlines()[:2] == ["[worker-0] step 0", "[worker-0] step 1"]
        assert text.splitlines()[-2:] == ["[worker-0] step 9", FOLDED.format(ONE).strip()]

    asyncio.run(main())


def test_lines_behind_the_error_are_not_held() -> None:
    async def main() -> None:
        cell = Cell()
        cell.output(ONE, BAD)
        assert cell.publisher.text == ""
        cell.conclude(failed(ONE))
        assert cell.publisher.text == FOLDED.format(ONE)  # before the cell ends
        cell.output(TWO, TRACE.format("KeyError: 1"))
        await asyncio.sleep(0.3)
        assert cell.publisher.text == FOLDED.format(ONE) + prefixed(
            TWO, TRACE.format("KeyError: 1")
        )
        await cell.display.end()

    asyncio.run(main())


@pytest.mark.parametrize("how", ["end", "stopped", "notice"])
def test_without_an_error_every_line_becomes_text(how: str) -> None:
    async def main() -> None:
        cell = Cell()
        cell.output(ONE, f"a\n{BAD}b\n")
        if how == "stopped":
            cell.display.show(Status(State.STOPPED, ()))
            assert cell.publisher.text == prefixed(ONE, f"a\n{BAD}b\n")
        elif how == "notice":
            cell.display.show(Notice("worker-0 was restarted, try 2"))
            assert cell.publisher.text.endswith("[worker-0] b\nworker-0 was restarted, try 2\n")
        await cell.display.end()
        assert prefixed(ONE, f"a\n{BAD}b\n") in cell.publisher.text

    asyncio.run(main())


def test_a_held_traceback_is_seen_at_once_in_an_output_that_is_empty_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ciao_kernel.display.shown_lines._HIDDEN", 0.0)

    async def main() -> None:
        cell = Cell()
        cell.output(ONE, BAD)
        async with asyncio.timeout(20):
            while "ValueError: bad" not in str(cell.publisher.outputs):
                await asyncio.sleep(0.02)
        assert "ValueError: bad" not in cell.publisher.text
        assert await cell.end() == FOLDED.format(ONE)
        (box,) = list(cell.publisher.outputs.values())[1:]
        assert box == {"text/plain": "", "text/html": ""}

    asyncio.run(main())


def test_a_program_that_goes_on_shows_its_traceback() -> None:
    now = 0.0
    held = HeldTracebacks(2, lambda: now)
    (before,) = held.add(output(ONE, f"a\n{BAD}"))
    assert (before.data, before.lines) == (b"a\n", 1)
    assert held.add(output(TWO, "b\n")) == [output(TWO, "b\n")]
    now = 5.0
    assert held.add(output(ONE, f"c\n{BAD}")) == []
    now = 11.0
    running = Status(State.RUNNING, (ReplicaStatus(ONE, State.RUNNING),))
    assert held.due(failed(ONE)) == []  # it has ended, and its job is about to
    assert held.due(running) == [output(ONE, f"{BAD}c\n")]
    assert held.due(None) == []
    now = 16.0
    assert held.due(None) == [output(ONE, BAD)]
    assert not held
    (flood,) = held.add(output(ONE, BAD + "x\n" * 1000))
    assert flood == output(ONE, BAD + "x\n" * 1000)
    assert not held
    assert sum(one.lines for one in held.add(output(ONE, BAD * 1000))) >= 2700


def test_the_work_grows_as_a_flood_of_tracebacks_does() -> None:
    head = "Traceback (most recent call last):\n"
    assert is_linear(lambda count: HeldTracebacks(2).add(output(ONE, head * count)), 24_000)


def test_lines_that_became_text_are_no_longer_new_in_the_box() -> None:
    held = HeldTracebacks(2)
    held.add(output(ONE, BAD))
    count = held.count
    held.close({})
    assert held.count > count


def terminal(lines: list[str], monkeypatch: pytest.MonkeyPatch, *, tty: bool = True) -> JobFailed:
    """Show a failed job in a window of 80 times 24 characters; return its error."""

    class Window(io.StringIO):
        def isatty(self) -> bool:
            return tty

    monkeypatch.setattr(sys, "stderr", Window())
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")

    async def main() -> JobFailed:
        display, tails = TerminalDisplay(Settings(), Window()), Tails(2)
        display.begin(JOB, ())
        for line in lines:
            event = output(ONE, line)
            tails.add(event)
            display.show(event)
        status = failed(ONE)
        display.show(status)
        error = judge(JOB, status, tails.data, Path("/nowhere"), lambda _: "")
        assert isinstance(error, JobFailed)
        error.on_screen = display.conclude(error)
        await display.end()
        display.close()
        return error

    return asyncio.run(main())


def test_a_terminal_does_not_repeat_what_its_window_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = terminal([BAD], monkeypatch)
    assert describe(seen) == ["JobFailed: worker-0 ended with exit code 1: ValueError: bad"]
    far = terminal([BAD, *["behind\n"] * 20], monkeypatch)
    assert "  File" in "\n".join(describe(far))
    wide = terminal([BAD, "x" * 1600], monkeypatch)  # twenty rows
    assert "  File" in "\n".join(describe(wide))
    piped = terminal([BAD], monkeypatch, tty=False)
    assert "  File" in "\n".join(describe(piped))


def test_a_wide_character_takes_two_cells_of_a_row() -> None:
    screen = Screen(Prefixer(color=False, limit=NO_LIMIT))
    screen.output(output(ONE, "first\n"))
    screen.output(output(ONE, "\n".join(["漢" * 60] * 10)))
    assert screen.shows(ONE, {11: b"first"}, width=80, height=21)
    assert not screen.shows(ONE, {11: b"first"}, width=80, height=20)


def test_an_error_on_the_screen_still_names_the_other_replicas() -> None:
    error = JobFailed("worker-0 ended.", traceback=("Traceback", "The same"))
    error.on_screen, error.others = True, "The same"
    assert describe(error) == ["The same", "JobFailed: worker-0 ended."]
