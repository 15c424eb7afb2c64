"""Entry points of installed packages: read once, and again after an installation."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from ciao_kernel.session import installed_plugins
from ciao_kernel.session.installed_plugins import InstalledPlugins

OLD = 1_700_000_000


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages, the only one in the import path; it changed long ago."""
    folder = tmp_path / "site"
    folder.mkdir()
    os.utime(folder, (OLD, OLD))
    monkeypatch.setattr(sys, "path", [str(folder), str(tmp_path / "none"), ""])
    return folder


class Reader:
    """Counts how often it reads the entry points."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self) -> Mapping[str, Mapping[str, EntryPoint]]:
        self.reads += 1
        return installed_plugins._read()


def install(site: Path, changed: float) -> None:
    folder = site / "mesh-1.0.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text("Name: mesh\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[ciao.builders]\nmesh = mesh:Builder\n")
    os.utime(site, (changed, changed))


def test_several_questions_are_one_read(site: Path) -> None:
    read = Reader()
    plugins = InstalledPlugins(read, now=lambda: OLD + 60)
    for kind in ("frameworks", "builders", "backends", "builders"):
        assert plugins.of(kind) == {}
    assert read.reads == 1


def test_a_package_is_found_that_is_installed_later(site: Path) -> None:
    read = Reader()
    plugins = InstalledPlugins(read, now=lambda: OLD + 60)
    assert plugins.of("builders") == {}
    install(site, OLD + 30)
    assert [point.value for point in plugins.of("builders").values()] == ["mesh:Builder"]
    assert plugins.of("frameworks") == {}
    assert read.reads == 2


def test_an_installation_that_may_be_going_on_is_read_again(site: Path) -> None:
    (site / "mesh-1.0.dist-info").mkdir()
    os.utime(site, (OLD, OLD))
    read, now = Reader(), OLD + 1.0
    plugins = InstalledPlugins(read, now=lambda: now)
    assert plugins.of("builders") == {}
    install(site, OLD)  # only inside the package's folder, which was there
    assert "mesh" in plugins.of("builders")
    now = OLD + 60
    plugins.of("builders")
    plugins.of("builders")
    assert read.reads == 3


def test_files_of_the_working_folder_cause_no_read(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    sys.path.append(str(work))
    read = Reader()
    plugins = InstalledPlugins(read, now=lambda: OLD + 60)
    plugins.of("builders")
    os.utime(work, (OLD + 50, OLD + 50))
    plugins.of("builders")
    assert read.reads == 1
