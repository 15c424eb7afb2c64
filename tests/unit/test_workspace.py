"""What travels with a program: local modules that it imports, files that it names."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ciao_kernel.errors import SourceError, SpecError
from ciao_kernel.workspace import CELL, entry_name, gather


def write(folder: Path, files: dict[str, str]) -> None:
    """Modules by their paths without ``.py``."""
    for name, text in files.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def modules(code: str, folder: Path) -> list[str]:
    return [file.path for file in gather(code, folder).modules]


def files(folder: Path, *patterns: str, entry: str = CELL) -> list[str]:
    return [file.path for file in gather("", folder, patterns, entry).files]


def refused(folder: Path, *patterns: str, entry: str = CELL) -> SpecError:
    with pytest.raises(SpecError) as caught:
        gather("", folder, patterns, entry)
    assert caught.value.directive == "files"
    return caught.value


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Do without root's right to read everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def readable() -> Iterator[Path]:
    """A folder to which no other folder's rights bar the way, as pytest's own do."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


# --------------------------------------------------------------------------------- program


def test_the_programs_bytes_are_not_touched(tmp_path: Path) -> None:
    code = "a = 1\r\n\tb = '漢$`'\n# EOM"
    source = gather(code, tmp_path)
    assert source.entry.path == CELL
    assert source.entry.data == code.encode()
    assert source.entry.size == len(code.encode())


@pytest.mark.parametrize("name", ["code", "random", "types", "json", "signal", "queue"])
def test_no_program_hides_a_module_of_python(name: str) -> None:
    assert entry_name(Path(f"{name}.py")) == f"ciao_{name}.py"
    assert entry_name(Path("train.py")) == "train.py"
    assert entry_name(Path("my-train.v2.py")) == "my-train.v2.py"
    assert CELL.removesuffix(".py") not in sys.stdlib_module_names


# --------------------------------------------------------------------------------- modules


def test_modules_are_found_through_modules(tmp_path: Path) -> None:
    write(tmp_path, {"a": "import b", "b": "from c import x", "c": "import a", "unused": ""})
    assert modules("import a", tmp_path) == ["a.py", "b.py", "c.py"]


@pytest.mark.parametrize(
    "code",
    [
        "import pkg",
        "import pkg.deep.leaf",
        "import pkg.deep.leaf as x, os",
        "from pkg import deep",
        "from pkg.deep import leaf",
        "from pkg.deep.leaf import x",
        "def f():\n    import pkg",
        "try:\n    import pkg\nexcept ImportError:\n    pkg = None",
        "if True:\n    from pkg import *",
        "class A:\n    async def f(self):\n        from pkg import deep",
    ],
)
def test_a_package_travels_as_a_whole(tmp_path: Path, code: str) -> None:
    write(
        tmp_path,
        {"pkg/__init__": "", "pkg/deep/__init__": "", "pkg/deep/leaf": "from ..other import y"},
    )
    write(tmp_path, {"pkg/other": "from . import deep; import beside", "beside": ""})
    found = modules(code, tmp_path)
    assert found == [
        "beside.py",
        "pkg/__init__.py",
        "pkg/deep/__init__.py",
        "pkg/deep/leaf.py",
        "pkg/other.py",
    ]


def test_a_folder_without_init_is_a_package_too(tmp_path: Path) -> None:
    write(tmp_path, {"ns/one": "", "ns/sub/__init__": ""})
    assert modules("from ns import sub", tmp_path) == ["ns/one.py", "ns/sub/__init__.py"]
    assert modules("import ns.one", tmp_path) == ["ns/one.py", "ns/sub/__init__.py"]


def test_a_module_wins_over_a_folder_without_init_as_in_python(tmp_path: Path) -> None:
    write(tmp_path, {"x": "", "x/inner": ""})
    assert modules("import x", tmp_path) == ["x.py"]
    write(tmp_path, {"x/__init__": ""})
    assert modules("import x", tmp_path) == ["x/__init__.py", "x/inner.py"]


def test_data_beside_a_package_stays(tmp_path: Path) -> None:
    write(tmp_path, {"pkg/__init__": ""})
    (tmp_path / "pkg" / "weights.bin").write_bytes(b"x")
    (tmp_path / "pkg" / "__pycache__").mkdir()
    (tmp_path / "pkg" / "__pycache__" / "a.py").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.csv").touch()
    assert modules("import pkg, data", tmp_path) == ["pkg/__init__.py"]


def test_a_local_file_never_replaces_a_module_of_python(tmp_path: Path) -> None:
    write(tmp_path, {"random": "", "code": "", "os/__init__": ""})
    source = gather("import random, code, os.path", tmp_path)
    assert source.modules == ()
    assert files(tmp_path, "random.py") == ["random.py"]  # unless the user insists


def test_a_module_with_a_fault_travels_and_tells_when_it_runs(tmp_path: Path) -> None:
    write(tmp_path, {"broken": "def f(:\n", "empty": ""})
    (tmp_path / "nulls.py").write_bytes(b"\0")
    (tmp_path / "latin.py").write_bytes(
        "# -*- coding: latin-1 -*-\nx = 'é'\nimport empty\n".encode("latin-1")
    )
    found = modules("import broken, nulls, latin", tmp_path)
    assert found == ["broken.py", "empty.py", "latin.py", "nulls.py"]


def test_what_the_program_imports_is_known_by_its_first_name(tmp_path: Path) -> None:
    write(tmp_path, {"helper": "from torch.nn import Linear"})
    source = gather("import tensorflow.keras as k\nfrom os import path\nimport helper", tmp_path)
    assert {"tensorflow", "torch", "os", "helper"} <= source.imports


