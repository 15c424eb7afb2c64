"""Entry points of installed packages: read once, and again after an installation."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

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

    def __call__(self, folders: list[str]) -> Mapping[str, Mapping[str, EntryPoint]]:
        self.reads += 1
        return installed_plugins._read(folders)


def install(site: Path, changed: float, name: str = "mesh", group: str = "ciao.builders") -> None:
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[{group}]\n{name} = {name}:Builder\n")
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


def test_a_plugin_in_the_working_folder_is_none(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, link = tmp_path / "work", tmp_path / "link"
    work.mkdir()
    link.symlink_to(work)
    install(work, OLD, "evil")
    install(site, OLD)
    monkeypatch.chdir(work)
    for entry in ("", ".", str(work), str(link)):
        monkeypatch.setattr(sys, "path", [entry, str(site)])
        assert list(InstalledPlugins(now=lambda: OLD + 60).of("builders")) == ["mesh"]


@pytest.mark.parametrize("content", [b"", b"\n.", b"\xff", b"/none\n", b"\0"])
def test_a_link_to_something_else_does_not_make_it_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    assert linked(tmp_path, monkeypatch, "site-packages", content) == []


def test_a_project_that_is_installed_by_a_link_counts_in_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``setup.py develop`` does, which leaves the metadata in the project."""
    content = f"{tmp_path / 'project'}\n.".encode()
    assert linked(tmp_path, monkeypatch, "dist-packages", content) == ["mesh"]
    assert linked(tmp_path, monkeypatch, "other", content) == []


def linked(base: Path, monkeypatch: pytest.MonkeyPatch, packages: str, content: bytes) -> list[str]:
    """Return the plug-ins in the folder of a project to which installed packages have a link."""
    project, folder = base / "project", base / packages
    project.mkdir(exist_ok=True)
    folder.mkdir()
    install(project, OLD)
    (folder / "mesh.egg-link").write_bytes(content)
    monkeypatch.setattr(sys, "path", [str(folder), "", str(project), base / "none"])
    monkeypatch.chdir(project)
    return list(InstalledPlugins(now=lambda: OLD + 60).of("builders"))


def test_links_are_looked_for_once_and_again_after_an_installation(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, packages = tmp_path / "project", tmp_path / "site-packages"
    project.mkdir()
    install(project, OLD)
    site.rename(packages)
    monkeypatch.setattr(sys, "path", [str(packages), str(project)])
    monkeypatch.chdir(project)
    looks = []

    def links(*arguments: Any) -> list[Path]:
        looks.append(arguments)
        return real(*arguments)

    real = installed_plugins._links
    monkeypatch.setattr(installed_plugins, "_links", links)
    plugins = InstalledPlugins(now=lambda: OLD + 60)
    for kind in ("frameworks", "builders", "backends"):
        assert plugins.of(kind) == {}
    assert len(looks) == 1
    (packages / "mesh.egg-link").write_text(f"{project}\n.")
    os.utime(packages, (OLD + 30, OLD + 30))
    assert "mesh" in plugins.of("builders")
    assert len(looks) == 2
    # Written in place, which changes no folder.
    (packages / "mesh.egg-link").write_text(f"{tmp_path / 'other'}\n.")
    assert plugins.of("builders") == {}
    assert len(looks) == 2


def test_it_counts_once_another_folder_is_the_working_folder(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    install(project, OLD)
    sys.path.append(str(project))
    monkeypatch.chdir(project)
    plugins = InstalledPlugins(now=lambda: OLD + 60)
    assert plugins.of("builders") == {}
    monkeypatch.chdir(tmp_path)
    assert "mesh" in plugins.of("builders")
    monkeypatch.chdir(project)
    assert plugins.of("builders") == {}


def test_a_package_that_is_installed_twice_counts_as_it_is_imported(
    site: Path, tmp_path: Path
) -> None:
    older = tmp_path / "older"
    older.mkdir()
    install(older, OLD)
    sys.path.append(str(older))
    assert "mesh" in InstalledPlugins(now=lambda: OLD + 60).of("builders")
    install(site, OLD + 30, group="console_scripts")
    assert InstalledPlugins(now=lambda: OLD + 60).of("builders") == {}
