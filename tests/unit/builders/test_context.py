"""What a build is made from, and what stays at home."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from ciao_kernel.builders import context, ignore
from ciao_kernel.errors import SourceError
from ciao_kernel.oci.layer import File

NOTHING = ignore.docker("")


def paths(found: tuple[File, ...]) -> list[str]:
    return [one.path for one in found]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.py", "sub/b.py", "sub/deep/c.log", "c.log", "sub/__pycache__/x.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def gather(folder: Path, *patterns: str, ignored: str = "") -> list[str]:
    wishes = [(pattern, "Dockerfile, line 2") for pattern in patterns]
    return paths(context.gather(folder, wishes, ignore.docker(ignored)))


def test_files_folders_and_patterns(folder: Path) -> None:
    assert gather(folder, "a.py", "sub") == ["a.py", "sub/b.py", "sub/deep/c.log"]
    assert gather(folder, "*.log") == ["c.log"]
    assert gather(folder, ".") == ["a.py", "c.log", "sub/b.py", "sub/deep/c.log"]
    assert gather(folder, "./sub/") == ["sub/b.py", "sub/deep/c.log"]


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("*.log", ["c.log"]),
        ("**/*.log", ["c.log", "sub/deep/c.log"]),
        ("sub", ["sub/b.py", "sub/deep/c.log"]),
        ("sub\n!sub/deep", ["sub/b.py"]),
        ("/a.py\n# *.log\n\n  c.?og ", ["a.py", "c.log"]),
        ("*/*.py", ["sub/b.py"]),
        ("[a-b].py", ["a.py"]),
        ("[^a].log", ["c.log"]),
        ("**", ["a.py", "c.log", "sub/b.py", "sub/deep/c.log"]),
        ("sub/**/c.log", ["sub/deep/c.log"]),
        ("\\*.log", []),
    ],
)
def test_dockerignore(folder: Path, text: str, stays: list[str]) -> None:
    every = gather(folder, ".")
    assert gather(folder, ".", ignored=text) == [name for name in every if name not in stays]


@pytest.mark.parametrize(
    ("text", "path", "stays"),
    [
        ("*.log", "a.log", True),
        ("*.log", "sub/a.log", False),
        ("sub/*.log", "sub/a.log", True),
        ("sub", "sub/x/y", True),
        ("*.log\n!keep.log", "keep.log", False),
        ("# x\n*", ".s2iignore", False),
        ("**/x", "a/b/x", False),
    ],
)
def test_s2iignore_knows_whole_paths_alone(text: str, path: str, stays: bool) -> None:
    assert ignore.s2i(text)(path) is stays


def test_what_is_not_there_or_outside(folder: Path) -> None:
    with pytest.raises(SourceError, match=r"Dockerfile, line 2: there is no gone\.py"):
        gather(folder, "gone.py")
    with pytest.raises(SourceError, match="outside"):
        gather(folder, "../x")
    with pytest.raises(SourceError, match="outside"):
        context.read(folder, "/etc/passwd", "%dockerfile")
    with pytest.raises(SourceError, match="sub cannot be read"):
        context.read(folder, "sub", "%condaEnv")


@pytest.mark.parametrize("name", [".netrc", ".env", "id_rsa", "sub/tls.key", ".pypirc"])
def test_secrets_stay_at_home_unless_they_are_named(folder: Path, name: str) -> None:
    (folder / name).write_text("hunter2")
    with pytest.raises(SourceError, match="holds passwords or keys") as refused:
        gather(folder, ".")
    assert "hunter2" not in refused.value.message
    assert name in gather(folder, name)
    assert name not in gather(folder, ".", ignored=name)


def test_loops_pipes_and_dangling_links(folder: Path) -> None:
    (folder / "sub" / "loop").symlink_to(folder)
    assert gather(folder, "sub") == ["sub/b.py", "sub/deep/c.log"]
    os.mkfifo(folder / "pipe")
    with pytest.raises(SourceError, match="pipe is neither a file nor a folder"):
        gather(folder, ".")
    (folder / "pipe").unlink()
    (folder / "dangling").symlink_to(folder / "nowhere")
    with pytest.raises(SourceError, match="dangling is neither"):
        gather(folder, ".")


def test_the_same_files_are_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    def pack() -> bytes:
        files = context.gather(folder, [(".", "x")], NOTHING)
        made = context.packed(files, tmp_path, lambda: None)
        assert isinstance(made.content, bytes)
        return made.content

    first = pack()
    os.utime(folder / "a.py", (1, 1))
    assert pack() == first
    (folder / "a.py").chmod(0o755)
    assert pack() != first


def test_a_config_map_holds_it(folder: Path, tmp_path: Path) -> None:
    layer = context.packed([File("Dockerfile", b"FROM a\n")], tmp_path, lambda: None)
    made = context.config_map("x", layer, b"authority")
    assert made["immutable"] is True
    assert base64.b64decode(made["binaryData"]["context.tar.gz"]) == layer.content
    assert base64.b64decode(made["binaryData"]["ca.crt"]) == b"authority"
