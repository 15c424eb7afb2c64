"""In a terminal window, one line stands for what torchrun reports about a failed process."""

from __future__ import annotations

import asyncio
import io

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.display.held_reports import HeldReports
from ciao_kernel.display.lines import NO_LIMIT, Prefixer
from ciao_kernel.display.screen import Screen
from ciao_kernel.display.terminal import TerminalDisplay
from ciao_kernel.model import Job, Output, Replica
from tests.helpers.growth import is_linear
from tests.helpers.torchrun_report import STOPPED, report

ONE, TWO = Replica("master", 0), Replica("worker", 0)
KILLED = report(3, -9)
LINES = KILLED.count("\n")
STAND_IN = f"… {LINES} lines of torchrun's own report: rank 3 was killed by SIGKILL …\n"


def output(replica: Replica, text: str) -> Output:
    return Output(replica, text.encode(), text.count("\n"))


def text(outputs: list[Output]) -> str:
    return b"".join(one.data for one in outputs).decode()


def test_a_report_is_one_line_however_it_comes() -> None:
    assert text(HeldReports().add(output(ONE, f"a\n{KILLED}b\n"))) == f"a\n{STAND_IN}b\n"
    held = HeldReports()
    shown = [one for line in KILLED.splitlines(True) for one in held.add(output(ONE, line))]
    assert [(one.data.decode(), one.lines) for one in shown] == [(STAND_IN, LINES)]
    (stopped,) = held.add(output(ONE, STOPPED))
    assert stopped.lines == STOPPED.count("\n")
    assert "torchrun's own report" in stopped.data.decode()
    assert held.close() == []


def test_other_lines_of_the_replica_and_other_replicas_are_shown() -> None:
    held = HeldReports()
    first, rest = KILLED.split("\n", 1)
    assert text(held.add(output(ONE, f"{first}\n"))) == ""
    assert text(held.add(output(TWO, "elsewhere\n"))) == "elsewhere\n"
    assert text(held.add(output(ONE, f"from another process\n{rest}"))) == (
        "from another process\n" + STAND_IN
    )


def test_what_becomes_no_report_is_shown_as_it_was() -> None:
    now = 0.0
    held = HeldReports(lambda: now)
    begun = KILLED[: KILLED.index("Root Cause")]
    assert held.add(output(ONE, begun)) == []
    assert held.due() == []
    now = 3.0
    assert text(held.due()) == begun
    assert held.add(output(ONE, begun)) == []
    assert text(held.close()) == begun
    flood = begun + "x\n" * 100_000
    assert text(held.add(output(ONE, flood))) == flood


def test_an_error_finds_the_traceback_above_a_report() -> None:
    screen, held = Screen(Prefixer(color=False, limit=NO_LIMIT)), HeldReports()
    for one in held.add(output(ONE, f"ValueError: bad\n{KILLED}")):
        screen.output(one)
    assert screen.shows(ONE, {LINES + 1: b"ValueError: bad"}, width=200, height=3)
    assert not screen.shows(ONE, {LINES: b"ValueError: bad"}, width=200, height=3)


@pytest.mark.parametrize("tty", [True, False], ids=["window", "pipe"])
def test_only_a_window_shows_less(tty: bool) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return tty

    async def main() -> str:
        stream = Stream()
        display = TerminalDisplay(Settings(), stream)
        display.begin(Job("mnist", "local", "pytorch", (ONE, TWO), 0.0, "/jobs/mnist/work"), ())
        display.show(output(ONE, KILLED))
        display.show(output(TWO, KILLED.split("\n", 1)[0] + "\n"))
        await display.end()
        display.close()
        return stream.getvalue()

    shown = asyncio.run(main())
    assert shown.count("torchrun's own report") == tty
    assert ("ChildFailedError" in shown) == (not tty)
    assert shown.count("] failed (exitcode: -9)") == 2 - tty


def test_the_work_grows_as_the_lines_do() -> None:
    def feed(count: int) -> None:
        held = HeldReports()
        for line in (KILLED.split("\n", 1)[0], *["x" * 20] * count):
            held.add(output(ONE, f"{line}\n"))

    assert is_linear(feed, 2_000)
