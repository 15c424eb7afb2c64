"""Programs that run in a process that has begun with something else, as Python would run them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ciao_kernel.frameworks import in_process

_PROGRAM = f"""\
import atexit, os, sys, types
program, *arguments = sys.argv[1:]
own = sys.modules["__main__"]
{in_process.RUN}
def run():
    run_module(*arguments) if program == "-m" else run_file()
atexit.register(lambda: print("at the end", vars(sys.modules["__main__"]).get("found")))
run()
"""
_CODE = """
import sys
found = __name__, __spec__ and __spec__.name, sys.argv[1:], __file__ == sys.argv[0]
{}
"""


def run(folder: Path, *words: str) -> str:
    command = [sys.executable, "-c", _PROGRAM, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("end", ["", "sys.exit()"])
@pytest.mark.parametrize(
    ("file", "words", "name"),
    [
        ("pkg/train.py", ("-m", "pkg.train"), "pkg.train"),
        ("pkg/__main__.py", ("-m", "pkg"), "pkg.__main__"),
        ("pkg/train.py", ("pkg/train.py",), None),
    ],
)
def test_values_of_the_program_are_there_until_the_process_ends(
    tmp_path: Path, file: str, words: tuple[str, ...], name: str | None, end: str
) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / file).write_text(
        _CODE.format(end).replace("__spec__ and", "globals().get('__spec__') and")
    )
    expected = ("__main__", name, ["--x"], True)
    assert run(tmp_path, *words, "--x") == f"at the end {expected}\n"


def test_a_module_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    assert "there is no module pkg.absent" in run(tmp_path, "-m", "pkg.absent")
