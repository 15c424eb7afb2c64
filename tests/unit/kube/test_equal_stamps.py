"""Lines with one and the same stamp, in an answer that breaks off at any place of them.

A clock of the node that ticks slowly gives one stamp to many lines, and a program may write the
same text again and again. ``CIAO_TEST_STAMPS`` sets the number of lines.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from ciao_kernel.kube.replay import Mismatch, Mode, Replay
from ciao_kernel.kube.resume_position import Gap, Lines, ResumePosition

COUNT = int(os.environ.get("CIAO_TEST_STAMPS", "1000"))
STAMP = b"2026-11-21T10:00:05.123456789Z "
BEFORE = [b"2026-11-21T10:00:04.%09dZ before %d\n" % (n, n) for n in range(3)]
AFTER = [b"2026-11-21T10:00:07.%09dZ after %d\n" % (n, n) for n in range(3)]
TEXTS = {
    "distinct": b"line %d\n",
    "alike": b"the same line\n",
    "pairs": b"pair %d\n",
    "empty": b"\n",
}
each_text = pytest.mark.parametrize("kind", TEXTS)


def log(kind: str, count: int) -> list[bytes]:
    """A log whose middle has one stamp."""
    form = TEXTS[kind]
    numbers = (n // 2 if kind == "pairs" else n for n in range(count))
    middle = [STAMP + (form % n if b"%" in form else form) for n in numbers]
    return [*BEFORE, *middle, *AFTER]


class Reader:
    """A reader that asks again after each cut, as ContainerLog does."""

    def __init__(self, whole: list[bytes]) -> None:
        self.whole = whole
        self._progress, self._mode = ResumePosition(), Mode.COUNT
        self.data = b""

    def ask(self, cut: int | None = None) -> None:
        """Read one answer, up to a byte of it."""
        since = self._progress.since.encode()[:19]
        body = b"".join(line for line in self.whole if line[:19] >= since)
        replay = Replay(self._progress, self._mode)
        try:
            self._take(replay.feed(body if cut is None else body[:cut]))
            if cut is None:
                self._take(replay.end())
                self._take(replay.finish())
        except Mismatch:
            assert self._mode is Mode.COUNT, "the log never was another"
            self._mode = Mode.SEARCH
            return
        if replay.joined:
            self._mode = Mode.COUNT

    def _take(self, found: list[Lines | Gap]) -> None:
        for one in found:
            assert isinstance(one, Lines), one
            self.data += one.data

    def check(self) -> None:
        """Every line came once, in order."""
        assert self.data == b"".join(line[len(STAMP) :] for line in self.whole)


def ends(whole: list[bytes], inside: random.Random | None) -> Iterator[int]:
    """The place behind each line, or one somewhere in it."""
    at = 0
    for line in whole:
        yield at + (inside.randrange(len(line)) if inside else len(line))
        at += len(line)


@each_text
@pytest.mark.parametrize("inside", [None, random.Random(1)], ids=["behind", "inside"])
def test_a_stream_that_is_cut_once_at_any_line(kind: str, inside: random.Random | None) -> None:
    whole = log(kind, COUNT // 3)
    for cut in ends(whole, inside):
        reader = Reader(whole)
        reader.ask(cut)
        reader.ask()
        reader.check()


@each_text
@pytest.mark.parametrize("inside", [None, random.Random(2)], ids=["behind", "inside"])
def test_a_stream_that_is_cut_at_every_line(kind: str, inside: random.Random | None) -> None:
    """Each request gets one line further than the last."""
    whole = log(kind, COUNT)
    reader = Reader(whole)
    for cut in ends(whole, inside):
        reader.ask(cut)
    reader.ask()
    reader.check()


@each_text
def test_an_answer_that_grows_by_one_line_at_a_time(kind: str) -> None:
    """The node has written one more line whenever it is asked."""
    whole = log(kind, COUNT)
    reader = Reader([])
    for number in range(1, len(whole) + 1):
        reader.whole = whole[:number]
        reader.ask(len(b"".join(whole[:number])))
    reader.ask()
    reader.check()
