"""The log file of a replica, as a whole and in pieces."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from ciao_kernel import file_pieces
from ciao_kernel.backends.local import log_file
from ciao_kernel.errors import BackendError, UsageError
from ciao_kernel.model.queries import WHOLE_LOG, LogOptions, last_lines

NEW_TRY = b"ciao: worker-0 was killed by SIGKILL; try 2 of 3\n"


def both(path: Path, options: LogOptions = WHOLE_LOG) -> bytes:
    async def main() -> bytes:
        pieces = [piece async for piece in log_file.pieces(path, options)]
        whole = await log_file.read(path, options)
        assert b"".join(pieces) == whole
        return whole

    return asyncio.run(main())


def test_a_long_log_comes_in_pieces_and_new_lines_are_not_waited_for(tmp_path: Path) -> None:
    path, line = tmp_path / "worker-0.log", b"x" * 99 + b"\n"
    path.write_bytes(line * 30_000 + b"the end")

    async def main() -> None:
        found = []
        async for piece in log_file.pieces(path, WHOLE_LOG):
            found.append(piece)
            assert len(found) < 100
            with path.open("ab") as file:
                file.write(line)
        assert b"".join(found) == line * 30_000 + b"the end"
        assert len(found) > 5

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(30))
def test_the_last_lines_are_found_from_the_end(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_pieces, "_PIECE", 7)
    chance = random.Random(seed)
    data = b"".join(chance.choice([b"\n", b"a", b"line\n", b"a long line"]) for _ in range(seed))
    path = tmp_path / "worker-0.log"
    path.write_bytes(data)
    for number in (0, 1, 2, 3, 5, 100):
        assert both(path, LogOptions(tail=number)) == last_lines(data, number)


def test_lines_before_the_last_ones_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read = tmp_path / "worker-0.log", 0
    path.write_bytes(b"a line\n" * 1_000_000)

    def pread(file: int, size: int, at: int) -> bytes:
        nonlocal read
        data = true(file, size, at)
        read += len(data)
        return data

    true = os.pread
    monkeypatch.setattr(os, "pread", pread)
    assert both(path, LogOptions(tail=3)) == b"a line\n" * 3
    assert 0 < read < 2_000_000


def test_a_log_that_is_missing_or_empty_has_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    for options in (WHOLE_LOG, LogOptions(tail=3)):
        assert both(path, options) == b""
    path.touch()
    for options in (WHOLE_LOG, LogOptions(tail=3)):
        assert both(path, options) == b""


def test_lines_of_new_starts_are_left_out_of_what_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    path.write_bytes(b"one\n" + NEW_TRY + b"two")
    assert both(path) == b"one\n" + NEW_TRY + b"two"
    assert both(path, LogOptions(followed=True)) == b"one\ntwo"


@pytest.mark.parametrize(
    "options", [LogOptions(previous=True), LogOptions(timestamps=True), LogOptions(since=1.0)]
)
def test_what_is_not_recorded_is_refused(options: LogOptions, tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match="is not available"):
            await log_file.read(tmp_path / "no", options)
        with pytest.raises(UsageError, match="is not available"):
            await anext(log_file.pieces(tmp_path / "no", options))

    asyncio.run(main())


def test_a_link_in_the_place_of_a_log_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    (tmp_path / "other").write_bytes(b"secret\n")
    path.symlink_to(tmp_path / "other")

    async def main() -> None:
        with pytest.raises(BackendError, match="symbolic link"):
            await log_file.read(path, WHOLE_LOG)
        with pytest.raises(BackendError, match="symbolic link"):
            await anext(log_file.pieces(path, WHOLE_LOG))

    asyncio.run(main())
