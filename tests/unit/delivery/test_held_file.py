"""A file is what its descriptor says, whatever happens to its name."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest

from ciao_kernel.delivery.input.held_file import HeldFile, open_checked
from tests.helpers.rights import as_nobody


def test_a_file_is_read_at_its_place_without_links(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "real").write_bytes(b"12345")
    (tmp_path / "folder").symlink_to("deep")
    (tmp_path / "link").symlink_to("folder/real")
    with HeldFile(tmp_path / "link") as held, held.open() as opened:
        assert held.real == tmp_path / "deep" / "real"
        assert held.size == 5
        assert opened.read() == b"12345"


def test_what_is_no_file_is_refused_without_a_wait_or_an_effect(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "socket"))
    for path, why in (
        (tmp_path / "pipe", "but a pipe"),
        (tmp_path / "socket", "but a socket"),
        (Path("/dev/null"), "but a device"),
        (Path("/proc/self/environ"), "data of the system"),
        (tmp_path, "directory"),
    ):
        link = tmp_path / "link"
        link.unlink(missing_ok=True)
        link.symlink_to(path)
        for name in (path, link):
            with pytest.raises(OSError, match=why):
                HeldFile(name)


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    before = sorted(map(str, Path("/proc/self/fd").iterdir()))
    for name in ("pipe", "file", "gone"):
        for use in (HeldFile, open_checked):
            with contextlib.suppress(OSError), use(tmp_path / name):
                pass
    assert sorted(map(str, Path("/proc/self/fd").iterdir())) == before


def test_the_file_that_was_checked_is_the_one_that_is_read(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text("checked")
    with HeldFile(file) as held:
        file.unlink()
        file.symlink_to("/etc/passwd")
        with held.open() as opened:
            assert opened.read() == b"checked"


def test_a_checked_file_that_becomes_a_link_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file = folder / "passwd"
    file.write_text("own")
    with open_checked(file) as opened:
        assert opened.read() == b"own"
    (tmp_path / "saved").write_text("newer")
    (tmp_path / "saved").rename(file)  # as editors save
    with open_checked(file) as opened:
        assert opened.read() == b"newer"
    file.unlink()
    file.symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="it was replaced after it was checked"):
        open_checked(file)
    file.unlink()
    folder.rmdir()
    folder.symlink_to("/etc")
    with pytest.raises(OSError, match="it was replaced after it was checked"):
        open_checked(file)


def test_an_error_names_the_file_and_no_descriptor(readable: Path) -> None:
    (readable / "closed").touch(0)
    file = readable / "closed"
    with as_nobody(), HeldFile(file) as held, pytest.raises(PermissionError) as caught:
        held.open()
    assert caught.value.filename == str(readable / "closed")
