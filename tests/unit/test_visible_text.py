"""What is not drawn in a value is written, so that no message looks like another one."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciao_kernel.display.html_table import table_html
from ciao_kernel.display.lines import Prefixer
from ciao_kernel.display.table import Table
from ciao_kernel.errors import DirectiveError, SpecError, describe
from ciao_kernel.model import Job, Output, Replica, ReplicaStatus, State, Status
from ciao_kernel.visible_text import listed, one_line, short, visible, visible_lines

HIDDEN = "\u202e\u2066\u200b\u200f\ufeff\x00\x07\r\x1b\x7f\x85\x9b\xad\u2028\u2029\U000e0041"
"""Directions, characters without width, controls, line ends, and tags."""


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\u202eb", r"a\u202eb"),
        ("\x1b[31m\r\n\t", r"\x1b[31m\r\n\t"),
        ("\x85\xad\u200b\u2028", r"\x85\xad\u200b\u2028"),
        ("\U000e0041", r"\U000e0041"),
        (os.fsdecode(b"\xff.csv"), r"\xff.csv"),
        ("\ud800", r"\ud800"),
        ("größe 字 😀 \\ 'x'", "größe 字 😀 \\ 'x'"),
    ],
)
def test_a_value(text: str, seen: str) -> None:
    assert visible(text) == seen


@given(st.text())
def test_each_character_is_drawn(text: str) -> None:
    assert visible(text).isprintable()
    assert visible_lines(text).replace("\n", "").replace("\t", "").isprintable()
    assert visible_lines(text).count("\n") == text.count("\n")
    visible(text).encode()


def test_long_texts_are_cut() -> None:
    assert short("x" * 120) == "x" * 120
    assert short("x" * 121) == "x" * 119 + "…"
    assert listed(["a\u202e", "b", "c", "d"]) == r"a\u202e, b, c and 1 more"


def test_an_error_shows_each_character_and_marks_the_wrong_ones() -> None:
    lines = describe(
        DirectiveError(
            f"bad {HIDDEN}", f"fix\n{HIDDEN}", line=1, column=3, width=2, text="a\xa0\u202e%x\u202e"
        )
    )
    assert lines[:2] == [r"line 1: a\xa0\u202e%x\u202e", " " * 19 + "^^"]
    assert all(line.replace("\n", "").isprintable() for line in lines)
    marked = describe(DirectiveError("x", line=1, column=1, width=2, text="a\u202eb"))
    assert marked[:2] == [r"line 1: a\u202eb", " " * 9 + "^" * 7]
    assert describe(SpecError("a\u202e", directive="x")) == [r"SpecError: a\u202e"]


def test_a_table_and_its_tooltips_show_each_character() -> None:
    worker = Replica("worker", 0)
    table = Table(Job("n", "b", "f", (worker,), 0.0, f"/p{HIDDEN}"))
    one = ReplicaStatus(
        worker, State.FAILED, reason=f"<b>{HIDDEN}", node=HIDDEN, log=f'/a{HIDDEN}/"<{HIDDEN}'
    )
    table.status = Status(State.FAILED, (one,), message=f"<i>{HIDDEN}")
    table.output(Output(worker, f"last \t{HIDDEN}x\n".encode(), 1))
    page = table_html(table)
    assert page.isprintable()
    assert "<b>" not in page.replace("<b style", "")
    assert "<i>" not in page
    texts = [text for row in table.grid() for text in row]
    assert all(map(str.isprintable, texts))
    assert table.title().isprintable()
    assert all(place.isprintable() for _, place in table.places())


def test_a_line_of_a_log_cannot_look_like_one_of_another_replica() -> None:
    prefixer = Prefixer(color=False, limit=1000)
    forged = "[worker-1] done"
    ends = ("\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\x1b[1A", "\x1b[2K\x1b[G")
    for end in ends:
        text = prefixer.format(Replica("worker", 0), f"a{end}{forged}\n".encode())
        (line,) = text.splitlines()
        assert line.startswith("[worker-0] ")
    assert prefixer.prefix(Replica("w\u202e\r", 0)).isprintable()


def test_a_value_is_one_line_in_which_nothing_controls_a_terminal() -> None:
    assert one_line("no node\nhas \x1b[2Jroom\r") == "no node has \\x1b[2Jroom\\r"
    assert one_line(3) == "3"
