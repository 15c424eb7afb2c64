"""Modes and links of what `ciao cp` copies, each way: of this machine, and of a pod."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import socket
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.delivery import transfers
from ciao_kernel.delivery.fetch import Fetch
from ciao_kernel.delivery.replica_files import DATA, DONE, END, FILE, HEADER
from ciao_kernel.errors import BackendError
from ciao_kernel.model import Job, Replica
from ciao_kernel.session import copying
from ciao_kernel.session.copied import Copied
from ciao_kernel.session.copy_target import CopyTarget
from tests.helpers.command_pod import Pod
from tests.helpers.rights import ordinary_reader

WORKER = Replica("worker", 0)
WAIT = 60.0


class Copy:
    """Copies ``a`` of the folder ``from`` into the folder ``to``; one of them is a replica's.

    Args:
        root: Holds both.
        in_pod: Whether the replica is a pod.
        back: Whether the files come from it.
    """

    def __init__(self, root: Path, *, in_pod: bool, back: bool) -> None:
        self.source, self.target = root / "from", root / "to"
        self.source.mkdir()
        self.target.mkdir()
        self._back, self._replica = back, self.source if back else self.target
        kind = "namespace" if in_pod else "folder"
        job = Job("a", "any", "python", (WORKER,), 1.0, kind_of_place=kind)
        self._job = replace(job, root=str(self._replica))
        self.pod = Pod(self._replica)

    async def execute(self, job: Job, _: Replica, *words: Any) -> int:
        """Run a command in the pod."""
        return await self.pod.execute(*words)

    def __call__(self, target: str, source: str = "a") -> Copied:
        settings = Settings(cluster_python=sys.executable)
        backend: Any = self
        if self._back:
            here = self.target / target
            work = copying.take(backend, self._job, WORKER, source, here, settings)
        else:
            path = self.source / source
            work = copying.give(backend, self._job, WORKER, path, target, settings)
        return asyncio.run(work)

    def file(self, text: str = "new", mode: int = 0o644) -> None:
        """Make the file to copy."""
        (self.source / "a").write_text(text)
        (self.source / "a").chmod(mode)

    def names(self) -> list[str]:
        """All that is in the target's folder."""
        return sorted(path.name for path in self.target.iterdir())


@pytest.fixture(params=["take", "give", "take from pod", "give to pod"])
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Copy:
    return Copy(tmp_path, in_pod="pod" in request.param, back="take" in request.param)


@contextlib.contextmanager
def with_umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o027, 0o077])
def test_a_new_file_has_the_mode_of_the_source_as_the_umask_allows(copy: Copy, mask: int) -> None:
    for mode in (0o600, 0o640, 0o666, 0o755, 0o751, 0o444, 0o6775):
        copy.file(mode=mode)
        with with_umask(mask):
            copy(oct(mode))
        assert mode_of(copy.target / oct(mode)) == mode & 0o777 & ~mask


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755, 0o666])
def test_a_file_that_is_replaced_keeps_its_mode(copy: Copy, mode: int) -> None:
    copy.file(mode=0o755 if mode != 0o755 else 0o644)
    (copy.target / "b").write_text("old and longer")
    (copy.target / "b").chmod(mode)
    with with_umask(0o077):
        copy("b")
    assert (copy.target / "b").read_text() == "new"
    assert mode_of(copy.target / "b") == mode
    assert copy.names() == ["b"]


def test_a_program_that_is_replaced_runs_as_its_owner_no_more(copy: Copy) -> None:
    copy.file()
    (copy.target / "b").touch()
    (copy.target / "b").chmod(0o4755)
    copy("b")
    assert mode_of(copy.target / "b") == 0o755


def test_other_names_of_a_file_that_is_replaced_keep_its_content(copy: Copy) -> None:
    """Nothing is written to the file itself, of which others would read a half."""
    copy.file()
    (copy.target / "b").write_text("old")
    (copy.target / "c").hardlink_to(copy.target / "b")
    copy("b")
    assert [(copy.target / name).read_text() for name in "bc"] == ["new", "old"]


