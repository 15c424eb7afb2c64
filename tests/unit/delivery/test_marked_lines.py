"""The number of a process before its lines, as the output of several processes has it."""

from __future__ import annotations

import inspect
import io
from types import SimpleNamespace
from typing import Any

import pytest

from ciao_kernel.delivery.warm.zygote.marked_lines import _Marked
from ciao_kernel.frameworks import torchrun

BAR = "\r 50%|███  | 2/4"
CASES: list[tuple[list[str], str]] = [
    (["a\n", "b", " c\n", "\n", "  d\ne"], "[1] a\n[1] b c\n[1] \n[1]   d\n[1] e"),
    # Each state of a bar is shown alone.
    ([BAR, BAR, "\n", "a\n"], f"[1] \r[1] {BAR[1:]}\r[1] {BAR[1:]}\n[1] a\n"),
    (["a\rb\r", "c"], "[1] a\r[1] b\r[1] c"),
    # What clears a line shows nothing, and the line that follows has a number.
    ([BAR, "\r" + " " * 9, "\r", "a\n"], f"[1] \r[1] {BAR[1:]}\r{' ' * 9}\r[1] a\n"),
    (["a\r\x1b[2K", "b"], "[1] a\r\x1b[2K[1] b"),
    (["a\r \x1b[31mb"], "[1] a\r[1]  \x1b[31mb"),
    # A carriage return before a line feed is a part of the line's end.
    (["a\r\nb\r", "\n", "c\r\r\n"], "[1] a\r\n[1] b\r\n[1] c\r\r\n"),
    # An exception while a bar is open.
    ([BAR, "Traceback\n", "  File\n"], f"[1] \r[1] {BAR[1:]}Traceback\n[1]   File\n"),
    ([""], ""),
]


@pytest.fixture(autouse=True)
def number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")


def streams(*, same: bool) -> tuple[list[io.BytesIO], list[_Marked]]:
    files = [io.BytesIO()] * 2 if same else [io.BytesIO(), io.BytesIO()]
    last: list[_Marked] = []
    of: list[Any] = [SimpleNamespace(buffer=one, encoding="utf-8", errors=None) for one in files]
    return files, [_Marked(stream, last if same else []) for stream in of]


def said(file: io.BytesIO) -> str:
    return file.getvalue().decode()


@pytest.mark.parametrize(("texts", "shown"), CASES)
def test_each_line_and_each_state_of_a_bar_has_the_number(texts: list[str], shown: str) -> None:
    (file, _), (stream, _) = streams(same=True)
    assert [stream.write(text) for text in texts] == list(map(len, texts))
    stream.flush()
    assert said(file) == shown


def write(outs: Any, *writes: tuple[int, str]) -> None:
    for number, text in writes:
        outs[number].write(text)
        outs[number].flush()


def test_a_line_that_the_other_stream_has_ended_is_over() -> None:
    (file, _), outs = streams(same=True)
    write(outs, (1, "bar"), (0, "step 1\n"), (1, "INFO\n"), (0, "step 2\n"))
    assert said(file) == "[1] bar[1] step 1\n[1] INFO\n[1] step 2\n"


def test_a_bar_that_the_other_stream_has_cleared_leaves_one_number() -> None:
    (file, _), outs = streams(same=True)
    write(outs, (1, "\r50%"), (1, "\r   \r"), (0, "step 1\n"))
    assert said(file) == "[1] \r[1] 50%\r   \r[1] step 1\n"


def test_half_a_line_that_waits_stays_one_line() -> None:
    (file, _), outs = streams(same=True)
    for number, text in [(0, "half"), (1, "warning\n"), (0, " a line\n"), (1, "more\n")]:
        outs[number].write(text)
    assert said(file) == "[1] warning\n[1] half a line\n[1] more\n"


def test_another_file_does_not_count() -> None:
    files, outs = streams(same=False)
    write(outs, (1, "bar"), (0, "step 1\n"), (1, " ends\n"))
    assert list(map(said, files)) == ["[1] step 1\n", "[1] bar ends\n"]


def test_torchrun_and_warm_replicas_write_the_same() -> None:
    assert inspect.getsource(_Marked) in torchrun._LINES
