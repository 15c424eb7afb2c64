"""One lock, one holder: among processes, tasks, heirs, and files that are removed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ciao_kernel import file_lock

ROOT = Path(__file__).parents[2]
TAKES = """
from pathlib import Path
from ciao_kernel import file_lock
lock = file_lock.block(Path({!r}))
print(flush=True)
input()
"""
POLL = 0.01


@contextlib.contextmanager
def python(code: str, **options: object) -> Iterator[subprocess.Popen[bytes]]:
    """Another process; its first line says that it is ready, and it ends with its input."""
    argv = [sys.executable, "-c", code]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "cwd": ROOT}
    with subprocess.Popen(argv, **pipes, **options) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds a lock."""
    with python(TAKES.format(str(path))) as process:
        assert process.stdout
        process.stdout.readline()
        yield process


def is_free(path: Path) -> bool:
    if (lock := file_lock.try_lock(path)) is None:
        return False
    lock.release()
    return True


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(params=["file", "folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """What is locked: a file that does not exist yet, or a folder."""
    path = tmp_path / "place"
    if request.param == "folder":
        path.mkdir()
    return path


def test_another_process_holds_it_until_it_ends(place: Path) -> None:
    with holder(place) as other:
        assert not is_free(place)
        other.kill()
        other.wait()
        assert is_free(place)
    with file_lock.block(place):
        assert not is_free(place)
    assert is_free(place)


def test_a_locked_folder_stays_empty(tmp_path: Path) -> None:
    with file_lock.block(tmp_path):
        assert list(tmp_path.iterdir()) == []


def test_a_wait_ends_with_the_lock_of_the_other(place: Path) -> None:
    async def main() -> None:
        with holder(place) as other:
            waiting = asyncio.ensure_future(file_lock.wait(place, POLL))
            await asyncio.sleep(5 * POLL)
            assert not waiting.done()
            other.kill()
            (await waiting).release()

    asyncio.run(main())


def test_a_wait_that_is_cancelled_holds_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        place = tmp_path / "place"
        before = descriptors()
        held = await file_lock.wait(place, POLL)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5 * POLL):
                await file_lock.wait(place, POLL)
        held.release()
        assert is_free(place)
        assert descriptors() == before

    asyncio.run(main())


# ------------------------------------------------------------------------------------- heirs


def test_only_a_program_that_gets_the_lock_holds_it_on(tmp_path: Path) -> None:
    """As pip does when the kernel is killed."""
    code = f"""
import subprocess
from pathlib import Path
from ciao_kernel import file_lock
given, kept = (file_lock.block(Path({str(tmp_path)!r}) / name) for name in ("given", "kept"))
one = subprocess.Popen(["sleep", "600"], pass_fds=[given.fileno()])
two = subprocess.Popen(["sleep", "600"], close_fds=False)
print(one.pid, two.pid, flush=True)
input()
"""
    with python(code) as parent:
        assert parent.stdout
        children = [int(word) for word in parent.stdout.readline().split()]
        try:
            parent.kill()
            parent.wait()
            assert is_free(tmp_path / "kept")
            assert not is_free(tmp_path / "given")
        finally:
            for child in children:
                os.kill(child, 9)


def test_a_release_counts_for_forked_children_too(tmp_path: Path) -> None:
    place = tmp_path / "place"
    lock = file_lock.block(place)
    with python("print(flush=True); input()", pass_fds=[lock.fileno()]) as copy:
        assert copy.stdout
        copy.stdout.readline()
        assert not is_free(place)
        lock.release()
        assert is_free(place)


# ----------------------------------------------------------------------------- removed files


def replace(place: Path) -> None:
    """Remove what is locked, and put the same there again."""
    if place.is_dir():
        place.rmdir()
        place.mkdir()
    else:
        place.unlink()


def test_who_waits_for_a_removed_file_waits_for_its_successor(place: Path) -> None:
    async def main() -> None:
        first = file_lock.block(place)
        waiting = asyncio.ensure_future(file_lock.wait(place, POLL))
        await asyncio.sleep(2 * POLL)
        replace(place)
        second = file_lock.try_lock(place)
        assert second
        first.release()
        await asyncio.sleep(5 * POLL)
        assert not waiting.done()
        second.release()
        (await waiting).release()

    asyncio.run(main())


def test_a_thread_that_is_blocked_at_a_removed_file_goes_on_to_its_successor(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, asked = fcntl.flock, threading.Semaphore(0)

    def told(descriptor: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX:
            asked.release()
        flock(descriptor, operation)

    first = file_lock.block(place)
    monkeypatch.setattr(fcntl, "flock", told)
    taken = threading.Event()

    def take() -> None:
        lock = file_lock.block(place)
        taken.set()
        lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    assert asked.acquire(timeout=60)
    replace(place)
    second = file_lock.try_lock(place)
    assert second
    first.release()
    assert asked.acquire(timeout=60)  # it has let the removed one go, and asks again
    assert not taken.is_set()
    second.release()
    thread.join(60)
    assert taken.is_set()


def test_a_file_that_is_replaced_just_after_it_is_opened_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, flock = tmp_path / "place", fcntl.flock

    def late(descriptor: int, operation: int) -> None:
        monkeypatch.undo()
        place.unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    before = descriptors()
    assert file_lock.try_lock(place) is None
    assert descriptors() == before
    assert is_free(place)


# ------------------------------------------------------------------------------------ drives


def test_a_drive_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    place = tmp_path / "place"
    monkeypatch.setattr(fcntl, "flock", refuse)
    before = descriptors()
    with pytest.raises(OSError, match="No locks available"):
        file_lock.try_lock(place)
    with pytest.raises(OSError, match="No locks available"):
        file_lock.block(place)
    with pytest.raises(OSError, match="No locks available"):
        asyncio.run(file_lock.wait(place, POLL))
    for lock in (
        file_lock.try_lock(place, required=False),
        file_lock.block(place, required=False),
        asyncio.run(file_lock.wait(place, POLL, required=False)),
    ):
        assert lock
        lock.release()
    assert descriptors() == before


def test_a_file_that_cannot_be_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        file_lock.try_lock(tmp_path / "no folder" / "place", required=False)


def test_others_can_hold_a_lock_only_if_they_may_open_its_file(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        for name, options, mode in (("open", {}, 0o644), ("own", {"mode": 0o600}, 0o600)):
            lock = file_lock.try_lock(tmp_path / name, **options)
            assert lock
            lock.release()
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode
    finally:
        os.umask(old)


def test_what_is_in_a_file_stays(tmp_path: Path) -> None:
    (tmp_path / "place").write_text("text")
    file_lock.block(tmp_path / "place").release()
    assert (tmp_path / "place").read_text() == "text"
