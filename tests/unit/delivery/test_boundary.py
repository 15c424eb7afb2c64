"""Nothing leaves the folder of the notebook or its repository through a link."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ciao_kernel.builders.folder import _copy
from ciao_kernel.delivery.input.boundary import Boundary
from ciao_kernel.delivery.input.imports import gather
from ciao_kernel.errors import SourceError, SpecError


@pytest.fixture
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that belongs to somebody else."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "data.csv").write_text("hunter2")
    (folder / "helper.py").write_text("KEY = 'hunter2'")
    return folder


def files(folder: Path, *words: str) -> list[str]:
    return [file.path for file in gather("", folder, words).files]


def refused(folder: Path, *words: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        gather("", folder, words)
    return caught.value


def test_a_link_out_of_the_folder_is_refused_and_can_be_forced(
    tmp_path: Path, elsewhere: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.csv").symlink_to(elsewhere / "data.csv")
    for word in ("data/x.csv", "data", ".", "data/*.csv", "**/*.csv"):
        error = refused(tmp_path, word)
        assert error.message == (
            f"%files cannot take data/x.csv: it leads to {elsewhere}/data.csv, "
            f"outside of {tmp_path}."
        )
        assert "Copy the data" in error.hint
        assert "%files=!data/x.csv" in error.hint
    assert files(tmp_path, "!data/x.csv") == ["data/x.csv"]
    # One file of a folder, as for a file that holds a password.
    assert files(tmp_path, "data", "!data/x.csv") == ["data/x.csv"]
    assert files(tmp_path, "!data") == ["data/x.csv"]


def test_several_links_are_one_sentence(tmp_path: Path, elsewhere: Path) -> None:
    (tmp_path / "data").mkdir()
    for number in range(5):
        (tmp_path / "data" / f"{number}.csv").symlink_to(elsewhere / "data.csv")
    error = refused(tmp_path, "data")
    assert error.message == (
        "%files cannot take data/0.csv, data/1.csv, data/2.csv and 2 more: "
        f"they lead outside of {tmp_path}."
    )
    assert "%files=!data" in error.hint
    assert "a ! before each" in refused(tmp_path, "data/*.csv").hint


def test_a_folder_that_leads_out_is_not_searched(tmp_path: Path, elsewhere: Path) -> None:
    (tmp_path / "linked").symlink_to(elsewhere)
    (tmp_path / "root").symlink_to("/")
    assert f"linked: it leads to {elsewhere}, outside" in refused(tmp_path, "linked").message
    assert "root: it leads to /, outside" in refused(tmp_path, "root/").message
    assert "linked/data.csv: it leads to" in refused(tmp_path, "linked/data.csv").message
    assert "linked/data.csv" in refused(tmp_path, "*/data.csv").message
    assert files(tmp_path, "!linked") == ["linked/data.csv", "linked/helper.py"]


def test_links_inside_the_folder_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.csv").write_text("a")
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "chain").symlink_to("folder/b.csv")
    (tmp_path / "real" / "b.csv").symlink_to("a.csv")
    (tmp_path / "real" / "up").symlink_to("..")
    assert files(tmp_path, "chain", "folder") == ["chain", "folder/a.csv", "folder/b.csv"]


def test_links_inside_the_repository_are_followed(tmp_path: Path, elsewhere: Path) -> None:
    work = tmp_path / "notebooks"
    work.mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "shared.csv").write_text("x")
    (work / "own.csv").symlink_to("../shared.csv")
    (work / "other.csv").symlink_to(elsewhere / "data.csv")
    assert files(work, "own.csv") == ["own.csv"]
    assert f"outside of {tmp_path}." in refused(work, "other.csv").message
    (tmp_path / ".git").rmdir()
    assert f"outside of {work}." in refused(work, "own.csv").message


def test_a_home_under_version_control_is_no_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "diary").write_text("x")
    work = tmp_path / "work"
    work.mkdir()
    assert Boundary.around(work).top == tmp_path
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Boundary.around(work).top == work
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "me"))
    assert Boundary.around(work).top == work


def test_a_folder_that_is_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.csv").write_text("a")
    (tmp_path / "real" / "m.py").write_text("")
    (tmp_path / "work").symlink_to("real")
    source = gather("import m", tmp_path / "work", ("a.csv",))
    assert [file.path for file in source.all()] == ["ciao_cell.py", "m.py", "a.csv"]


@pytest.mark.parametrize("target", ["/proc/self/environ", "/dev/null", "/dev/zero", "pipe"])
@pytest.mark.parametrize("mark", ["", "!"])
def test_what_is_no_file_is_refused_even_if_it_is_forced(
    tmp_path: Path, target: str, mark: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "x").symlink_to(target)
    assert "%files cannot take x: it is " in refused(tmp_path, f"{mark}x").message


def test_loops_of_links_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "self").symlink_to("self/x")
    assert "a: it is a link to itself" in refused(tmp_path, "a").message
    assert "self: it is a link to itself" in refused(tmp_path, "self").message


def test_a_module_that_leads_out_is_refused_and_can_be_forced(
    tmp_path: Path, elsewhere: Path
) -> None:
    (tmp_path / "helper.py").symlink_to(elsewhere / "helper.py")
    (tmp_path / "package").symlink_to(elsewhere)
    for code, path, real in (
        ("import helper", "helper.py", elsewhere / "helper.py"),
        ("import package.helper", "package", elsewhere),
    ):
        with pytest.raises(SourceError) as caught:
            gather(code, tmp_path)
        message = caught.value.message
        assert message == (
            f"the code imports {path}, which leads to {real}, outside of {tmp_path}."
        )
        assert f"%files=!{path}" in caught.value.hint
        forced = gather(code, tmp_path, (f"!{path}",))
        assert [file.path for file in forced.files if file.path.endswith(".py")]
        assert not forced.modules
    (tmp_path / "module.py").symlink_to("/proc/self/environ")
    with pytest.raises(SourceError, match=r"module\.py.* it is /proc/.*/environ, which is data"):
        gather("import module", tmp_path)


def test_a_file_that_is_replaced_by_a_link_before_it_is_read(
    tmp_path: Path, elsewhere: Path
) -> None:
    (tmp_path / "data.csv").write_text("own")
    source = gather("", tmp_path, ("data.csv",))
    (tmp_path / "data.csv").unlink()
    (tmp_path / "data.csv").symlink_to(elsewhere / "data.csv")
    with pytest.raises(OSError, match="it was replaced after it was checked"):
        _copy(source, tmp_path / "job", threading.Event(), lambda more: None)
    copied = tmp_path / "job" / "data.csv"
    assert not copied.exists() or not copied.read_text()
