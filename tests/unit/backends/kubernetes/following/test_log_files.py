"""A log file that is there is never replaced by less."""

from __future__ import annotations

import errno
import fcntl
import functools
from pathlib import Path

import pytest

from ciao_kernel import private_files
from ciao_kernel.backends.kubernetes.following.log_files import LogFiles
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


def test_a_folder_that_cannot_be_written_ends_the_keeping_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    kept = LogFiles(tmp_path / "file" / "job", write=True)
    kept.write(ONE, b"one\n")
    assert kept.fault == "Not a directory"
    kept.close([ONE])
    full = LogFiles(tmp_path, write=True)
    opened = functools.partial(Path("/dev/full").open, "wb")
    monkeypatch.setattr(private_files, "create", lambda path: opened())
    full.write(ONE, b"one\n")
    assert full.fault == "No space left on device"
    full.write(ONE, b"two\n")
    full.close()


def test_a_drive_without_locks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    kept = LogFiles(tmp_path, write=True)
    kept.write(ONE, b"one\n")
    assert kept.fault == "No locks available"
