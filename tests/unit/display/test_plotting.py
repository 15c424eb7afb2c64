"""Curves in both displays: any plot is shown, where it belongs and as often as it changes."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.display import notebook, terminal
from ciao_kernel.display.notebook import NotebookDisplay
from ciao_kernel.display.plot import curves
from ciao_kernel.display.plot.metrics import Metrics
from ciao_kernel.display.plot_output import PlotOutput
from ciao_kernel.display.plotting import plot_of
from ciao_kernel.display.terminal import TerminalDisplay
from ciao_kernel.model import Job, Output, Replica

ONE, TWO = Replica("worker", 0), Replica("worker", 1)
LINES = b"step 1 loss 2\nstep 2 loss 1\n"
PACKAGE = "ciao_kernel.display.plot"


def job(*plot: str) -> Job:
    return Job("mnist", "local", "tensorflow", (ONE, TWO), 0.0, plot=plot)


class Cell:
    """What a cell got (:class:`ciao_kernel.display.publisher.Publisher`)."""

    def __init__(self) -> None:
        self.text = ""
        self.shown: list[tuple[str, bool, dict[str, str]]] = []
        self.metadata: Mapping[str, Any] | None = None

    def stream(self, text: str) -> None:
        self.text += text

    def display(
        self,
        data: dict[str, str],
        display_id: str,
        *,
        update: bool,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.shown.append((display_id, update, data))
        self.metadata = metadata

    @property
    def pictures(self) -> list[tuple[str, bool, dict[str, str]]]:
        return [one for one in self.shown if one[0].endswith("-plot")]


def followed(plot: str = "", follow: tuple[str, ...] = ()) -> Cell:
    """Show a job whose replicas write a line each."""
    cell = Cell()

    async def main() -> None:
        display = NotebookDisplay(cell, Settings(color="never"))
        display.begin(job(*plot.split()), follow)
        for replica in (ONE, TWO):
            display.show(Output(replica, LINES, 2))
        await display.end()

    asyncio.run(main())
    return cell


def test_a_cell_has_one_picture_between_table_and_lines() -> None:
    cell = followed("loss")
    assert [one[0].endswith("-plot") for one in cell.shown[:2]] == [False, True]
    first, *others = cell.pictures
    assert not first[1]
    assert all(name == first[0] and update for name, update, _ in others)
    # While it runs a picture that pages confine; what is kept is a picture that all places show.
    assert {*others[-2][2]} == {"text/plain", "text/html"}
    assert {*others[-1][2]} == {"text/plain", "image/png"}
    assert cell.metadata is not None
    assert cell.metadata["image/png"]["width"] == 720
    assert cell.metadata["image/png"]["alt"] == "loss of mnist"
    assert cell.text.count("step 1 loss") == 2
    assert first[2] == {"text/plain": "%plot: loss is drawn here"}
    # For front ends that show the first words for ever.
    assert cell.text.endswith("%plot: loss █▁ median of 2 replicas 1\n")
    assert not followed().pictures


def test_what_is_not_followed_is_not_drawn() -> None:
    *_, (_, _, last) = followed("loss", ("worker-1",)).pictures
    assert [line.split()[1] for line in last["text/plain"].splitlines()] == ["worker-1"]


def test_a_job_that_says_nothing_of_it_leaves_words() -> None:
    cell = followed("losss")
    *_, (_, _, last) = cell.pictures
    assert last == {"text/plain": "%plot: nothing to draw"}
    assert cell.text.endswith("%plot: no line with `losss` was found; names found: loss.\n")


def test_curves_that_cannot_be_drawn_do_not_end_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError("no ink")

    monkeypatch.setattr(Metrics, "add", broken)
    cell = followed("loss")
    assert (
        "ciao could not keep this output up to date while mnist ran: OSError: no ink" in cell.text
    )
    assert cell.text.count("[worker-1] step") == 2
    monkeypatch.undo()
    monkeypatch.setattr(curves, "draw", broken)
    assert "The curves could not be drawn: OSError('no ink')" in followed("loss").text


def piped(*plot: str) -> None:
    """Show a job in a pipe, one of whose replicas writes lines."""

    async def main() -> None:
        display = TerminalDisplay(Settings(), sys.stdout)
        display.begin(job(*plot), ())
        display.show(Output(ONE, LINES, 2))
        await display.end()

    asyncio.run(main())


def test_a_pipe_gets_the_curves_as_text_behind_the_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    piped("loss", "losss")
    written = capsys.readouterr()
    assert written.out == "[worker-0] step 1 loss 2\n[worker-0] step 2 loss 1\n"
    *_, line, closing = written.err.splitlines()
    assert re.fullmatch(r"loss  worker-0  █▁ +1 at step 2", line)
    assert closing == "%plot: no line with `losss` was found; names found: loss."


class Flowers:
    """A plot of another package (:class:`ciao_kernel.display.plotting.Plot`)."""

    def __init__(self) -> None:
        self.read: list[bytes] = []
        self.changed = True
        self.keeper: threading.Thread | None = None

    def output(self, event: Output) -> None:
        self.read.append(event.data)
        self.changed = True

    def lines(self) -> list[str]:
        return [f"{len(self.read)} flowers\x1b[2J"]

    def draw(self) -> dict[str, str] | None:
        changed, self.changed = self.changed, False
        return {"text/plain": f"{len(self.read)} flowers"} if changed else None

    def keep(self) -> tuple[dict[str, str], Mapping[str, Any]]:
        self.keeper = threading.current_thread()
        return {"image/png": "iV"}, {"image/png": {"width": 1}}

    def summary(self) -> str:
        return "a bouquet\n"

    def closing_text(self) -> str:
        return "one is missing\n"


def test_a_notebook_shows_any_plot(monkeypatch: pytest.MonkeyPatch) -> None:
    flowers = Flowers()
    monkeypatch.setattr(notebook, "plot_of", lambda job: flowers)
    cell = followed("roses", ("worker-1",))
    assert flowers.read == [LINES]
    assert [(update, data) for _, update, data in cell.pictures] == [
        (False, {"text/plain": "0 flowers"}),
        (True, {"text/plain": "1 flowers"}),
        (True, {"image/png": "iV"}),
    ]
    assert cell.metadata == {"image/png": {"width": 1}}
    assert cell.text.endswith("a bouquet\none is missing\n")
    # What takes long does not stop the other output.
    assert flowers.keeper not in (None, threading.main_thread())


def test_a_terminal_shows_any_plot(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flowers = Flowers()
    monkeypatch.setattr(terminal, "plot_of", lambda job: flowers)
    piped("roses")
    *_, lines, closing = capsys.readouterr().err.splitlines()
    assert lines == r"1 flowers\x1b[2J"  # an escape sequence is text
    assert closing == "one is missing"


def test_a_plot_is_sent_only_if_it_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ciao_kernel.display.plot_output._TICK", 0.0)
    flowers, cell = Flowers(), Cell()
    output = PlotOutput(flowers, cell, "x-plot", rate=1e9)
    output.begin()
    assert output.draw_if_due(0.0) == 0
    flowers.output(Output(ONE, b"", 0))
    assert output.draw_if_due(0.0) == len("1 flowers")
    assert len(cell.pictures) == 2
    flowers.output(Output(ONE, b"", 0))
    assert output.draw_if_due(7200.0) == 0  # each picture of an old job costs a message too


def test_jobs_without_the_wish_import_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*sys.modules]:
        if name == PACKAGE or name.startswith(f"{PACKAGE}."):
            monkeypatch.delitem(sys.modules, name)
    assert plot_of(job()) is None
    assert not followed().pictures
    piped()
    assert PACKAGE not in sys.modules
    assert plot_of(job("loss")) is not None
    assert PACKAGE in sys.modules
