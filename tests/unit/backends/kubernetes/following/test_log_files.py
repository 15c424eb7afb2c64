"""A log file that is there is never replaced by less."""

from __future__ import annotations

import base64
import errno
import fcntl
import itertools
import json
import re
import resource
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ciao_kernel.backends.kubernetes.following import log_files
from ciao_kernel.backends.kubernetes.following.log_files import LogFiles
from ciao_kernel.delivery.output import results, values_message
from ciao_kernel.model import Replica

ONE = Replica("worker", 0)


def follow(folder: Path, *pieces: bytes, complete: bool = True, write: bool = True) -> None:
    kept = LogFiles(folder, write=write)
    for piece in pieces:
        kept.write(ONE, piece)
    kept.close([ONE] if complete else [])
    assert not kept.fault


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name[0] != "."}


def test_the_first_follower_writes_as_it_reads(tmp_path: Path) -> None:
    kept = LogFiles(tmp_path / "job", write=True)
    kept.write(ONE, b"one\n")
    assert kept.path(ONE).read_bytes() == b"one\n"
    kept.close()
    assert files(tmp_path / "job") == {"worker-0.log": b"one\n"}


def test_a_second_one_takes_over_once_it_has_as_much(tmp_path: Path) -> None:
    follow(tmp_path, b"one\n", b"two\n")
    follow(tmp_path, b"one\n", complete=False)  # interrupted
    assert files(tmp_path) == {"worker-0.log": b"one\ntwo\n"}
    follow(tmp_path, b"one\n", b"two\n", b"three\n", complete=False)
    assert files(tmp_path) == {"worker-0.log": b"one\ntwo\nthree\n"}


def test_what_the_node_has_dropped_stays_beside_the_rest(tmp_path: Path) -> None:
    follow(tmp_path, b"one\n", b"two\n")
    follow(tmp_path, b"three\n")
    assert files(tmp_path) == {
        "worker-0.earlier.log": b"one\ntwo\n",
        "worker-0.log": b"three\n",
    }


def test_a_part_of_the_log_is_not_kept(tmp_path: Path) -> None:
    follow(tmp_path, b"one\n", b"two\n")
    follow(tmp_path, b"two\n", write=False)
    assert files(tmp_path) == {"worker-0.log": b"one\ntwo\n"}


def test_of_two_at_a_time_the_first_one_writes(tmp_path: Path) -> None:
    first, second = LogFiles(tmp_path, write=True), LogFiles(tmp_path, write=True)
    first.write(ONE, b"one\n")
    second.write(ONE, b"one\ntwo\nthree\n")
    second.close([ONE])
    first.write(ONE, b"two\n")
    assert files(tmp_path) == {"worker-0.log": b"one\ntwo\n"}
    first.close([ONE])
    follow(tmp_path, b"one\ntwo\nthree\n")
    assert files(tmp_path) == {"worker-0.log": b"one\ntwo\nthree\n"}


@pytest.mark.parametrize("written", [b"", b"on", b"one\n", b"one\ntwo\n", b"one\ntwo\nthree\n"])
def test_the_second_one_goes_on_where_the_first_one_ended(tmp_path: Path, written: bytes) -> None:
    first, second = LogFiles(tmp_path, write=True), LogFiles(tmp_path, write=True)
    first.write(ONE, written)
    second.write(ONE, b"one\n")
    second.write(ONE, b"two\n")
    first.close()
    second.close([ONE])
    ours = b"one\ntwo\n"
    theirs = {"worker-0.earlier.log": written} if len(written) > len(ours) else {}
    assert files(tmp_path) == {**theirs, "worker-0.log": ours}


def test_the_second_one_takes_over_while_the_job_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "_ASK_EVERY", 0.0)
    first, second = LogFiles(tmp_path, write=True), LogFiles(tmp_path, write=True)
    first.write(ONE, b"one\n")
    second.write(ONE, b"one\ntwo\n")
    first.close()
    second.write(ONE, b"three\n")
    assert files(tmp_path) == {"worker-0.log": b"one\ntwo\nthree\n"}
    second.close()


OLD = b"".join(b"step %d loss 0.9\n" % number for number in range(5))
NEW = b"".join(b"step %d loss 0.%d\n" % (number, 9 - number) for number in range(5))
"""Two logs that begin alike."""


