"""What counts as a file of this user alone, whatever lies in its place."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ciao_kernel import private_files
from ciao_kernel.private_files import Untrusted

UMASKS = [0o022, 0o077, 0o000, 0o777]


@pytest.fixture(params=UMASKS, ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    old = os.umask(request.param)
    yield request.param
    os.umask(old)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_modes_do_not_follow_the_umask(tmp_path: Path, umask: int) -> None:
    top = tmp_path / "above" / "top"
    private_files.make_folders(top / "a" / "b", top)
    for folder in (top.parent, top, top / "a", top / "a" / "b"):
        assert mode(folder) == 0o700
    with private_files.create(top / "file") as stream:
        stream.write(b"1")
    with private_files.create(top / "program", executable=True):
        pass
    with os.fdopen(private_files.open_to_append(top / "log"), "ab") as stream:
        stream.write(b"2")
    assert [mode(top / name) for name in ("file", "program", "log")] == [0o600, 0o700, 0o600]
    assert private_files.read(top / "file", 9) + private_files.read(top / "log", 9) == b"12"


def test_an_own_folder_is_closed_to_others_and_stays_open_to_readers(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    for before, after in ((0o777, 0o755), (0o2775, 0o2755), (0o500, 0o700), (0o711, 0o711)):
        top.chmod(before)
        private_files.make_folders(top, top)
        assert mode(top) == after


def plant_link(path: Path) -> None:
    path.with_name("real").write_text("{}")
    path.symlink_to("real")


def plant_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(path))


PLANTED: dict[str, tuple[Callable[[Path], object], str]] = {
    "link": (plant_link, "a symbolic link"),
    "loop": (lambda path: path.symlink_to(path.name), "a symbolic link"),
    "pipe": (os.mkfifo, "a pipe"),
    "socket": (plant_socket, "a socket"),
    "folder": (Path.mkdir, "a folder"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_nothing_but_a_file_is_read_or_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Nor does it block: a pipe without a writer would, for ever."""
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    plant, kind = PLANTED[name]
    path = Path("file")
    plant(path)
    for use in (lambda: private_files.read(path, 9), lambda: private_files.open_file(path)):
        with pytest.raises(Untrusted, match=f"file is {kind}, not a file"):
            use()
    with pytest.raises((Untrusted, IsADirectoryError)):
        private_files.open_to_append(path)
    with pytest.raises(FileExistsError):
        private_files.create(path)


def test_a_pipe_with_a_reader_gets_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(Untrusted, match="a pipe"):
            private_files.open_to_append(path)
    finally:
        os.close(reader)


@pytest.mark.parametrize("wrong", [0o620, 0o602, 0o666])
def test_what_others_may_write_is_not_read(tmp_path: Path, wrong: int) -> None:
    (tmp_path / "a").mkdir(mode=0o700)
    path = tmp_path / "a" / "file"
    path.write_bytes(b"1")
    path.chmod(wrong)
    with pytest.raises(Untrusted, match=f"other users may write to {path}"):
        private_files.read(path, 9)
    path.chmod(0o644)
    assert private_files.read(path, 9) == b"1"
    path.parent.chmod(0o700 | wrong & 0o077)
    with pytest.raises(Untrusted, match=f"other users may write to {path.parent}"):
        private_files.read(path, 9)


def test_another_user_wrote_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    for use in (
        lambda: private_files.read(path, 9),
        lambda: private_files.open_to_append(path),
        lambda: private_files.make_folders(tmp_path, tmp_path),
    ):
        with pytest.raises(Untrusted, match=" belongs to "):
            use()


def test_a_folder_s_link_counts_where_only_this_user_can_place_it(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    (tmp_path / "top").symlink_to(disk)
    private_files.make_folders(tmp_path / "top" / "jobs", tmp_path / "top")
    assert mode(disk / "jobs") == 0o700
    tmp_path.chmod(0o1777)
    with pytest.raises((Untrusted, OSError)):
        private_files.make_folders(tmp_path / "top" / "more", tmp_path / "top")
    assert not (disk / "more").exists()
    with pytest.raises(Untrusted, match="top is a symbolic link, not a folder"):
        private_files.read(tmp_path / "top" / "file", 9)


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    os.truncate(path, 1 << 30)  # a hole: it takes no space
    with pytest.raises(Untrusted, match="1,073,741,824 bytes"):
        private_files.read(path, 64 << 20)


def test_what_is_missing_is_no_attack(tmp_path: Path) -> None:
    for path in (tmp_path / "file", tmp_path / "a" / "file"):
        with pytest.raises(FileNotFoundError):
            private_files.read(path, 9)
    (tmp_path / "a").touch()
    with pytest.raises(NotADirectoryError):
        private_files.read(tmp_path / "a" / "b" / "file", 9)


def test_a_refused_file_is_closed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for use in (private_files.open_file, private_files.open_to_append):
        with pytest.raises(Untrusted):
            use(tmp_path / "pipe")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    for again in (
        lambda: private_files.read(tmp_path / "file", 9),
        lambda: private_files.open_to_append(tmp_path / "file"),
        lambda: private_files.make_folders(tmp_path, tmp_path),
    ):
        with pytest.raises(Untrusted):
            again()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
