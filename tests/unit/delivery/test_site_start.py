"""ciao's modules beside a program: the versions of Python that they need."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ciao_kernel.delivery import inspection, site_folder, site_start
from ciao_kernel.delivery.output import results
from ciao_kernel.delivery.packages import pth_files
from ciao_kernel.model import JobSpec, Source, SourceFile

PROGRAM = """\
import sys
version, folder = sys.argv[1:]
if version:
    sys.version_info = tuple(map(int, version.split(".")))
sys.path[:0] = [folder + "/ciao", folder + "/image"]
import sitecustomize
"""
"""Imports the folder's ``sitecustomize``, as the site of such a Python does."""


def test_the_start_is_understood_by_an_older_python() -> None:
    text = inspect.getsource(site_start)
    ast.parse(text, feature_version=(3, 7))
    assert "\nfrom __future__ import annotations" not in text  # Python 3.7


def test_the_reader_of_pth_files_is_understood_by_python_3_6() -> None:
    text = inspect.getsource(pth_files)
    tree = ast.parse(text, feature_version=(3, 6))
    imported = {one.module for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)}
    assert not imported  # Python 3.6 has no annotations in __future__


def test_the_parts_are_understood_by_python_3_8() -> None:
    source = inspection.with_files(Source(SourceFile("program.py", b"")), kept_for=60)
    source = results.with_files(source, JobSpec("python", outputs=("loss",)))
    texts = {file.path: (file.data or b"").decode() for file in source.own}
    assert texts.keys() >= site_folder.STARTED
    for path, text in texts.items():
        if path.endswith(".py"):
            ast.parse(text, path, feature_version=(3, 8))


@pytest.mark.parametrize(
    ("version", "started"),
    [("3.6.15", ""), ("3.7.16", ""), ("3.8.0", "the part\n"), ("", "the part\n")],
)
def test_an_older_python_starts_the_images_own_alone(
    tmp_path: Path, version: str, started: str
) -> None:
    texts = {
        "ciao/sitecustomize.py": inspect.getsource(site_start),
        f"ciao/{site_start.PARTS[0]}.py": "def start(folder):\n    print('the part')\n",
        "image/sitecustomize.py": "print('of the image')\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-S", "-c", PROGRAM, version, str(tmp_path)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == (f"{started}of the image\n", "")