@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_the_second_one_goes_on_in_a_file_that_the_first_one_has_begun_anew(
    tmp_path: Path, pieces: int
) -> None:
    follow(tmp_path, OLD)
    first, second = LogFiles(tmp_path, write=True), LogFiles(tmp_path, write=True)
    lines = NEW.splitlines(keepends=True)
    for line in lines[:3]:
        first.write(ONE, line)
    size = -(-len(NEW) // pieces)
    for at in range(0, len(NEW), size):
        second.write(ONE, NEW[at : at + size])
    first.close()
    second.close([ONE])
    assert files(tmp_path) == {"worker-0.earlier.log": OLD, "worker-0.log": NEW}


def test_what_the_first_one_saves_in_a_new_file_is_not_held_by_the_second_one(
    tmp_path: Path,
) -> None:
    follow(tmp_path, OLD)
    first, second = LogFiles(tmp_path, write=True), LogFiles(tmp_path, write=True)
    piece = b"x" * (1 << 20)
    for data in (NEW, *[piece] * 70):
        first.write(ONE, data)
        second.write(ONE, data)
    assert second.fault == ""
    second.close()
    first.close([ONE])


def test_the_second_one_ends_a_try_in_the_file_that_is_named_after_it(tmp_path: Path) -> None:
    first, second = LogFiles(tmp_path, write=True), LogFiles(tmp_path, write=True)
    first.write(ONE, b"one\n")
    second.write(ONE, b"one\ntwo\n")
    first.close()
    first.path(ONE).rename(tmp_path / "worker-0.try-1.log")
    second.close()
    assert files(tmp_path) == {"worker-0.try-1.log": b"one\ntwo\n"}


def test_what_nobody_saves_is_said_and_not_held_without_end(tmp_path: Path) -> None:
    first, second = LogFiles(tmp_path, write=True), LogFiles(tmp_path, write=True)
    for _ in range(65):
        second.write(ONE, bytes(1 << 20))
    assert second.fault == "another process that follows the job does not save them"
    second.close()
    first.close()


def test_a_file_that_another_process_names_anew_is_written_to_its_end(tmp_path: Path) -> None:
    kept = LogFiles(tmp_path, write=True)
    kept.write(ONE, b"one\n")
    kept.path(ONE).rename(tmp_path / "worker-0.try-1.log")
    kept.write(ONE, b"two\n")
    kept.close([ONE])
    assert files(tmp_path) == {"worker-0.try-1.log": b"one\ntwo\n"}


def test_values_are_kept_by_each_follower(tmp_path: Path) -> None:
    entry = {
        "type": "builtins.float",
        "file": "loss.json",
        "data": base64.b64encode(b"0.5").decode(),
    }
    message = values_message.MARK + json.dumps({"names": ["loss"], "values": {"loss": entry}})
    for write in (True, False):
        job = tmp_path / str(write)
        first, other = LogFiles(job, write=True), LogFiles(job, write=write)
        other.keep_results(ONE, message)
        assert results.Results(results.folder(job, ONE))["loss"] == 0.5
        other.close()
        first.close()


def test_a_folder_that_cannot_be_written_ends_the_keeping_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    kept = LogFiles(tmp_path / "file" / "job", write=True)
    kept.write(ONE, b"one\n")
    assert kept.fault == "Not a directory"
    kept.close([ONE])


def test_a_full_disk_ends_the_keeping_alone(tmp_path: Path) -> None:
    full = LogFiles(tmp_path, write=True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6, before[1]))  # within the second line
    try:
        full.write(ONE, b"one\n")
        full.write(ONE, b"two\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert full.fault == "File too large"
    full.write(ONE, b"three\n")
    full.close([ONE])
    assert files(tmp_path) == {"worker-0.log": b"one\ntw"}


def test_a_drive_without_locks_has_logs_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    first, second = LogFiles(tmp_path, write=True), LogFiles(tmp_path, write=True)
    for kept, piece in ((first, b"one\n"), (second, b"one\ntwo\n"), (first, b"two\nthree\n")):
        kept.write(ONE, piece)
    second.close()
    first.close([ONE])
    assert files(tmp_path) == {"worker-0.log": b"one\ntwo\nthree\n"}


SESSIONS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 40), st.integers(1, 30), st.booleans()),
    max_size=6,
)
"""First line, number of lines, bytes of a piece, and whether the log was read to its end."""


@given(SESSIONS, st.sampled_from(["%d\n", "step %d of 100\n", "%d" + "x" * 50 + "\n"]))
@settings(deadline=None)
def test_nothing_that_was_saved_is_lost_or_doubled_in_a_file(
    sessions: list[tuple[int, int, int, bool]], line: str
) -> None:
    seen: set[bytes] = set()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for first, count, size, complete in sessions:
            text = "".join(line % number for number in range(first, first + count)).encode()
            pieces = [text[at : at + size] for at in range(0, len(text), size)]
            follow(folder, *pieces, complete=complete)
            seen |= set(text.splitlines())
            saved = {name: data.splitlines() for name, data in files(folder).items()}
            assert set(itertools.chain.from_iterable(saved.values())) == seen
            for lines in saved.values():
                assert lines == sorted(set(lines), key=lambda one: int(re.findall(rb"\d+", one)[0]))
            if complete:
                assert saved["worker-0.log"][-1] == text.splitlines()[-1]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from([b"a", b"b", b"c" * 70_000]), max_size=8), st.integers(0, 8))
def test_the_lines_before_a_stream_are_those_of_the_file(words: list[bytes], at: int) -> None:
    lines = [b"%d %b\n" % (number, word) for number, word in enumerate(words)]
    with tempfile.TemporaryDirectory() as name:
        kept = LogFiles(Path(name), write=True)
        kept.path(ONE).write_bytes(b"".join(lines))
        begun = b"".join(lines[at:])
        assert b"".join(kept.lines_before(ONE, begun)) == (b"".join(lines[:at]) if begun else b"")
        assert b"".join(kept.lines_before(ONE, b"other\n")) == b""
        assert b"".join(kept.lines(ONE)) == b"".join(lines)
        kept.close()
