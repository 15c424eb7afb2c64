"""The mode, the owner and the group of a file that gets its name."""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path

import pytest

from ciao_kernel.delivery.replica_files import create_part, part_beside, put
from ciao_kernel.delivery.replica_files.placing import umask
from tests.helpers.rights import NOBODY, as_nobody

ACL, DEFAULT_ACL = "system.posix_acl_access", "system.posix_acl_default"
OTHERS = 54321
"""A group in which nobody is."""


def acl(named: int, group: int, most: int) -> bytes:
    """Return an access list as Linux has it, for its owner and OTHERS, and nothing for all others.

    Args:
        named: Rights of OTHERS as a user.
        group: Those of the file's group.
        most: The most that both may have.
    """
    nobody = 2**32 - 1
    entries = (
        (1, 6, nobody),
        (2, named, OTHERS),
        (4, group, nobody),
        (16, most, nobody),
        (32, 0, nobody),
    )
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *one) for one in entries)


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """A folder with the closed file ``a``, on a drive with access lists."""
    (tmp_path / "a").touch(0o600)
    try:
        os.setxattr(tmp_path / "a", ACL, acl(6, 0, 6))
    except OSError as error:
        pytest.skip(f"no access lists here: {error.strerror}")
    os.removexattr(tmp_path / "a", ACL)
    (tmp_path / "a").chmod(0o600)
    return tmp_path


def list_of(path: Path) -> bytes | None:
    return os.getxattr(path, ACL) if ACL in os.listxattr(path) else None


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


def test_the_access_list_of_a_file_that_is_replaced_stays(listed: Path) -> None:
    """Without it the rights of its mask would be those of the group."""
    os.setxattr(listed / "a", ACL, acl(6, 0, 6))
    assert stat.S_IMODE(put_new(listed / "a").st_mode) == 0o660
    assert list_of(listed / "a") == acl(6, 0, 6)


def test_a_file_that_is_replaced_gets_no_access_list_of_its_folder(listed: Path) -> None:
    (listed / "a").chmod(0o660)
    os.setxattr(listed, DEFAULT_ACL, acl(6, 6, 6))
    assert stat.S_IMODE(put_new(listed / "a").st_mode) == 0o660
    assert list_of(listed / "a") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_who_is_in_an_access_list_gets_no_more_if_the_group_is_another(
    readable: Path, listed: Path
) -> None:
    readable.chmod(0o777)
    (listed / "a").replace(readable / "a")
    os.chown(readable / "a", NOBODY, OTHERS)
    os.setxattr(readable / "a", ACL, acl(6, 4, 6))
    with as_nobody():
        status = put_new(readable / "a")
    assert status.st_gid != OTHERS
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert list_of(readable / "a") == acl(6, 4, 0)
