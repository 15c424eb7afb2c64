"""A user without a home folder: no HOME, and no entry in passwd(5), as in some containers."""

from __future__ import annotations

import argparse
import asyncio
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel import cli
from ciao_kernel.commands import doctor, install, report, uninstall
from ciao_kernel.config import Settings, load
from ciao_kernel.config.sources import config_files
from ciao_kernel.delivery.input.boundary import Boundary
from ciao_kernel.delivery.object_store import credentials as object_store
from ciao_kernel.errors import BackendError, EnvironmentFault
from ciao_kernel.home_folder import home
from ciao_kernel.kube import kubeconfig
from ciao_kernel.oci import credentials as oci


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_entry(uid: int) -> Any:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for name in list(os.environ):
        if name.startswith(("HOME", "XDG_", "JUPYTER_", "CIAO_")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    with pytest.raises(RuntimeError):
        Path.home()


def test_the_home_is_the_root_or_that_of_the_variables() -> None:
    assert home() == home({}) == home({"HOME": ""}) == Path("/")
    assert home({"HOME": "/some"}) == Path("/some")


def test_the_home_of_this_process_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/mine")
    assert home() == home({}) == Path("/mine")


def test_settings_are_read_and_may_name_another_storage(tmp_path: Path) -> None:
    assert config_files()[1] == Path("/.config/ciao/config.toml")
    assert Settings().storage == Path("/.local/state/ciao")
    assert load([], {"CIAO_STORAGE": str(tmp_path)}).storage == tmp_path


def test_files_that_are_looked_for_at_home_are_missing(tmp_path: Path) -> None:
    assert kubeconfig.files({}) == []
    assert Path("/.docker/config.json") in oci._files({})
    with pytest.raises(BackendError, match="no credentials for the bucket"):
        object_store.find({})
    assert Boundary.around(tmp_path).tops[0] == tmp_path.resolve()


def test_a_removed_working_directory_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert cli._here() == (Path("/"), True)


def test_a_report_keeps_its_paths() -> None:
    assert report._without_home("/etc/x") == "/etc/x"


def test_the_doctor_names_the_fault() -> None:
    async def main() -> list[doctor.Finding]:
        return [one async for one in doctor._kernelspecs()]

    (finding,) = asyncio.run(main())
    assert finding.what == "Jupyter needs a home folder, and this user has none"
    assert finding.fix == "set HOME to a folder that you may write to"


@pytest.mark.parametrize("verb", [install, uninstall], ids=["install", "uninstall"])
def test_a_kernelspec_needs_a_home(verb: Any) -> None:
    args = argparse.Namespace(
        user=True, sys_prefix=False, prefix=None, name="ciao", display_name=None
    )
    caller: Any = None
    with pytest.raises(EnvironmentFault, match="needs a home folder") as caught:
        asyncio.run(verb.run(args, caller))
    assert caught.value.hint == "Set HOME to a folder that you may write to."
