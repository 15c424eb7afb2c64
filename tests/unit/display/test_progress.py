"""Bars of long steps: their words, their rate, and that nothing of a failed one stays."""

from __future__ import annotations

import asyncio
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.display import progress_text
from ciao_kernel.display.notebook import NotebookDisplay
from ciao_kernel.display.progress_bars import NotebookBars
from ciao_kernel.display.terminal import TerminalDisplay
from ciao_kernel.model import Notice, Progress, Unit

HALF = Progress("pushing to host/cells", 14.2, 63_000_000, 126_000_000)
DONE = replace(HALF, done=HALF.total, over=True)
EVIL = "<script>alert(1)</script>\"'>\u202e\x1b[2J"


class Recorder:
    """A publisher that keeps what it is given."""

    def __init__(self) -> None:
        self.shown: list[tuple[dict[str, str], str, bool]] = []
        self.text = ""
        self.broken = False

    def stream(self, text: str) -> None:
        self.text += text

    def display(
        self, data: dict[str, str], display_id: str, *, update: bool, metadata: Any = None
    ) -> None:
        if self.broken:
            raise OSError("no socket")
        self.shown.append((data, display_id, update))


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (HALF, "pushing to host/cells: 63.0 of 126.0 MB, 14s"),
        (replace(HALF, done=0), "pushing to host/cells: 0.0 of 126.0 MB, 14s"),
        (replace(HALF, detail="a layer"), "pushing to host/cells: 63.0 of 126.0 MB, 14s (a layer)"),
        (replace(HALF, done=126_000_000, over=True), "pushing to host/cells: 126.0 MB in 14s"),
        (replace(HALF, total=0), "pushing to host/cells: 63.0 MB, 14s"),
        (Progress("x", 90.0, 512, 900), "x: 512 of 900 bytes, 1m 30s"),
        (Progress("x", 1.0, 1_500, 3_000), "x: 1.5 of 3.0 kB, 1s"),
        (Progress("x", 1.0, 2 * 10**9, 3 * 10**9), "x: 2.0 of 3.0 GB, 1s"),
        (Progress("x", 1.0, 2, 7, Unit.PACKAGES), "x: 2 of 7 packages, 1s"),
        (Progress("x", 1.0, 1, 1, Unit.PACKAGES, over=True), "x: 1 package in 1s"),
        (Progress("x", 1.0), "x: 1s"),
        (Progress("x", 1.0, over=True), "x: done in 1s"),
    ],
)
def test_a_line_says_only_what_is_known(event: Progress, text: str) -> None:
    assert progress_text.line(event) == text


def test_a_bar_needs_the_whole_amount() -> None:
    assert "[##########----------] 63.0 of" in progress_text.line_with_bar(HALF)
    assert 'value="0.500"' in progress_text.html(HALF)
    more = replace(HALF, done=2 * HALF.total)  # a registry that asks for a part again
    assert f"[{'#' * 20}]" in progress_text.line_with_bar(more)
    for event in (replace(HALF, total=0), Progress("x", 1.0), replace(HALF, over=True)):
        assert "[" not in progress_text.line_with_bar(event)
        assert "<progress" not in progress_text.html(event)


def test_names_become_no_html_and_no_commands() -> None:
    tags: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append(tag)  # type: ignore[method-assign]
    event = replace(HALF, step=EVIL, detail=EVIL)
    parser.feed(progress_text.html(event))
    assert tags == ["div", "progress"]
    for text in (progress_text.line_with_bar(event), progress_text.announcement(event)):
        assert text.isprintable()


def test_a_step_has_one_output_with_few_updates_and_a_last_line() -> None:
    now = [0.0]
    recorder = Recorder()
    bars = NotebookBars(recorder, lambda: now[0])
    for done in range(1000):
        now[0] = done / 100
        bars.show(replace(HALF, seconds=now[0], done=done, total=1000))
    assert 30 <= len(recorder.shown) <= 41  # of ten seconds
    bars.show(replace(HALF, done=1000, total=1000, over=True))  # at once, whatever the rate

    first, *updates, last = recorder.shown
    assert (first[0]["text/plain"], first[2]) == ("pushing to host/cells …", False)
    assert all(one[2] and one[1] == first[1] for one in (*updates, last))
    assert last[0]["text/plain"] == "pushing to host/cells: 1.0 kB in 14s"
    assert "<progress" not in last[0]["text/html"]
    assert ' title="pushing to host/cells: 1.0 kB in 14s"' in last[0]["text/html"]  # if it is cut
    # All are lines of one height, which move nothing below.
    styles = {re.match('<div style="[^"]*"', one[0]["text/html"]) for one in recorder.shown}
    assert len({match and match[0] for match in styles}) == 1

    bars.show(HALF)
    assert not recorder.shown[-1][2]
    assert recorder.shown[-1][1] != first[1]


