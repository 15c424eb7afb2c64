"""A log that grows is cut into lines: each once, whatever the moments of reading are."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ciao_kernel.backends.local.log_reader import LogReader
from ciao_kernel.model import Notice, Output, Replica

ONE = Replica("worker", 0)


def outputs(reader: LogReader, *, rest: bool = False) -> list[Output]:
    events = list(reader.rest() if rest else reader.read())
    assert not any(isinstance(event, Notice) for event in events)
    return [event for event in events if isinstance(event, Output)]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(st.sampled_from("ab\n\rü"), max_size=8).map(str.encode), max_size=12))
def test_any_pieces_make_the_same_lines(pieces: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        reader = LogReader(ONE, path)
        assert outputs(reader) == []
        found: list[Output] = []
        with path.open("ab", buffering=0) as log:
            for piece in pieces:
                log.write(piece)
                found += outputs(reader)
        written = path.read_bytes()
        unfinished = written.rpartition(b"\n")[2]
        assert all(one.data.endswith(b"\n") or not one.data for one in found)
        if found:
            assert found[-1].tail == unfinished
        found += outputs(reader, rest=True)
        reader.close()
        reader.close()
        assert b"".join(one.data for one in found) == written
        assert sum(one.lines for one in found) == written.count(b"\n") + bool(unfinished)


def test_a_rest_ends_though_the_log_grows_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x\n" * 500_000)
    reader = LogReader(ONE, path)
    found = 0
    with path.open("ab", buffering=0) as log:
        for event in reader.rest():
            assert isinstance(event, Output)
            found += event.lines
            log.write(b"y\n" * 200_000)  # a writer that is faster than the reader
            assert found < 2_000_000
    assert found >= 500_000


def test_a_log_that_is_cut_off_starts_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"before\nhalf")
    reader = LogReader(ONE, path)
    assert outputs(reader)[0].data == b"before\n"
    path.write_bytes(b"")
    half, notice = reader.read()
    assert half == Output(ONE, b"half\n", 1)
    assert isinstance(notice, Notice)
    assert "worker-0" in notice.text
    path.write_bytes(b"after\n")
    assert outputs(reader)[0].data == b"after\n"


@pytest.mark.parametrize("after", [b"other\n", b"same length", b"more than before\n", b"m" * 1000])
def test_a_log_that_is_cut_off_and_written_anew_starts_again(tmp_path: Path, after: bytes) -> None:
    """``> /dev/stderr`` does that, and its text may be longer than all that was read."""
    path = tmp_path / "log"
    path.write_bytes(b"before\nhalf")
    reader = LogReader(ONE, path)
    assert outputs(reader)[0].data == b"before\n"
    path.write_bytes(after)
    half, notice = reader.read()
    assert half == Output(ONE, b"half\n", 1)
    assert isinstance(notice, Notice)
    assert "`>&2`" in notice.text
    assert b"".join(one.data for one in outputs(reader, rest=True)) == after


@pytest.mark.parametrize("more", [b"", b"and more\n"])
@pytest.mark.parametrize("bar", [b"", b"=" * 100])
def test_a_log_that_is_written_anew_with_the_same_first_words(
    tmp_path: Path, bar: bytes, more: bytes
) -> None:
    path = tmp_path / "log"
    head = b"#" * 100 + b"\n"
    first, second = (b"[%s] step %d\n" % (bar, step) for step in (1, 2))
    path.write_bytes(head + first)
    reader = LogReader(ONE, path)
    assert outputs(reader)[0].data == head + first
    path.write_bytes(head + second + more)
    (notice,) = reader.read()
    assert isinstance(notice, Notice)
    assert b"".join(one.data for one in outputs(reader, rest=True)) == second + more
    path.write_bytes(head)  # shorter, so it was truncated
    assert list(reader.read()) == []
    assert outputs(reader, rest=True)[0].data == head


def test_a_program_that_writes_over_the_last_lines_repeats_no_others(tmp_path: Path) -> None:
    """``open("/dev/stdout", "w")`` has a place of its own in the file, and ``print`` appends."""
    path = tmp_path / "log"
    reader = LogReader(ONE, path)
    found = b""
    with path.open("wb", buffering=0) as own, path.open("ab", buffering=0) as output:
        for step in range(100):
            own.write(b"own line %03d\n" % step)
            for write in (b"", b"print %03d\n" % step if step > 10 else b""):
                output.write(write)
                for event in (*reader.read(), *reader.read()):
                    found += event.data if isinstance(event, Output) else b""
    assert found.count(b"own line 000\n") == 1
    assert found.count(b"\n") < 250
    for step in range(11, 100):
        assert b"own line %03d\n" % step in found
        assert b"print %03d\n" % step in found


def test_a_log_that_is_written_anew_for_each_line_has_one_notice(tmp_path: Path) -> None:
    """As a loop of ``echo step $i > /dev/stderr`` does it."""
    path = tmp_path / "log"
    reader = LogReader(ONE, path)
    events: list[Output | Notice] = []
    for step in range(5):
        path.write_bytes(b"step %d\n" % step)
        events += reader.read()
        events += reader.read()
    assert [one.data for one in events if isinstance(one, Output)] == [
        b"step %d\n" % step for step in range(5)
    ]
    assert sum(isinstance(one, Notice) for one in events) == 1


def test_a_bar_keeps_its_last_state_only(tmp_path: Path) -> None:
    path = tmp_path / "log"
    reader = LogReader(ONE, path)
    path.write_bytes(b"".join(b"\r%d%%" % n for n in range(100_000)))
    last: list[Output] = []
    while new := outputs(reader):
        last = new
    assert last[-1].tail.endswith(b"\r99999%") or last[-1].tail == b"99999%"
    with path.open("ab") as log:
        log.write(b"\rdone\n")
    (end,) = outputs(reader)
    assert end.lines == 1
    assert end.data.endswith(b"\rdone\n")
    assert len(end.data) < 70_000


def test_a_read_that_fails_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """A file server may be away for a moment; a training must not end for that."""
    path = tmp_path / "log"
    path.write_bytes(b"one\nunfini")
    reader = LogReader(ONE, path)
    assert outputs(reader)[0].data == b"one\n"
    for rest in (False, True):
        assert reader._descriptor is not None
        os.close(reader._descriptor)  # reads fail now, as they do while a server is away
        assert list(reader.rest(last=False) if rest else reader.read()) == []
        assert reader.failed
        with path.open("ab") as log:
            log.write(b"shed\ntwo")
        assert outputs(reader)[0].data in (b"unfinished\n", b"twoshed\n")
        assert not reader.failed
    (end,) = outputs(reader, rest=True)
    assert end.data == b"two"
    assert not reader.failed
