"""The import path of a kernel: files of the notebook's folder, and modules of Python."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.kernels import ROOT, Kernel, Place

SHADOWS = ("zmq", "random", "queue", "ipykernel", "tornado", "pathlib", "__future__", "posixpath")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    for name in SHADOWS:
        file = place.work / f"{name}.py"
        file.write_text("open(__file__ + '.imported', 'w').close()\n")
    (place.work / "helper.py").write_text("VALUE = 41\n")
    yield place
    place.kill_all()


@pytest.mark.parametrize("linked", [False, True], ids=["folder", "link"])
def test_the_start_imports_no_file_of_the_notebooks_folder(place: Place, linked: bool) -> None:
    if linked:
        (place.folder / "link").symlink_to(place.work)
        place.work = place.folder / "link"
    kernel = Kernel(place)
    try:
        assert "42" in kernel.run("import helper, random\nprint(helper.VALUE + 1)").text
        assert "True" in kernel.run("print(hasattr(random, 'shuffle'))").text
    finally:
        kernel.shutdown(now=True)
    assert [file.name for file in place.work.glob("*.imported")] == []


def test_not_even_with_the_modules_alone_that_are_built_into_python(place: Place) -> None:
    # The .pth files of an environment may import more, as those of editable installs do.
    done = subprocess.run(
        [sys.executable, "-S", "-m", "ciao_kernel"],
        cwd=place.work,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named 'ipykernel'" in done.stderr
    assert [file.name for file in place.work.glob("*.imported")] == []


def test_a_folder_of_the_variable_stays(place: Place) -> None:
    # With PYTHONSAFEPATH, Python adds no folder, and the first one is the user's own.
    own = {"PYTHONPATH": f"{place.work}{os.pathsep}{ROOT}", "PYTHONSAFEPATH": "1"}
    for file in place.work.glob("*.py"):
        file.unlink()
    kernel = Kernel(place, env=own)
    try:
        assert repr(str(place.work)) in kernel.run("import sys\nprint(sys.path)").text
    finally:
        kernel.shutdown(now=True)
