"""Files of a Dockerfile: notebooks are taken only if a path or a line means them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ciao_kernel.builders import dockerfile_context
from ciao_kernel.delivery.input.held_file import HeldFile


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.py", "train.ipynb", "sub/other.ipynb", "sub/b.py", "sub/.ipynb_checkpoints/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def taken(folder: Path, *lines: str, ignored: str = "") -> list[str]:
    (folder / ".dockerignore").write_text(f".dockerignore\n{ignored}")
    text = "".join(f"{line}\n" for line in ("FROM a", *lines))
    return [one.path for one in dockerfile_context.gather(folder, "Dockerfile", text)]


def test_a_saved_notebook_is_no_new_environment(folder: Path) -> None:
    (folder / "Dockerfile").write_text("FROM a\nCOPY . /app\n")
    first = dockerfile_context.digest(folder, "Dockerfile")
    (folder / "train.ipynb").write_text("saved")
    assert dockerfile_context.digest(folder, "Dockerfile") == first
    (folder / "a.py").write_text("changed")
    assert dockerfile_context.digest(folder, "Dockerfile") != first


def test_files_of_the_architecture_are_taken(folder: Path) -> None:
    text = "FROM a\nARG TARGETARCH\nCOPY bin-$TARGETARCH /x\n"
    for name in "bin-amd64", "bin-arm64":
        (folder / name).write_text(name)
    (folder / "Dockerfile").write_text(text)
    for architecture in "amd64", "arm64":
        (found,) = dockerfile_context.gather(folder, "Dockerfile", text, architecture=architecture)
        assert found.path == f"bin-{architecture}"
    digests = {dockerfile_context.digest(folder, "Dockerfile")}
    for name in "bin-amd64", "bin-arm64":  # either one may be that of the nodes
        (folder / name).write_text("changed")
        digests.add(dockerfile_context.digest(folder, "Dockerfile"))
    assert len(digests) == 3


def test_notebooks_of_copied_folders_are_left_out(folder: Path) -> None:
    for line in ("COPY . /app", "COPY * /app/", 'ADD ["./", "/app/"]'):
        assert taken(folder, line) == ["a.py", "sub/b.py"]
    assert taken(folder, "COPY sub /app") == ["sub/b.py"]


def test_named_notebooks_are_taken(folder: Path) -> None:
    assert taken(folder, "COPY train.ipynb a.py /app/") == ["a.py", "train.ipynb"]
    assert taken(folder, "COPY sub/*.ipynb /app/") == ["sub/other.ipynb"]
    assert taken(folder, "COPY sub /x", "COPY sub/other.ipynb /y") == [
        "sub/b.py",
        "sub/other.ipynb",
    ]
    assert taken(folder, "COPY train* /app/", ignored="sub") == ["train.ipynb"]
    (folder / "sub" / "b.py").unlink()
    assert taken(folder, "COPY sub /app") == ["sub/other.ipynb"]
    (folder / "sub" / "b.py").touch()
    every = ["a.py", "sub/b.py", "sub/other.ipynb", "train.ipynb"]
    assert taken(folder, "COPY . /app", ignored="!**/*.ipynb") == every
    assert taken(folder, "COPY . /app", ignored="!train.ipynb") == ["a.py", "sub/b.py", every[-1]]


def test_dockerignore_excludes_a_named_notebook(folder: Path) -> None:
    """Docker would not find it either."""
    assert taken(folder, "COPY a.py *.ipynb /app/", ignored="train.ipynb") == ["a.py"]


def test_a_folder_that_dockerignore_includes_does_not_include_its_notebooks(folder: Path) -> None:
    assert taken(folder, "COPY . /app", ignored="*\n!sub") == ["sub/b.py"]
    lines = "*\n!sub\n!sub/other.ipynb "
    assert taken(folder, "COPY . /app", ignored=lines) == ["sub/b.py", "sub/other.ipynb"]
    assert taken(folder, "COPY . /app", ignored="!**/*.ipynb\nsub") == ["a.py", "train.ipynb"]


def test_the_ignore_file_of_the_dockerfile_counts_alone(folder: Path) -> None:
    text = "FROM a\nCOPY . /app\n"
    (folder / ".dockerignore").write_text("*.py\n")
    (folder / "Dockerfile.dockerignore").write_text("sub\n")
    (folder / "D.dockerignore").write_text("a.py\n")

    def found(name: str) -> dict[str, object]:
        return {one.path: one.content for one in dockerfile_context.gather(folder, name, text)}

    ignores = {".dockerignore", "D.dockerignore", "Dockerfile.dockerignore"}
    assert set(found("Dockerfile")) == {"a.py"} | ignores
    assert set(found("D")) == {"sub/b.py"} | ignores
    assert set(found("E")) == {"sub/b.py"} | ignores
    # The executor reads these two, and finds the lines of the one that counts.
    for name, rules in ("Dockerfile", b"sub\n"), ("D", b"a.py\n"), ("E", b"*.py\n"):
        assert found(name)[".dockerignore"] == found(name)["Dockerfile.dockerignore"] == rules


def test_notebooks_that_are_left_out_are_named(folder: Path) -> None:
    said: list[str] = []
    text = "FROM a\nCOPY sub /a\nCOPY . /b\nCOPY train.ipynb /c\n"
    dockerfile_context.gather(folder, "Dockerfile", text, said.append)
    assert said == [
        "notebooks are left out: sub/other.ipynb; a line !sub/other.ipynb in .dockerignore "
        "takes one."
    ]


def test_each_file_is_opened_once(folder: Path) -> None:
    """A Dockerfile may copy thousands of files, and each cell looks at them."""
    opened: list[Path] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code is HeldFile.__init__.__code__:
            opened.append(frame.f_locals["path"])

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        dockerfile_context.gather(folder, "Dockerfile", "FROM a\nCOPY . /app\n")
    finally:
        sys.setprofile(before)
    assert sorted(one.name for one in opened) == ["a.py", "b.py"]
