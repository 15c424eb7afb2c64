"""Environments by scripts of source-to-image: any builder image, and our own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ciao_kernel.errors import SourceError
from tests.e2e.images.conftest import Maker

pytestmark = pytest.mark.timeout(120)
OURS = Path(__file__).parents[3] / "builders"
CELL = "import os, ours\nprint(ours.name, os.environ['MODE'], os.getuid(), {!r})"


def test_a_builder_image_makes_the_environment_once(maker: Maker) -> None:
    folder = maker.team.folder
    (folder / "ours.py").write_text("name = 'ours'\n")
    (folder / ".s2i").mkdir()
    (folder / ".s2i" / "environment").write_text('# for the program\nMODE=very "fast" $HOME\n')
    wish = f"%s2iBuilder={maker.cluster.image('s2i-python')}"

    first = maker.run(CELL.format("one"), wish)
    edited = maker.run(CELL.format("two"), wish)

    assert maker.lines(first) == ['ours very "fast" $HOME 1001 one']
    assert maker.lines(edited) == ['ours very "fast" $HOME 1001 two']
    assert "[build] " in first.display.notices
    assert "[build] " not in edited.display.notices
    assert maker.left() == []


def test_an_assemble_script_that_fails(maker: Maker) -> None:
    scripts = maker.team.folder / ".s2i" / "bin"
    scripts.mkdir(parents=True)
    (scripts / "assemble").write_text("#!/bin/sh\necho no such thing >&2\nexit 3\n")

    ended = maker.run("print(1)", f"%s2iBuilder={maker.cluster.image('s2i-python')}")

    assert isinstance(ended.error, SourceError)
    assert "`/tmp/scripts/assemble` ended with exit code 3" in ended.error.message
    assert "no such thing" in ended.error.hint
    assert maker.left() == []


@pytest.mark.parametrize("name", ["tensorflow", "pytorch"])
def test_our_own_builder_images(maker: Maker, name: str) -> None:
    """Built here from a small base: the scripts are what is tested."""
    folder = maker.team.folder
    shutil.copytree(OURS / name, folder, dirs_exist_ok=True)
    text = (folder / "Dockerfile").read_text()
    lines = [
        f"ARG BASE={maker.cluster.image('python')}" if line.startswith("ARG BASE=") else line
        for line in text.splitlines()
    ]
    (folder / "Dockerfile").write_text("\n".join(lines) + "\n")

    built = maker.run("import os\nprint(os.getcwd(), os.getuid())", "%dockerfile=Dockerfile")
    assert maker.lines(built) == ["/ciao 1001"]
    said = built.display.notices.splitlines()
    image = next(line for line in said if line.startswith("the environment is ")).split()[-1]

    (folder / "note.txt").write_text("from the source\n")
    cell = "import os\nprint(open('/opt/app-root/src/note.txt').read().strip(), os.getuid())"
    ran = maker.run(cell, f"%s2iBuilder={image}", "%files=note.txt")

    assert maker.lines(ran) == ["from the source 1001"]