def test_odd_code_stops_no_one(tmp_path: Path) -> None:
    write(tmp_path, {"a": "from .... import x\nfrom . import y\nfrom .b import z", "b": ""})
    assert modules("from . import a\nimport a", tmp_path) == ["a.py", "b.py"]
    assert modules("-" * 100_000 + "1", tmp_path) == []


def test_an_unreadable_module_is_an_error_with_its_name(readable: Path) -> None:
    write(readable, {"helper": ""})
    (readable / "helper.py").chmod(0)
    with as_nobody(), pytest.raises(SourceError, match=r"helper\.py.*cannot be read"):
        gather("import helper", readable)


# ----------------------------------------------------------------------------------- files


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "data/train.csv",
        "data/deep/test.csv",
        "data/.hidden.csv",
        "conf.yaml",
        "a b.txt",
        ".env",
        ".git/config",
        "data/__pycache__/x.pyc",
        "venv/pyvenv.cfg",
        "venv/lib/site.py",
        "[1].csv",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (("conf.yaml",), ["conf.yaml"]),
        (("./conf.yaml", "conf.yaml"), ["conf.yaml"]),
        (("data",), ["data/.hidden.csv", "data/deep/test.csv", "data/train.csv"]),
        (("data/",), ["data/.hidden.csv", "data/deep/test.csv", "data/train.csv"]),
        (("data/*.csv",), ["data/train.csv"]),
        (("data/.*.csv",), ["data/.hidden.csv"]),
        (("**/*.csv",), ["[1].csv", "data/deep/test.csv", "data/train.csv"]),
        (("a b.txt",), ["a b.txt"]),
        (("[1].csv",), ["[1].csv"]),
        ((".env",), [".env"]),
        (("d*",), ["data/.hidden.csv", "data/deep/test.csv", "data/train.csv"]),
        (("conf.yam?", "[ab] b.txt"), ["a b.txt", "conf.yaml"]),
    ],
)
def test_what_a_word_names(tree: Path, patterns: tuple[str, ...], found: list[str]) -> None:
    assert files(tree, *patterns) == found


def test_the_whole_folder_comes_without_environments_and_repositories(tree: Path) -> None:
    found = files(tree, ".")
    assert "data/train.csv" in found
    assert not [name for name in found if name.startswith(("venv", ".git")) or "pyc" in name]


@pytest.mark.parametrize("pattern", ["/etc/passwd", "../x", "data/../../x", "~/x", "~root/x", ".."])
def test_nothing_leaves_the_folder(tree: Path, pattern: str) -> None:
    error = refused(tree, pattern)
    assert f"cannot take {pattern}: it is outside the notebook's folder" in error.message


def test_a_missing_file_is_named_with_the_nearest(tree: Path) -> None:
    error = refused(tree, "data/tran.csv")
    assert "data/tran.csv" in error.message
    assert error.hint == "Did you mean data/train.csv?"
    assert refused(tree, "zzz/qqq.csv").hint == "Paths are relative to the folder of the notebook."
    assert "nothing of that name" in refused(tree, "*.parquet").message


@pytest.mark.parametrize(
    "pattern", ["**x", "a" * 300, "a" * 300 + "*", "x/" * 3000 + "*", "", "  "]
)
def test_words_that_are_no_paths(tree: Path, pattern: str) -> None:
    refused(tree, pattern)


def test_an_empty_folder_and_a_pipe_are_refused(tree: Path) -> None:
    (tree / "empty").mkdir()
    assert "no file in that folder" in refused(tree, "empty").message
    os.mkfifo(tree / "pipe")
    assert "neither a file nor a folder" in refused(tree, "pipe").message


def test_an_unreadable_file_is_refused(readable: Path) -> None:
    (readable / "secret").touch()
    (readable / "secret").chmod(0)
    with as_nobody():
        assert "Permission denied" in refused(readable, "secret").message


def test_an_unreadable_folder_is_no_traceback(readable: Path) -> None:
    (readable / "closed").mkdir()
    (readable / "closed" / "x").touch()
    (readable / "closed").chmod(0)
    try:
        with as_nobody():
            refused(readable, "closed/x")
            refused(readable, "closed")
    finally:
        (readable / "closed").chmod(0o700)


def test_links(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "big.bin").write_bytes(b"big")
    (tree / "linked").symlink_to(elsewhere)
    (tree / "linked.bin").symlink_to(elsewhere / "big.bin")
    assert files(tree, "linked", "linked.bin") == ["linked.bin", "linked/big.bin"]
    (tree / "loop").symlink_to("loop")
    (tree / "data" / "up").symlink_to("..")
    (tree / "gone").symlink_to("nowhere")
    refused(tree, "loop")
    refused(tree, "gone")
    assert "data/train.csv" in files(tree, "data")
    assert "gone" not in files(tree, "[gl]*", "conf.yaml")


def test_the_programs_own_name_is_taken(tree: Path) -> None:
    (tree / CELL).touch()
    assert "the name of the program itself" in refused(tree, CELL).message
    # Caught by a pattern, it is no one's wish.
    assert CELL not in files(tree, ".")
    assert CELL not in files(tree, "*", "c*.py", "conf.yaml")
    (tree / "train.py").touch()
    assert "train.py" not in files(tree, "*.py", "conf.yaml", entry="train.py")


def test_what_is_named_is_not_sent_twice(tree: Path) -> None:
    write(tree, {"helper": ""})
    source = gather("import helper", tree, ("helper.py",))
    assert [file.path for file in source.all()] == [CELL, "helper.py"]
    assert source.modules == ()
