"""What travels with a program: local modules that it imports, files that it names."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path, PurePosixPath

import pytest

from ciao_kernel.delivery.input import files as searching
from ciao_kernel.delivery.input.import_statements import statements
from ciao_kernel.delivery.input.imports import CELL, entry_name, gather
from ciao_kernel.errors import SourceError, SpecError
from ciao_kernel.magics.shell_words import words
from tests.helpers.growth import is_linear
from tests.helpers.rights import as_nobody


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


NEWER = ["x = (1 if\n", "match = [*\n", "type X = = int\n"]
"""No Python compiles this: it stands for the syntax of a newer one than that of the tests."""


@pytest.mark.parametrize("newer", NEWER)
def test_a_program_for_a_newer_python_has_its_modules(tmp_path: Path, newer: str) -> None:
    names = (*"abcdefg", "i", "j", "k")
    write(tmp_path, dict.fromkeys(names, "") | {"a": newer + "import h", "h": "", "unused": ""})
    code = (
        "import os, a as x  # import unused\n"
        "def run():\n    from b import one\n    import c; import d\n"
        "from e import (  # (one)\n    one,  # first\n    two,\n)\r\n"
        "from f \\\n    import one\n"
        "if x: import i\n"
        "try: from j import (\n    one)\nfinally: pass\n"
        "def f(): import k\n"
        "text = 'import unused'\nreimport = 1\nimport\nfrom\n"
    )
    assert modules(code + newer + "import g", tmp_path) == [
        f"{n}.py" for n in sorted((*names, "h"))
    ]
    assert modules("import pkg\n" + newer, tmp_path) == []


def test_a_package_for_a_newer_python_finds_its_own_modules(tmp_path: Path) -> None:
    write(tmp_path, {"pkg/__init__": f"from . import made\n{NEWER[0]}", "pkg/made": ""})
    (tmp_path / ".gitignore").write_text("made.py\n")
    assert modules("import pkg", tmp_path) == ["pkg/__init__.py", "pkg/made.py"]


@pytest.mark.parametrize(
    "line",
    [
        "import (\n",
        "from a import (#\n",
        "import a\\\n",
        "import;",
        "#a\n",
        "from a import b, # c\n",
        "if a: import (",
    ],
)
def test_a_long_program_that_cannot_be_compiled_is_read_fast(line: str) -> None:
    assert is_linear(lambda n: list(statements(f"import ({line * n}=")), 4000)


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


def test_a_large_package_is_gone_through_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked: list[Path] = []

    def walk(top: Path) -> Iterator[Path]:
        walked.append(top)
        return searching_walk(top)

    searching_walk = searching.walk
    monkeypatch.setattr(searching, "walk", walk)
    write(tmp_path, {f"pkg/m{number}": "from . import m0" for number in range(2000)})
    assert len(modules("import pkg", tmp_path)) == 2000
    assert walked == [tmp_path / "pkg"]


def test_a_long_row_of_modules_is_followed_to_its_end(tmp_path: Path) -> None:
    write(tmp_path, {f"m{number}": f"import m{number + 1}" for number in range(1000)})
    assert len(modules("import m0", tmp_path)) == 1000


def test_an_installed_package_wins_over_a_folder_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, work = tmp_path / "site", tmp_path / "work"
    write(site, {"wandb_like/__init__": "", "one_file_like": ""})
    write(work, {"wandb_like/run/files/code/train": "", "one_file_like/data": "", "own/a": ""})
    monkeypatch.syspath_prepend(site)
    source = gather("import wandb_like, one_file_like, own", work)
    assert [file.path for file in source.modules] == ["own/a.py"]
    (note,) = source.notes  # of the one with modules: a folder of data is no module
    assert "the folder one_file_like is not included" in note
    assert "%files=one_file_like" in note
    assert not gather("import one_file_like", work, ("one_file_like",)).notes
    monkeypatch.setattr(sys, "path", [b"/x", *sys.path])  # Python ignores such an entry
    assert modules("import own", work) == ["own/a.py"]
    # A package of the user's own stands before it on the path, as in Python.
    write(work, {"wandb_like/__init__": ""})
    found = modules("import wandb_like", work)
    assert found == ["wandb_like/__init__.py", "wandb_like/run/files/code/train.py"]


def test_ignore_files_hold_for_packages(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*_pb2.py\nscratch/\nown/\n")
    write(tmp_path, {"own/__init__": "", "own/a_pb2": "", "own/b_pb2": "import beside"})
    write(tmp_path, {"own/scratch/old": "", "own/scratch/__init__": "", "beside": ""})
    source = gather("import own", tmp_path)
    assert [file.path for file in source.modules] == ["own/__init__.py"]
    (note,) = source.notes
    assert note.startswith("modules excluded by .gitignore: own/a_pb2.py, own/b_pb2.py, own/scr")
    assert note.endswith("and 1 more")
    # What the code imports by its name is needed, and what that imports.
    found = ["beside.py", "own/__init__.py", "own/b_pb2.py"]
    assert modules("from own import b_pb2", tmp_path) == found
    assert modules("import own.b_pb2 as b", tmp_path) == found
    # Python runs the __init__.py of each package on the way.
    (tmp_path / ".gitignore").write_text("*\n")
    write(tmp_path, {"deep/__init__": "", "deep/sub/__init__": "", "deep/sub/m": ""})
    found = ["deep/__init__.py", "deep/sub/__init__.py", "deep/sub/m.py"]
    assert modules("from deep.sub.m import f", tmp_path) == found
    (tmp_path / ".gitignore").write_text("*_pb2.py\nscratch/\nown/\n")
    # %files may include the others.
    source = gather("import own", tmp_path, ("!own",))
    assert len(source.files) == 5
    assert source.notes == ()


def test_what_python_imports_here_and_is_not_delivered_is_said(tmp_path: Path) -> None:
    write(tmp_path, {"pkg/__init__": "", "shared/sub/__init__": "", "shared/sub/deep": ""})
    write(tmp_path, {"both": ""})
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.csv").touch()
    (tmp_path / "pkg" / "sub").symlink_to("../shared/sub")
    (tmp_path / "pkg" / "data").symlink_to("../data")
    built = [f"fast{EXTENSION_SUFFIXES[0]}", f"both{EXTENSION_SUFFIXES[-1]}", "pkg/_c.abi3.so"]
    for name in [*built, "other.so"]:
        (tmp_path / name).touch()
    source = gather("import pkg.sub", tmp_path)
    assert [file.path for file in source.modules] == ["pkg/__init__.py"]
    assert source.notes == (
        "modules that are not included by themselves: pkg/sub, pkg/_c.abi3.so; "
        "%files=pkg/sub pkg/_c.abi3.so includes them",
    )
    (note,) = gather("import fast", tmp_path).notes
    assert note.endswith(f"themselves: {built[0]}; %files={built[0]} includes it")
    source = gather("import both", tmp_path)
    assert [file.path for file in source.modules] == ["both.py"]
    assert built[1] in source.notes[0]
    source = gather("import pkg, fast", tmp_path, ("pkg/sub", "pkg/_c.abi3.so", built[0]))
    assert [file.path for file in source.files if "sub" in file.path] == [
        "pkg/sub/__init__.py",
        "pkg/sub/deep.py",
    ]
    assert source.notes == ()


def test_a_module_with_a_key_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"id_ecdsa_keys": "KEY = 1"})
    with pytest.raises(
        SourceError, match=r"imports id_ecdsa_keys\.py.*cannot be delivered"
    ) as caught:
        gather("import id_ecdsa_keys", tmp_path)
    assert "%files=!id_ecdsa_keys.py" in caught.value.hint
    source = gather("import id_ecdsa_keys", tmp_path, ("!id_ecdsa_keys.py",))
    assert [file.path for file in source.files] == ["id_ecdsa_keys.py"]


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
        ".hidden",
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
        (("!.hidden",), [".hidden"]),
        (("!./conf.yaml", "a b.txt"), ["a b.txt", "conf.yaml"]),
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


@pytest.mark.parametrize(
    "pattern", ["venv", "!venv", "venv/lib", "venv/lib/*", "v*", "*/lib", "**/*.py"]
)
def test_an_environment_stays_whatever_names_it(tree: Path, pattern: str) -> None:
    error = refused(tree, pattern)
    assert error.message == (
        f"%files cannot take {pattern.lstrip('!')}: a virtual environment is never delivered."
    )
    assert "%packages" in error.hint


@pytest.mark.parametrize("pattern", ["*/lib", "**/*.py"])
def test_what_lies_beside_an_environment_goes_without_it(tree: Path, pattern: str) -> None:
    write(tree, {"own/lib/x": ""})
    assert files(tree, pattern) == ["own/lib/x.py"]


def test_a_file_of_an_environment_goes_where_it_is_written_out(tree: Path) -> None:
    assert files(tree, "venv/lib/site.py") == ["venv/lib/site.py"]


@pytest.mark.parametrize("pattern", ["/etc/passwd", "../x", "data/../../x", "~/x", "~root/x", ".."])
def test_nothing_leaves_the_folder(tree: Path, pattern: str) -> None:
    error = refused(tree, pattern)
    assert f"cannot take {pattern}: it is outside the folder of your code" in error.message


def test_a_value_in_the_place_of_a_file_is_not_quoted(tree: Path) -> None:
    error = refused(tree, "API_KEY=hunter2")
    assert error.message == f"%files names API_KEY=…, but nothing in {tree} matches it."
    assert len(refused(tree, "x" * 5000 + "/*").message) < 400


def test_a_missing_file_is_named_with_the_nearest(tree: Path) -> None:
    error = refused(tree, "data/tran.csv")
    assert "data/tran.csv" in error.message
    assert error.hint == "Did you mean data/train.csv?"
    assert refused(tree, "zzz/qqq.csv").hint == "Paths are relative to that folder."
    assert "matches it" in refused(tree, "*.parquet").message


@pytest.mark.parametrize(
    "pattern", ["**x", "a" * 300, "a" * 300 + "*", "x/" * 3000 + "*", "", "  ", "!", "!gone"]
)
def test_words_that_are_no_paths(tree: Path, pattern: str) -> None:
    refused(tree, pattern)


def test_an_empty_folder_and_a_pipe_are_refused(tree: Path) -> None:
    (tree / "empty").mkdir()
    assert "the folder contains no files" in refused(tree, "empty").message
    os.mkfifo(tree / "pipe")
    assert "neither a file nor a folder" in refused(tree, "pipe").message


def test_an_unreadable_file_is_refused(readable: Path) -> None:
    (readable / "secret").touch()
    (readable / "secret").chmod(0)
    with as_nobody():
        assert "Permission denied" in refused(readable, "secret").message


def test_what_lies_in_a_folder_is_refused_by_its_name(readable: Path) -> None:
    (readable / "data").mkdir()
    path = readable / "data" / "odd"

    def bind() -> None:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))

    cases: list[tuple[Callable[[], object], str]] = [
        (bind, "it is neither a file nor a folder but a socket"),
        (lambda: os.mkfifo(path), "it is neither a file nor a folder but a pipe"),
        (lambda: path.symlink_to("odd"), "it is a link to itself"),
        (lambda: path.symlink_to("gone"), "it is a broken link"),
        (lambda: path.touch(0), "Permission denied"),
        (lambda: path.mkdir(0), "Permission denied"),
    ]
    for make, why in cases:
        make()
        with as_nobody():
            for word in ("data", "data/odd"):
                error = refused(readable, word)
                assert error.message == f"%files cannot take data/odd: {why}."
                assert error.hint
        (readable / ".gitignore").write_text("odd\n")
        with as_nobody():  # a line leaves it out, and then nothing is left
            assert "every match is excluded by .gitignore" in refused(readable, "data").message
        (readable / ".gitignore").unlink()
        path.rmdir() if path.is_dir() else path.unlink()


def test_a_name_of_odd_bytes_is_refused_and_can_be_shown(tree: Path) -> None:
    (tree / "data" / os.fsdecode(b"\xff\n.csv")).touch()
    error = refused(tree, "data")
    assert error.message == r"%files cannot take data/\xff\n.csv: its name is not UTF-8."


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
    assert files(tree, "!linked", "!linked.bin") == ["linked.bin", "linked/big.bin"]
    (tree / "loop").symlink_to("loop")
    (tree / "data" / "up").symlink_to("..")
    (tree / "gone").symlink_to("nowhere")
    refused(tree, "loop")
    refused(tree, "gone")
    assert "data/train.csv" in files(tree, "data")
    assert "gone" not in files(tree, "![gl]*", "conf.yaml")


def test_links_to_folders_are_told_where_they_stay_out(tree: Path) -> None:
    (tree / "data" / "up").symlink_to("..")
    assert gather("", tree, ("data",)).notes == ("links to folders are not followed: data/up",)


# ----------------------------------------------------------------------- what stays at home


@pytest.mark.parametrize(
    "name",
    [
        ".netrc",
        ".env",
        ".env.local",
        "id_rsa",
        "id_ed25519",
        ".npmrc",
        ".pypirc",
        "tls.key",
        "kaggle.json",
        ".docker/config.json",
        ".kube/config",
        ".aws/credentials",
        ".git/config",
        ".config/gcloud/legacy/adc.json",
        "SERVER.KEY",
    ],
)
def test_secrets_are_refused_unless_they_are_forced(tmp_path: Path, name: str) -> None:
    file = tmp_path / "conf" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("hunter2")
    for word in [f"conf/{name}", *([] if ".git" in name else ["conf", "conf/", "."])]:
        error = refused(tmp_path, word)
        assert f"%files cannot take conf/{name}: " in error.message
        assert "hold passwords" in error.message
        assert f"write %files=!conf/{name}" in error.hint
        assert "hunter2" not in error.message + error.hint
    assert files(tmp_path, f"!conf/{name}") == [f"conf/{name}"]
    assert files(tmp_path, f"!conf/{PurePosixPath(name).parent}") == [f"conf/{name}"]


KEY = "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----\n"
ACCOUNT = '{"type": "service_account", "private_key": "hunter2"}'
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("server.pem", KEY, "it holds a private key"),
        ("server.pem", CERTIFICATE + KEY, "it holds a private key"),
        ("deploy", KEY.replace("RSA", "OPENSSH"), "it holds a private key"),
        ("robot.json", ACCOUNT, "it holds the key of a service account"),
        ("ca.pem", CERTIFICATE, ""),
        ("test_keys.py", f"TEXT = '{KEY!r}'", ""),
        ("model.json", '{"type": "service_account"}', ""),
        (".env.example", "TOKEN=", ""),
        ("id_rsa.pub", "ssh-rsa", ""),
        ("environment.yml", "", ""),
        ("large.json", ACCOUNT + " " * 70_000, ""),
    ],
)
def test_secrets_are_known_by_what_they_hold(
    tmp_path: Path, name: str, text: str, why: str
) -> None:
    (tmp_path / name).write_text(text)
    if why:
        assert refused(tmp_path, ".").message == f"%files cannot take {name}: {why}."
        assert files(tmp_path, f"!{name}") == [name]
    else:
        assert files(tmp_path, ".") == [name]


def test_a_link_is_as_secret_as_what_it_leads_to(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("home")
    (home / ".aws").mkdir()
    (home / ".aws" / "credentials").write_text("hunter2")
    (tmp_path / "plain.txt").symlink_to(home / ".aws" / "credentials")
    (tmp_path / "folder").symlink_to(home / ".aws")
    assert "plain.txt: files like this" in refused(tmp_path, "plain.txt").message
    assert f"folder: it leads to {home}/.aws, outside of" in refused(tmp_path, "folder").message


@pytest.fixture
def ignoring(tree: Path) -> Path:
    """A folder of a repository whose files say what stays."""
    (tree / ".gitignore").write_text("*.csv\n!train.csv\nbuild/\n.hidden\n")
    (tree / "data" / ".gitignore").write_text("/train.csv\n")
    (tree / ".dockerignore").write_text("**/*.log\n")
    (tree / ".s2iignore").write_text("notes.txt\n")
    for name in ("build/x/y.o", "data/a.log", "notes.txt", "data/notes.txt"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).touch()
    return tree


def test_of_a_folder_stays_what_its_files_say(ignoring: Path) -> None:
    source = gather("", ignoring, (".",))
    assert [file.path for file in source.files] == [
        ".dockerignore",
        ".gitignore",
        ".s2iignore",
        "a b.txt",
        "conf.yaml",
        "data/.gitignore",
        "data/notes.txt",
    ]
    assert source.notes == (
        "excluded by .gitignore: build/, .hidden, [1].csv and 2 more",
        "excluded by .s2iignore: notes.txt",
        "excluded by .dockerignore: data/a.log",
        "excluded by data/.gitignore: data/train.csv",
    )


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (("build",), ["build/x/y.o"]),
        (("build/x/y.o",), ["build/x/y.o"]),
        (("build/*",), ["build/x/y.o"]),
        (("data/train.csv", "notes.txt"), ["data/train.csv", "notes.txt"]),
        (("data/a.log",), ["data/a.log"]),
        (("!data/*.csv",), ["data/train.csv"]),
        (("data", "!data/train.csv"), ["data/.gitignore", "data/notes.txt", "data/train.csv"]),
        (("data", "data/train.csv"), ["data/.gitignore", "data/notes.txt", "data/train.csv"]),
        (("**/*.txt",), ["a b.txt", "data/notes.txt"]),
    ],
)
def test_what_is_written_out_goes_all_the_same(
    ignoring: Path, patterns: tuple[str, ...], found: list[str]
) -> None:
    assert files(ignoring, *patterns) == found


def test_what_stays_as_a_whole_is_an_error_that_says_by_which_file(ignoring: Path) -> None:
    (ignoring / "data" / "own file.csv").touch()
    error = refused(ignoring, "data/own*.csv")
    assert error.message == "%files names data/own*.csv, but every match is excluded by .gitignore."
    assert error.hint == "Write %files=!'data/own*.csv' to include it anyway."
    assert words("!'data/own*.csv'") == ("!data/own*.csv",)
    assert files(ignoring, "!data/own*.csv") == ["data/own file.csv"]


def test_what_was_taken_after_all_is_not_told_of(ignoring: Path) -> None:
    notes = gather("", ignoring, ("data", "data/train.csv")).notes
    assert notes
    assert not [note for note in notes if "train" in note]


def test_a_repository_begins_above_the_notebook(tree: Path) -> None:
    (tree / ".gitignore").write_text("*.tmp\n/work/secret\n")
    work = tree / "work"
    (work / "in").mkdir(parents=True)
    for name in ("a.tmp", "secret", "in/secret", "b"):
        (work / name).touch()
    (tree.parent / ".gitignore").write_text("b\n")  # outside of the repository
    source = gather("", work, (".",))
    assert [file.path for file in source.files] == ["b", "in/secret"]
    assert source.notes == (f"excluded by {tree}/.gitignore: a.tmp, secret",)


def test_the_notebooks_own_folder_is_asked_for_by_name(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*\n")  # outside of any repository
    work = tmp_path / "repository" / "scratch"
    work.mkdir(parents=True)
    (work / "x").touch()
    assert files(work, ".") == ["x"]
    (work.parent / ".git").mkdir()
    (work.parent / ".gitignore").write_text("scratch/\n")
    assert files(work, ".") == files(work, "**/*") == ["x"]


@pytest.mark.parametrize("pattern", [".", "./", "*", "**/*"])
def test_no_hint_takes_the_whole_folder_with_its_keys(tree: Path, pattern: str) -> None:
    (tree / ".gitignore").write_text("*\n")
    error = refused(tree, pattern)
    assert "every match is excluded by .gitignore" in error.message
    assert error.hint == "Name the files or folders that you need."


def test_local_modules_go_whatever_git_says(tmp_path: Path) -> None:
    write(tmp_path, {"helper": ""})
    (tmp_path / ".gitignore").write_text("*.py\n")
    assert modules("import helper", tmp_path) == ["helper.py"]


def test_an_ignore_file_that_cannot_be_read(readable: Path) -> None:
    (readable / "data").mkdir()
    (readable / "data" / "x").touch()
    (readable / "data" / ".gitignore").touch(0)
    with as_nobody(), pytest.raises(SourceError, match=r"ignore file .*/data/\.gitignore cannot"):
        gather("", readable, ("data",))


# ------------------------------------------------------------------------------ all of them


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
