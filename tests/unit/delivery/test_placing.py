"""The mode, the owner and the group of a file that gets its name."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ciao_kernel.delivery.replica_files import create_part, part_beside, put
from ciao_kernel.delivery.replica_files.placing import umask
from tests.helpers.rights import NOBODY, as_nobody

OTHERS = 54321
"""A group in which nobody is."""


def put_new(place: Path, mode: int = 0o644) -> os.stat_result:
    part = part_beside(str(place))
    with os.fdopen(create_part(part), "wb") as file:
        file.write(b"new")
    put(part, str(place), mode)
    return place.stat()


@pytest.mark.parametrize("status", ["/proc/self/status", "/proc/nosuch"])
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o007, 0o777])
def test_the_umask_is_read_and_stays(mask: int, status: str) -> None:
    before = os.umask(mask)
    try:
        assert umask(status) == mask
    finally:
        assert os.umask(before) == mask


def test_the_umask_is_not_set_to_be_read(tmp_path: Path) -> None:
    """A file that another thread makes meanwhile would have other rights."""
    (tmp_path / "status").write_text("Name:\tpython\nUmask:\t0123\nState:\tR (running)\n")
    assert umask(str(tmp_path / "status")) == 0o123


def test_a_part_can_be_renamed_under_any_umask(readable: Path) -> None:
    readable.chmod(0o777)
    before = os.umask(0o777)
    try:
        with as_nobody():
            status = put_new(readable / "a")
    finally:
        os.umask(before)
    assert (status.st_size, stat.S_IMODE(status.st_mode)) == (3, 0)


def test_a_part_is_made_by_nobody_else(tmp_path: Path) -> None:
    (tmp_path / "part").symlink_to("mine")
    with pytest.raises(FileExistsError):
        create_part(str(tmp_path / "part"))
    assert not (tmp_path / "mine").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_file_of_others_that_root_replaces_stays_theirs(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    os.chown(tmp_path / "a", NOBODY, OTHERS)
    (tmp_path / "a").chmod(0o640)
    status = put_new(tmp_path / "a")
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (NOBODY, OTHERS, 0o640)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
@pytest.mark.parametrize(
    ("mode", "left"), [(0o660, 0o600), (0o664, 0o644), (0o640, 0o600), (0o775, 0o755)]
)
def test_a_group_gets_no_rights_that_were_those_of_another(
    readable: Path, mode: int, left: int
) -> None:
    readable.chmod(0o777)
    (readable / "a").touch()
    os.chown(readable / "a", NOBODY, OTHERS)
    (readable / "a").chmod(mode)
    with as_nobody():
        status = put_new(readable / "a")
    assert status.st_gid != OTHERS
    assert stat.S_IMODE(status.st_mode) == left