@pytest.mark.parametrize("inside", [False, True], ids=["", "in a folder"])
@pytest.mark.parametrize("target", ["../else/x", "{root}/else/x"])
def test_a_link_to_a_file_is_followed_and_stays(
    copy: Copy, tmp_path: Path, target: str, inside: bool
) -> None:
    copy.file()
    (tmp_path / "else").mkdir()
    link, place = copy.target / ("a" if inside else "b"), copy.target / target.format(root=tmp_path)
    (copy.target / "middle").symlink_to(target.format(root=tmp_path))
    link.symlink_to("middle")
    place.write_text("old")
    place.chmod(0o600)
    with with_umask(0o022):
        assert copy("." if inside else "b").text == "1 file, 3 bytes"
    assert str(link.readlink()) == "middle"
    assert (copy.target / "middle").is_symlink()
    assert place.read_text() == "new"
    assert mode_of(place) == 0o600
    parts = {path.name for path in (*copy.target.iterdir(), *place.parent.iterdir())}
    assert parts == {link.name, "middle", place.name}


@contextlib.contextmanager
def pipe(path: Path) -> Iterator[Path]:
    os.mkfifo(path)
    yield path


@contextlib.contextmanager
def listener(path: Path) -> Iterator[Path]:
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(path.parent):
        server.bind(path.name)  # a path of a socket must be short
        yield path


@contextlib.contextmanager
def terminal(_: Path) -> Iterator[Path]:
    """A device, in whose folder nothing can be made."""
    ends = os.openpty()
    try:
        yield Path(os.ttyname(ends[1]))
    finally:
        for one in ends:
            os.close(one)


@pytest.mark.parametrize("direct", [True, False], ids=["", "behind a link"])
@pytest.mark.parametrize(
    ("make", "what"), [(pipe, "a pipe"), (listener, "a socket"), (terminal, "a device")]
)
def test_what_is_no_file_is_refused_and_named(
    copy: Copy,
    tmp_path: Path,
    make: Callable[[Path], contextlib.AbstractContextManager[Path]],
    what: str,
    direct: bool,
) -> None:
    copy.file()
    with make(tmp_path / "special") as special:
        before = special.lstat()
        place = special if direct else copy.target / "b"
        if not direct:
            place.symlink_to(special)
        way = "is" if direct else "leads to"
        with pytest.raises(BackendError, match=f"it {way} {what}, not a file") as caught:
            copy(str(place))
        assert str(place) in caught.value.message
        assert special.lstat().st_ino == before.st_ino
        assert special.lstat().st_mode == before.st_mode
    assert copy.names() == ([] if direct else ["b"])


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("b", "Too many levels of symbolic links"),
        ("nosuch/x", "it is a link to nothing"),
        ("c", "it is a link to nothing"),
    ],
)
def test_a_link_that_leads_nowhere_is_one_error(copy: Copy, target: str, why: str) -> None:
    """Another user may have made it, to have a file made there."""
    copy.file()
    (copy.target / "b").symlink_to(target)
    with pytest.raises(BackendError, match=why):
        copy("b")
    assert copy.names() == ["b"]


def test_a_link_to_a_folder_in_the_folder_for_a_file_is_one_error(
    copy: Copy, tmp_path: Path
) -> None:
    copy.file()
    (tmp_path / "else").mkdir()
    (copy.target / "a").symlink_to(tmp_path / "else")
    with pytest.raises(BackendError, match=r"Is a directory|a cannot be written"):
        copy(".")
    assert (copy.target / "a").is_symlink()
    assert list((tmp_path / "else").iterdir()) == []


def test_links_and_modes_in_a_folder_that_is_copied(copy: Copy, tmp_path: Path) -> None:
    """What a pod sends in a folder goes through no link, which may lead anywhere."""
    (copy.source / "a").mkdir()
    for name, mode in (("one", 0o755), ("two", 0o640), ("three", 0o666)):
        (copy.source / "a" / name).write_text("new")
        (copy.source / "a" / name).chmod(mode)
    (copy.target / "a").mkdir()
    (tmp_path / "mine").write_text("mine")
    (copy.target / "a/one").symlink_to(tmp_path / "mine")
    (copy.target / "a/two").touch(0o600)
    with with_umask(0o022):
        copy(".")
    assert (tmp_path / "mine").read_text() == "mine"
    found = {path.name: mode_of(path) for path in (copy.target / "a").iterdir()}
    assert found == {"one": 0o755, "two": 0o600, "three": 0o644}


