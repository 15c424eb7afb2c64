"""A home folder that this user may not write to: how another storage folder can be named there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ciao_kernel.commands import doctor, settings_file
from ciao_kernel.config import Settings, config_files, shown_name
from ciao_kernel.config.settings import names
from ciao_kernel.config.storage import OwnFolder
from ciao_kernel.config.user_file import can_be_saved, user_file
from ciao_kernel.errors import EnvironmentFault


@pytest.fixture(params=[True, False], ids=["writable", "closed"])
def writable(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> bool:
    """Whether a file of settings can be saved; root may write to closed folders too."""
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    access = os.access

    def may(path: Path, mode: int) -> bool:
        return access(path, mode) and (request.param or path != tmp_path / "home")

    monkeypatch.setattr(os, "access", may)
    return bool(request.param)


def test_the_place_of_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert config_files()[1] == user_file() == tmp_path / "ciao" / "config.toml"


def test_the_nearest_folder_that_exists_decides(writable: bool, tmp_path: Path) -> None:
    assert can_be_saved() == writable
    user_file().parent.mkdir(parents=True)
    assert can_be_saved()


def test_a_file_in_the_place_of_the_folder_cannot_be_saved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert not can_be_saved()


def test_a_link_decides_by_its_target(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ciao").mkdir()
    (tmp_path / "ciao" / "config.toml").symlink_to(tmp_path / "dotfiles" / "ciao.toml")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert can_be_saved()


def test_the_remedy_of_a_storage_can_be_followed(writable: bool) -> None:
    with pytest.raises(EnvironmentFault, match="cannot be created") as caught:
        OwnFolder(Path("/dev/null")).prepare("jobs")
    hint = caught.value.hint
    assert ("`%ciao config storage=/some/folder`" in hint) == writable
    assert ("`export CIAO_STORAGE=/some/folder`" in hint) != writable
    assert (f"{user_file()} cannot be written" in hint) != writable


def test_the_doctor_has_the_same_remedy(writable: bool) -> None:
    *_, finding = doctor._storage(Settings(storage=Path("/proc/nothing")))
    by = "ciao config storage" if writable else "export CIAO_STORAGE"
    assert finding.fix == f"choose another folder: {by}=/some/folder"


@pytest.mark.parametrize(
    ("given", "variables"),
    [
        (["storage"], "CIAO_STORAGE=…"),
        (["onShutdown"], "CIAO_ON_SHUTDOWN=…"),
        (["onShutdown", "backend"], "CIAO_ON_SHUTDOWN=… CIAO_BACKEND=…"),
    ],
)
def test_a_setting_that_cannot_be_saved_can_be_given_in_other_ways(
    given: list[str], variables: str
) -> None:
    with pytest.raises(EnvironmentFault, match="cannot be written") as caught:
        settings_file.save(Path("/proc/nothing/config.toml"), dict.fromkeys(given, "leave"))
    assert f"`export {variables}`" in caught.value.hint
    assert "%ciao config without --save in a cell" in caught.value.hint


@pytest.mark.parametrize("name", names())
def test_the_variable_of_a_setting_is_the_one_that_is_read(name: str) -> None:
    assert settings_file._variable(shown_name(name)) == f"CIAO_{name.upper()}"
