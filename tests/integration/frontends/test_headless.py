"""Front ends without a window: each runs a job cell, and its exit code is the job's."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.helpers.kernels import JOB, Place

ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
GOOD = JOB + "print('here', flush=True)"
BAD = JOB + "import time\nraise ValueError('no')"


def command(place: Place, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program of the tests' environment where the user works."""
    program = Path(sys.executable).with_name(words[0])
    return subprocess.run(
        [str(program), *words[1:]],
        cwd=place.work,
        env=place.env,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=150,
    )


def write(place: Place, *cells: str) -> Path:
    """Write a notebook into the user's folder."""
    made = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "ciao", "display_name": "Ciao", "language": "python"}}
    )
    made.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    path = place.work / "work.ipynb"
    nbformat.write(made, path)
    return path


Run = Callable[[Place], subprocess.CompletedProcess[str]]

# How each runs work.ipynb, and the file in which it leaves the outputs.
NOTEBOOKS: dict[str, tuple[tuple[str, ...], str]] = {
    "nbconvert": (
        ("jupyter-nbconvert", "--to=notebook", "--execute", "--output=out", "work.ipynb"),
        "out.ipynb",
    ),
    "execute": (("jupyter-execute", "--output=out.ipynb", "work.ipynb"), "out.ipynb"),
    "papermill": (("papermill", "--no-progress-bar", "work.ipynb", "out.ipynb"), "out.ipynb"),
}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook(place: Place, name: str) -> None:
    words, result = NOTEBOOKS[name]
    write(place, "seven = 7", GOOD, "print(6 * seven, _job.state)")
    done = command(place, *words)
    assert done.returncode == 0, done.stderr
    made = nbformat.read(place.work / result, as_version=4)
    nbformat.validate(made)
    _, job, plain = (cell.outputs for cell in made.cells)
    assert plain[0].text == "42 Succeeded\n"
    (table,) = [one for one in job if one.output_type == "display_data"]
    assert table.data["text/plain"].splitlines()[0].endswith(": Succeeded")
    text = "".join(one.text for one in job if one.output_type == "stream")
    assert sorted(ANSI.sub("", text).splitlines()) == ["[worker-0] here", "[worker-1] here"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_whose_job_fails(place: Place, name: str) -> None:
    words, _ = NOTEBOOKS[name]
    write(place, BAD, "open('went-on', 'w')")
    done = command(place, *words)
    assert done.returncode == 1
    said = ANSI.sub("", done.stderr)
    assert "JobFailed" in said
    assert "ValueError: no" in said
    assert "Cell, line 4, in <module>" in said
    assert not (place.work / "went-on").exists()
    place.wait_empty()  # a supervisor ends a moment after its job


RUN = """
from jupyter_client import runapp
runapp.OUTPUT_TIMEOUT = 120  # its ten seconds count for a whole cell
runapp.RunApp.launch_instance()
"""
"""What the program jupyter-run does."""


def test_jupyter_run(place: Place) -> None:
    (place.work / "run.py").write_text(RUN)
    words = ("python", "run.py", "--kernel=ciao")
    for code, status in ((GOOD, 0), (BAD, 1)):
        (place.work / "cell.py").write_text(code)
        from_file = command(place, *words, "cell.py")
        from_stdin = command(place, *words, stdin=code)
        for done in (from_file, from_stdin):
            said = ANSI.sub("", done.stdout + done.stderr)
            assert done.returncode == status, said
            assert ("[worker-0] here" in said) is (status == 0)
            assert ("ValueError: no" in said) is (status == 1)
            assert "object at 0x" not in said


def test_jupyter_console(place: Place) -> None:
    """It has no exit code for a cell; what it shows is plain text, and the next cell runs."""
    (place.work / "good.py").write_text(GOOD.replace("%", "#%"))
    (place.work / "bad.py").write_text(BAD.replace("%", "#%"))
    typed = "%ciao run good.py\n%ciao run bad.py\nprint(_job.state, 6 * 7)\nexit\n"
    done = command(place, "jupyter-console", "--kernel=ciao", "--simple-prompt", stdin=typed)
    said = ANSI.sub("", done.stdout + done.stderr)
    assert "[worker-0] here" in said, said
    assert "ValueError: no" in said
    assert "Failed 42" in said
    # It shows no updates: what it shows once must not become untrue.
    assert "a job of 2 replicas" in said
    assert "Pending" not in said
    assert "<div>" not in said


def test_every_output_has_plain_text(kernel: Any) -> None:
    for cell in (GOOD, BAD, "%ciao jobs", "%ciao describe x", "%ciao magics"):
        request = kernel.run(cell)
        shown = request.of("display_data", "update_display_data", "execute_result")
        for content in shown:
            assert content["data"]["text/plain"].strip(), cell
            assert "<div" not in content["data"]["text/plain"], cell
        assert shown or request.text or request.of("error"), cell
        if cell in (GOOD, BAD):
            assert [one for one in shown if "worker-1" in one["data"]["text/plain"]], "no table"
