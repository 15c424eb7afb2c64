"""Environments by scripts of source-to-image: any builder image, and our own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ciao_kernel.errors import SourceError
from tests.e2e.images.conftest import Maker
from tests.helpers.packages import serving

OURS = Path(__file__).parents[3] / "builders"
CELL = "import os, ours\nprint(ours.name, os.environ['MODE'], os.getuid(), {!r})"


@pytest.mark.second("builders")
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


@pytest.mark.second("builders")
def test_an_assemble_script_that_fails(maker: Maker) -> None:
    scripts = maker.team.folder / ".s2i" / "bin"
    scripts.mkdir(parents=True)
    (scripts / "assemble").write_text("#!/bin/sh\necho no such thing >&2\nexit 3\n")

    ended = maker.run("print(1)", f"%s2iBuilder={maker.cluster.image('s2i-python')}")

    assert isinstance(ended.error, SourceError)
    assert "`/tmp/scripts/assemble` ended with exit code 3" in ended.error.message
    assert "no such thing" in ended.error.hint
    assert maker.left() == []


SCRIPTS = """
import io, lib, os, shutil, subprocess, sys, tarfile

def script(name):
    own = {"capture_output": True, "check": True, "cwd": "/opt/app-root/src"}
    return subprocess.run([f"/usr/libexec/s2i/{name}"], **own).stdout

print(lib.version, open("/opt/app-root/src/note.txt").read().strip(), os.getuid())
print(script("usage").decode().splitlines()[0])
print(script("run").decode().strip())
with tarfile.open(fileobj=io.BytesIO(script("save-artifacts"))) as kept:
    shutil.rmtree("/opt/app-root/lib")
    kept.extractall("/tmp/artifacts", filter="data")
script("assemble")
subprocess.run([sys.executable, "-c", "import lib; print(lib.version, 'again')"], check=True)
"""


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("tensorflow", "TensorFlow"),
        pytest.param("pytorch", "PyTorch", marks=pytest.mark.second("builders")),
    ],
)
def test_our_own_builder_images(maker: Maker, name: str, title: str) -> None:
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
    (folder / "app.py").write_text("print('the program')\n")
    host = maker.cluster.at.host_address
    with serving(host) as index:
        index.add("lib", "1.5")
        setting = f"[global]\nindex-url = {index.url}\ntrusted-host = {host}\n"
        maker.secret("index", **{"pip.conf": setting})
        wishes = (f"%s2iBuilder={image}", "%packages=lib", "%pipSecret=index")
        ran = maker.run(SCRIPTS, *wishes, "%files=note.txt app.py")

    assert maker.lines(ran) == [
        "1.5 from the source 1001",
        f"This is a builder image of source-to-image with {title}.",
        "the program",
        "1.5 again",
    ]


def test_our_builder_images_have_the_same_scripts() -> None:
    for script in ("assemble", "run", "save-artifacts"):
        one, other = (OURS / name / "s2i" / "bin" / script for name in ("tensorflow", "pytorch"))
        assert one.read_bytes() == other.read_bytes()
