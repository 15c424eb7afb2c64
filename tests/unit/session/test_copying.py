"""`ciao cp` from and to a replica of this machine."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, UsageError
from ciao_kernel.model import Job, Replica
from ciao_kernel.session import copying
from ciao_kernel.session.copied import Copied
from ciao_kernel.session.copy_target import folder
from tests.helpers.rights import as_nobody

WORKER = Replica("worker", 0)
Copy = Callable[[Path, Path, threading.Event], int]
NONE: Any = None
WAIT = 60.0


def take(job: Job, here: Path, copy: Copy) -> Coroutine[Any, Any, Copied]:
    return copying.take(NONE, job, WORKER, "a.bin", here / "a.bin", Settings(), copy)


def give(job: Job, here: Path, copy: Copy) -> Coroutine[Any, Any, Copied]:
    job = replace(job, root=str(here))
    return copying.give(NONE, job, WORKER, Path(job.root, "../there/a.bin"), "", Settings(), copy)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    (tmp_path / "there" / "a.bin").write_bytes(b"abc")
    job = Job("a", "local", "tensorflow", (WORKER,), 1.0, kind_of_place="folder")
    return replace(job, root=str(tmp_path / "there"))


@pytest.mark.parametrize("way", [take, give])
def test_an_interrupt_ends_a_copy(
    way: Callable[[Job, Path, Copy], Coroutine[Any, Any, Copied]], job: Job, tmp_path: Path
) -> None:
    """A copy that takes long must not hold the loop, which hears the stop button."""
    stopped = []

    async def main() -> None:
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        def copy(source: Path, part: Path, stop: threading.Event) -> int:
            part.write_bytes(source.read_bytes()[:1])
            loop.call_soon_threadsafe(begun.set)
            stopped.append(stop.wait(WAIT))
            return 0o644

        work = asyncio.ensure_future(way(job, tmp_path / "here", copy))
        await begun.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(main())
    assert stopped == [True]
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.parametrize("way", [take, give])
def test_a_copy_is_whole(
    way: Callable[[Job, Path, Copy], Coroutine[Any, Any, Copied]], job: Job, tmp_path: Path
) -> None:
    assert asyncio.run(way(job, tmp_path / "here", copying.copy_file)).text == "1 file, 3 bytes"
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["a.bin"]
    assert (tmp_path / "here" / "a.bin").read_bytes() == b"abc"


@pytest.mark.parametrize("way", [take, give])
def test_a_copy_is_closed_to_others_until_it_is_whole(
    way: Callable[[Job, Path, Copy], Coroutine[Any, Any, Copied]], job: Job, tmp_path: Path
) -> None:
    (tmp_path / "there/a.bin").chmod(0o666)
    (tmp_path / "here/a.bin").touch()
    (tmp_path / "here/a.bin").chmod(0o666)
    seen: list[int] = []

    def copy(source: Path, part: Path, stop: threading.Event) -> int:
        mode = copying.copy_file(source, part, stop)
        seen.append(stat.S_IMODE(part.stat().st_mode))
        return mode

    asyncio.run(way(job, tmp_path / "here", copy))
    assert seen == [0o600]
    assert stat.S_IMODE((tmp_path / "here/a.bin").stat().st_mode) == 0o666


LEFT_OUT = "links to folders or out of the folder, and what is no file, are left out"


@pytest.fixture
def both(readable: Path) -> Job:
    """A job whose folder ``work`` is beside ``mine``, that of the user."""
    for name in ("work", "mine"):
        (readable / name).mkdir()
        (readable / name).chmod(0o777)  # as nobody too
    job = Job("a", "local", "tensorflow", (WORKER,), 1.0, kind_of_place="folder")
    return replace(job, root=str(readable / "work"))


def copy_data(job: Job, *, back: bool) -> Copied:
    """Copy the folder ``data`` to a job, or back, as somebody who is not root."""
    mine = Path(job.root, "../mine").resolve()

    async def main() -> Copied:
        await asyncio.to_thread(int)  # its first use imports what nobody may not read
        with as_nobody():
            if back:
                return await copying.take(NONE, job, WORKER, "data", mine, Settings())
            return await copying.give(NONE, job, WORKER, mine / "data", "", Settings())

    return asyncio.run(main())


def fill(job: Job, *paths: str, back: bool) -> Path:
    """Make files in the folder from which they are copied; return it."""
    base = Path(job.root) if back else Path(job.root, "../mine").resolve()
    for path in paths:
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        (base / path).write_text("a")
    return base


@pytest.mark.parametrize("back", [False, True])
def test_folders_that_cannot_be_read_and_links_are_named(both: Job, back: bool) -> None:
    base = fill(both, "data/a", "data/locked/b", "outside", back=back)
    (base / "data/out").symlink_to(base / "../outside")
    (base / "data/up").symlink_to(base)
    (base / "data/locked").chmod(0)
    copied = copy_data(both, back=back)
    assert copied.text == f"1 file, 1 byte; {LEFT_OUT}: data/out, data/up"
    assert copied.faults == {"data/locked": "Permission denied"}
    (base / "data").chmod(0)
    with pytest.raises(
        BackendError, match=r"^(nothing could|.* cannot be read).*: .*Permission denied"
    ):
        copy_data(both, back=back)
    (base / "data").chmod(0o755)


@pytest.mark.parametrize("back", [False, True])
def test_files_that_cannot_be_read_are_named_and_the_others_are_copied(
    both: Job, back: bool
) -> None:
    base = fill(both, "data/a", "data/b", back=back)
    (base / "data/a").chmod(0)
    copied = copy_data(both, back=back)
    assert copied.text == "1 file, 1 byte"
    with pytest.raises(
        BackendError, match=r"^these could not be copied: data/a \(Permission"
    ) as one:
        copied.check()
    assert one.value.hint == "All other files were copied."


def test_a_file_that_cannot_be_read_is_not_blamed_on_the_target(both: Job) -> None:
    base = fill(both, "data", back=False)
    (base / "data").chmod(0)
    with pytest.raises(BackendError, match=r"^\S*/mine/data cannot be read: Permission denied\.$"):
        copy_data(both, back=False)
    assert not list(Path(both.root).iterdir())


@pytest.mark.parametrize(
    ("target", "why"), [("/proc/nosuch/", "No such file"), ("file/", "Not a directory")]
)
def test_a_folder_that_cannot_be_made_is_one_error(tmp_path: Path, target: str, why: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BackendError, match=f"{target.rstrip('/')} cannot be written: {why}"):
        folder(tmp_path, target)


def test_a_target_in_a_folder_that_may_not_be_entered_is_one_error(both: Job) -> None:
    base = fill(both, "data/a", back=True)
    closed = base / "../closed"
    closed.mkdir(mode=0)

    async def main() -> None:
        await copying.take(NONE, both, WORKER, "data", closed / "data", Settings())

    with as_nobody(), pytest.raises(BackendError, match="cannot be written: Permission denied"):
        asyncio.run(main())


@pytest.mark.parametrize("path", ["", ".", "./", "sub/..", "sub/../."])
def test_a_dot_is_all_that_is_in_a_folder(both: Job, tmp_path: Path, path: str) -> None:
    base = fill(both, "sub/a", ".hidden", "b", ".ciao/own", back=True)
    here = tmp_path / "new"
    told = asyncio.run(copying.take(NONE, both, WORKER, path, here, Settings()))
    assert told.text == "3 files, 3 bytes"
    found = {str(one.relative_to(here)) for one in here.rglob("*") if one.is_file()}
    assert found == {"sub/a", ".hidden", "b"}
    assert (base / ".ciao/own").exists()


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("nosuch/.", "folder nosuch"),
        ("empty/.", "folder empty"),
        ("", "the program's folder"),
        (".", "the program's folder"),
    ],
)
def test_a_folder_without_files_may_be_missing(
    both: Job, tmp_path: Path, path: str, folder: str
) -> None:
    Path(both.root, "empty").mkdir()
    told = f"^there are no files in {folder} of worker-0 of a, or it does not exist"
    with pytest.raises(BackendError, match=told):
        asyncio.run(copying.take(NONE, both, WORKER, path, tmp_path, Settings()))


@pytest.mark.parametrize("path", ["/", "/.", "//", "/tmp/..", "../../../../../../.."])
def test_the_whole_file_system_is_not_copied(both: Job, tmp_path: Path, path: str) -> None:
    pod = replace(both, kind_of_place="namespace")  # without a backend nothing would be copied
    with pytest.raises(UsageError, match="the whole file system"):
        asyncio.run(copying.take(NONE, pod, WORKER, path, tmp_path / "new", Settings()))


@pytest.mark.parametrize("back", [False, True])
def test_a_link_to_a_folder_is_told_from_a_missing_file(both: Job, back: bool) -> None:
    base = fill(both, "run-1/a", back=back)
    (base / "data").symlink_to("run-1")
    told = rf"^nothing of \S*data could be copied: {LEFT_OUT}: data\.$"
    with pytest.raises(BackendError, match=told) as fault:
        copy_data(both, back=back)
    way = "; if it is a link to a folder, `data/.` copies all that is in it" if back else ""
    assert fault.value.hint == f"Name what a link leads to{way}."


@pytest.mark.parametrize("leads_to", ["", "nosuch", "../mine/file"])
def test_what_leads_to_no_folder_gets_no_dot(both: Job, leads_to: str) -> None:
    base = fill(both, "../mine/file", back=True)
    if leads_to:
        (base / "data").symlink_to(leads_to)
    else:
        os.mkfifo(base / "data")
    with pytest.raises(BackendError, match="are left out: data") as fault:
        copy_data(both, back=True)
    assert fault.value.hint == "Name what a link leads to."


def test_what_is_in_the_folder_that_a_link_leads_to_can_be_named(both: Job, tmp_path: Path) -> None:
    base = fill(both, "run-1/a", back=True)
    (base / "data").symlink_to("run-1")
    asyncio.run(copying.take(NONE, both, WORKER, "data/.", tmp_path, Settings()))
    assert (tmp_path / "a").read_text() == "a"


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("runs", [False, True])
def test_a_copy_can_be_run_if_the_file_can(both: Job, back: bool, runs: bool) -> None:
    base = fill(both, "data", back=back)
    (base / "data").chmod(0o755 if runs else 0o644)
    copy_data(both, back=back)
    other = base / ("../mine" if back else "../work")
    assert bool((other / "data").stat().st_mode & 0o111) is runs


def test_a_file_is_copied_until_the_stop(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    stop = threading.Event()
    stop.set()
    copying.copy_file(tmp_path / "a", tmp_path / "b", stop)
    assert (tmp_path / "b").read_bytes() == b""


@pytest.mark.parametrize("size", [1, 1 << 20], ids=["at the close", "at the write"])
def test_an_error_of_a_write_names_the_target(tmp_path: Path, size: int) -> None:
    (tmp_path / "a").write_bytes(b"a" * size)
    with pytest.raises(OSError, match="No space left") as caught:
        copying.copy_file(
            tmp_path / "a", Path("/dev/full"), threading.Event(), lambda path: path.open("wb")
        )
    assert caught.value.filename == "/dev/full"


def test_an_error_of_a_read_does_not_name_the_target(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Input/output error") as caught:
        copying.copy_file(Path("/proc/self/mem"), tmp_path / "a", threading.Event())
    assert caught.value.filename != str(tmp_path / "a")


@pytest.mark.parametrize("back", [False, True])
def test_a_file_that_gets_no_place_leaves_no_part(both: Job, back: bool) -> None:
    base = fill(both, "data/a", back=back)
    other = (base / ("../mine" if back else "../work")).resolve()
    (other / "data").touch()
    with pytest.raises(BackendError, match=f"{other.name} cannot be written: File exists"):
        copy_data(both, back=back)
    assert [path.name for path in other.iterdir()] == ["data"]
