"""How a program starts: as a script, or as a module of its package."""

from __future__ import annotations

from pathlib import Path

import pytest

from ciao_kernel.delivery.input.imports import gather
from ciao_kernel.delivery.input.program import Program, of_file, of_module
from ciao_kernel.errors import UsageError


def write(folder: Path, **files: str) -> None:
    """Files by their paths, with ``__`` for a slash, without ``.py``."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def package(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "__init__.py").write_text("")


def module_of(folder: Path, path: str, code: str = "", here: Path | None = None) -> str:
    return of_file(folder / path, code, here or folder).module


def test_a_file_outside_of_packages_is_a_script_in_its_folder(tmp_path: Path) -> None:
    found = of_file(tmp_path / "sub" / "code.py", "", tmp_path)
    assert found == Program(tmp_path / "sub", "ciao_code.py")


def test_a_file_in_a_package_is_a_module_of_the_outermost_package(tmp_path: Path) -> None:
    package(tmp_path, "src/pkg", "src/pkg/deep")
    found = of_file(tmp_path / "src/pkg/deep/train.py", "", tmp_path)
    assert found == Program(tmp_path / "src", "pkg/deep/train.py", "pkg.deep.train")
    assert module_of(tmp_path, "src/pkg/__main__.py") == "pkg"


@pytest.mark.parametrize(
    ("code", "module"),
    [
        ("import helper", ""),
        ("from helper import x", ""),
        ("from . import helper", "pkg.train"),
        ("import helper\nfrom .helper import x", "pkg.train"),
        ("import pkg.helper", "pkg.train"),
        ("import numpy", "pkg.train"),
        ("not python", "pkg.train"),
    ],
)
def test_the_imports_decide_in_a_package(tmp_path: Path, code: str, module: str) -> None:
    package(tmp_path, "pkg")
    write(tmp_path, pkg__helper="x = 1")
    assert module_of(tmp_path, "pkg/train.py", code) == module


def test_who_stands_in_the_package_runs_a_script_unless_it_imports_its_package(
    tmp_path: Path,
) -> None:
    package(tmp_path, "pkg")
    here = tmp_path / "pkg"
    assert module_of(tmp_path, "pkg/train.py", "import os", here) == ""
    assert module_of(tmp_path, "pkg/train.py", "from .x import y", here) == "pkg.train"


@pytest.mark.parametrize(
    "path", ["json/train.py", "my-pkg/train.py", "pkg/my-train.py", "pkg/__init__.py"]
)
def test_what_cannot_be_a_module_is_a_script(tmp_path: Path, path: str) -> None:
    package(tmp_path, "json", "my-pkg", "pkg")
    assert module_of(tmp_path, path) == ""


def test_a_named_module_is_found_where_the_user_is(tmp_path: Path) -> None:
    package(tmp_path, "pkg")
    write(tmp_path, pkg__train="", pkg____main__="", alone="", plain__run="")
    assert of_module("pkg.train", tmp_path) == Program(tmp_path, "pkg/train.py", "pkg.train")
    assert of_module("alone", tmp_path) == Program(tmp_path, "alone.py", "alone")
    assert of_module("plain.run", tmp_path).entry == "plain/run.py"  # without __init__.py


def test_a_package_runs_by_its_main(tmp_path: Path) -> None:
    package(tmp_path, "pkg")
    (tmp_path / "pkg" / "__main__.py").write_text("")
    assert of_module("pkg", tmp_path) == Program(tmp_path, "pkg/__main__.py", "pkg")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("pkg/train.py", "is not the name of a module. Write -m pkg.train,"),
        ("pkg.deep.py", "is not the name of a module. Write -m pkg.deep,"),
        ("", "is not the name of a module."),
        (".train", "is not the name of a module."),
        ("pkg.absent", "there is no module pkg.absent in"),
        ("absent", "there is no module absent in"),
        ("pkg", "the package pkg cannot run: it has no __main__.py."),
        ("json.tool", "json is a module of Python itself."),
    ],
)
def test_a_wrong_module_is_refused(tmp_path: Path, name: str, says: str) -> None:
    package(tmp_path, "pkg")
    write(tmp_path, pkg__deep="")
    with pytest.raises(UsageError) as caught:
        of_module(name, tmp_path)
    assert says in f"{caught.value.message} {caught.value.hint}"


def test_the_package_travels_with_its_module(tmp_path: Path) -> None:
    package(tmp_path, "pkg", "pkg/deep")
    write(tmp_path, pkg__helper="import beside", pkg__other="", beside="", pkg__train="old")
    source = gather("from . import helper", tmp_path, entry="pkg/train.py", module="pkg.train")
    assert source.module == "pkg.train"
    assert source.entry.path == "pkg/train.py"
    assert source.entry.data == b"from . import helper"
    assert [file.path for file in source.modules] == [
        "beside.py",
        "pkg/__init__.py",
        "pkg/deep/__init__.py",
        "pkg/helper.py",
        "pkg/other.py",
    ]