def test_the_line_of_a_step_replaces_the_sentence_that_it_began_with() -> None:
    recorder = Recorder()
    display = NotebookDisplay(recorder, Settings())
    display.show(Notice("before"))
    display.show(Notice("installing app …", "installing app"))
    display.show(Progress("installing app", 1.0))
    display.show(Notice("[pip] Collecting app"))
    display.show(Progress("installing app", 3.0, over=True))
    assert recorder.text == "before\n[pip] Collecting app\n"
    (begun, place, update), *_, (over, same, updated) = recorder.shown
    assert begun["text/plain"] == "installing app …"
    assert "installing app …</div>" in begun["text/html"]
    assert over["text/plain"] == "installing app: done in 3s"
    assert (same, update, updated) == (place, False, True)


def test_nothing_of_a_failed_step_stays() -> None:
    recorder = Recorder()
    bars = NotebookBars(recorder)
    bars.show(HALF)
    bars.show(replace(HALF, over=True, failed=True))
    data, name, update = recorder.shown[-1]
    assert (set(data.values()), name, update) == ({""}, recorder.shown[0][1], True)
    bars.show(replace(HALF, step="never shown", over=True, failed=True))
    assert len(recorder.shown) == 2


def test_a_cell_shows_bars_before_its_job_and_survives_a_broken_one() -> None:
    recorder = Recorder()
    display = NotebookDisplay(recorder, Settings())
    display.show(HALF)
    display.show(Notice("another thing"))
    assert recorder.text == "another thing\n"
    assert "63.0 of 126.0 MB" in recorder.shown[0][0]["text/html"]
    recorder.broken = True
    display.show(replace(HALF, over=True))


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_writes_one_line_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    stream = Tty()
    display = TerminalDisplay(Settings(), stream)
    display.show(replace(HALF, detail="a layer that has a very long name 日本語" * 3))
    written = stream.getvalue()
    assert re.fullmatch(r"\r\x1b\[2K[^\r\n\x1b]{1,59}", written)
    display.show(HALF)  # at once: too early for another one
    assert stream.getvalue() == written

    display.show(Notice("meanwhile"))
    assert stream.getvalue() == f"{written}\r\x1b[2Kmeanwhile\n"
    display.show(DONE)
    assert stream.getvalue().endswith("meanwhile\npushing to host/cells: 126.0 MB in 14s\n")


def test_a_failed_step_leaves_no_line_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Tty()
    display = TerminalDisplay(Settings(), stream)
    display.show(HALF)
    display.show(replace(HALF, over=True, failed=True))
    assert stream.getvalue().endswith("\r\x1b[2K")
    assert "\n" not in stream.getvalue()


def test_a_step_of_no_amount_leaves_no_line_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Tty()
    display = TerminalDisplay(Settings(), stream)
    display.show(Progress("choosing versions", 2.0))
    display.show(Progress("choosing versions", 3.0, over=True))
    assert stream.getvalue() == "\r\x1b[2Kchoosing versions: 2s\r\x1b[2K"


def test_a_pipe_is_told_now_and_then_that_a_long_step_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    display = TerminalDisplay(Settings(), io.StringIO())
    step = "installing torch"
    for seconds in range(1, 601):
        display.show(Progress(step, float(seconds), detail="torch"))
    display.show(Progress(step, 601.0, over=True))
    said = capsys.readouterr().err.splitlines()
    times = ("20s", "40s", "1m 20s", "2m 40s", "4m 40s", "6m 40s", "8m 40s")
    assert said == [f"{step}: {time} (torch)" for time in times]
    display.show(Progress(step, 5.0))  # the same step, later
    display.show(Progress(step, 25.0))
    assert capsys.readouterr().err == f"{step}: 25s\n"


@pytest.mark.parametrize("kind", ["pipe", "dumb"])
def test_elsewhere_only_the_last_line_is_written(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "dumb" if kind == "dumb" else "xterm")
    stream = Tty() if kind == "dumb" else io.StringIO()
    display = TerminalDisplay(Settings(), stream)

    async def main() -> None:
        display.show(HALF)
        assert stream.getvalue() == ""
        display.show(DONE)

    asyncio.run(main())
    written = stream.getvalue() if kind == "dumb" else capsys.readouterr().err
    assert written == "pushing to host/cells: 126.0 MB in 14s\n"