def test_a_file_in_a_folder_that_is_closed_stays_as_it_was(tmp_path: Path) -> None:
    """There it could only be written half by half."""
    copy = Copy(tmp_path, in_pod=True, back=False)
    copy.file()
    (copy.target / "b").write_text("old")
    copy.target.chmod(0o555)
    copy.pod.before = ordinary_reader()
    with pytest.raises(BackendError, match="Permission denied: b"):
        copy("b")
    copy.target.chmod(0o755)
    assert (copy.target / "b").read_text() == "old"


# ------------------------------------------------------------------------ while it comes


def part_in(folder: Path) -> Path | None:
    return next(folder.glob(".*.ciao-part"), None)


def exchange(place: Path) -> None:
    place.unlink()
    os.mkfifo(place)


@pytest.mark.parametrize("exchanged", [False, True], ids=["", "exchanged"])
def test_a_file_that_comes_is_closed_to_others_until_it_is_whole(
    tmp_path: Path, exchanged: bool
) -> None:
    copy = Copy(tmp_path, in_pod=True, back=True)
    (copy.source / "a").write_bytes(bytes(2_000_000))
    (copy.source / "a").chmod(0o777)
    place = copy.target / "b"
    place.write_text("old")
    place.chmod(0o666)
    seen: set[tuple[int, str]] = set()

    def during(done: int, _: int) -> None:
        part = part_in(copy.target)
        assert part
        seen.add((mode_of(part), "old" if exchanged else place.read_text()))
        if exchanged and stat.S_ISREG(place.lstat().st_mode):
            exchange(place)

    into = CopyTarget(place, "a")
    fetch = Fetch(
        copy.pod.execute, sys.executable, ["a"], into, 10**9, base=".", on_progress=during
    )
    if exchanged:
        with pytest.raises(BackendError, match="b cannot be written: it is a pipe, not a file"):
            asyncio.run(fetch.run())
        assert stat.S_ISFIFO(place.lstat().st_mode)
    else:
        asyncio.run(fetch.run())
        assert (place.stat().st_size, mode_of(place)) == (2_000_000, 0o666)
    assert seen == {(0o600, "old")}
    assert copy.names() == ["b"]


@pytest.mark.parametrize("exchanged", [False, True], ids=["", "exchanged"])
def test_a_file_that_goes_to_a_pod_is_closed_to_others_until_it_is_whole(
    tmp_path: Path, exchanged: bool
) -> None:
    pod = Pod(tmp_path)
    place = tmp_path / "b"
    place.write_text("old")
    place.chmod(0o666)
    seen: list[tuple[int, str]] = []

    async def rest() -> AsyncIterator[bytes]:
        about = json.dumps({"path": "a", "below": "", "mode": 0o777}).encode()
        for kind, body in ((FILE, about), (DATA, b"new")):
            yield HEADER.pack(kind, len(body)) + body
        async with asyncio.timeout(WAIT):
            while not (part := part_in(tmp_path)):
                await asyncio.sleep(0.01)
        seen.append((mode_of(part), place.read_text()))
        if exchanged:
            exchange(place)
        digest = hashlib.sha256(b"new").hexdigest().encode()
        yield HEADER.pack(END, len(digest)) + digest + HEADER.pack(DONE, 0)

    words = bytearray()
    request = {"do": "receive", "path": "b"}
    command = transfers.called(sys.executable, request, words.extend, words.extend, rest())
    code = asyncio.run(pod.execute(*command))
    assert seen == [(0o600, "old")]
    if exchanged:
        assert (code, words.strip().endswith(b"it is a pipe, not a file: b")) == (1, True)
        assert stat.S_ISFIFO(place.lstat().st_mode)
    else:
        assert (code, place.read_text(), mode_of(place)) == (0, "new", 0o666)
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
