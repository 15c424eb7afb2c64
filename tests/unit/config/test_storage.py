"""A storage folder that several users share has one folder for each of them."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

import pytest

from ciao_kernel.config import Settings, settings
from ciao_kernel.config.storage import OwnFolder, own_folder
from ciao_kernel.errors import EnvironmentFault

NAME = pwd.getpwuid(os.geteuid()).pw_name
NUMBER = str(os.geteuid())


@pytest.fixture
def top(tmp_path: Path) -> Path:
    path = tmp_path / "top"
    path.mkdir(mode=0o755)
    return path


def test_a_folder_that_is_missing_or_private_is_used_itself(tmp_path: Path, top: Path) -> None:
    for mode in (0o700, 0o755, 0o2750):
        top.chmod(mode)
        assert own_folder(top).path == top
        assert own_folder(top).reason == ""
    assert own_folder(tmp_path / "missing").path == tmp_path / "missing"
    (tmp_path / "link").symlink_to(top)  # to a larger disk
    assert own_folder(tmp_path / "link").path == tmp_path / "link"
    assert own_folder(Path("/dev/null")).path == Path("/dev/null")
    with pytest.raises(EnvironmentFault, match=r"/dev/null.* cannot be created: Not a directory"):
        own_folder(Path("/dev/null")).prepare("jobs")


@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o2775])
def test_a_folder_that_others_may_write_to_has_one_for_the_user(top: Path, mode: int) -> None:
    top.chmod(mode)
    own = own_folder(top)
    assert own.path == top / NAME
    assert own.reason == f"other users may write to {top}"
    made = own.prepare("jobs")
    assert made == top / NAME / "jobs"
    assert stat.S_IMODE(own.path.stat().st_mode) & 0o777 == 0o700
    assert own_folder(top).path == own.path
    assert stat.S_IMODE(top.stat().st_mode) == mode  # it was opened on purpose


def test_the_folder_of_another_user(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    own = own_folder(top)
    assert own.path == top / "54321"  # this user has no name
    owner = pwd.getpwuid(top.stat().st_uid).pw_name
    assert own.reason == f"{top} belongs to {owner}"


@pytest.mark.parametrize("planted", ["link", "file", "other"])
def test_what_others_placed_under_the_users_name_is_not_used(
    top: Path, tmp_path: Path, planted: str
) -> None:
    top.chmod(0o1777)
    (tmp_path / "victim").mkdir(mode=0o700)
    path = top / NAME
    if planted == "link":
        path.symlink_to(tmp_path / "victim")
    elif planted == "file":
        path.touch()
    elif os.geteuid() == 0:
        path.mkdir()
        os.chown(path, 65534, 65534)
    else:
        pytest.skip("only root can give files away")
    own = own_folder(top)
    assert own.path == top / NUMBER
    own.path.symlink_to(tmp_path / "victim")  # both names are taken
    with pytest.raises(EnvironmentFault):
        own.prepare("jobs")
    assert list((tmp_path / "victim").iterdir()) == []


def test_the_built_in_place_is_shared_with_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An umask of 002, or the fsGroup of a pod's volume, opens it to a group."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "ciao" / "jobs").mkdir(parents=True)
    for path in (tmp_path / "ciao", tmp_path / "ciao" / "jobs"):
        path.chmod(0o2770)
    known = settings.Settings()
    assert known.own_storage == tmp_path / "ciao"
    known.own_folder.prepare("jobs")
    for path in (tmp_path / "ciao", tmp_path / "ciao" / "jobs"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o2750
    assert Settings(storage=tmp_path / "ciao").own_storage == tmp_path / "ciao"


def test_a_folder_that_cannot_be_had_is_an_error(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (top / "jobs").touch()
    with pytest.raises(EnvironmentFault, match="/top/jobs cannot be created: "):
        OwnFolder(top).prepare("jobs")
    (top / "jobs").unlink()
    top.chmod(0o777)
    monkeypatch.setattr(os, "chmod", lambda *_, **__: None)  # a drive without permissions
    with pytest.raises(EnvironmentFault, match="must be yours alone, but other users may write"):
        OwnFolder(top).prepare("jobs")
