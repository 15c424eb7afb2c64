"""A program that runs in a process which has begun with something else."""

from __future__ import annotations

import os
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ciao_kernel.frameworks import in_process


@pytest.mark.parametrize(
    ("flags", "first"),
    [
        (SimpleNamespace(safe_path=True), "before"),
        (SimpleNamespace(safe_path=False), "folder"),
        (SimpleNamespace(), "folder"),  # Python 3.10 and older
    ],
)
def test_a_program_finds_its_modules_in_every_python(
    tmp_path: Path, flags: SimpleNamespace, first: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text("seen = __name__, __file__\n")
    system = SimpleNamespace(flags=flags, path=["before", "x"], modules={}, argv=[])
    known: dict[str, Any] = {"sys": system, "os": os, "types": types}
    known |= {"program": str(program), "arguments": ["--x"]}
    exec(in_process.RUN, known)
    known["run_file"]()
    assert system.modules["__main__"].seen == ("__main__", str(program))
    assert system.path == [first if first == "before" else str(tmp_path), "x"]
    assert system.argv == [str(program), "--x"]


def test_a_program_has_no_annotations_of_the_future_but_its_own(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("def train(steps: int): pass\n")
    system = SimpleNamespace(flags=SimpleNamespace(safe_path=True), modules={}, argv=[])
    known: dict[str, Any] = {"sys": system, "os": os, "types": types}
    known |= {"program": str(program), "arguments": []}
    exec("from __future__ import annotations\n" + in_process.RUN, known)
    known["run_file"]()
    assert system.modules["__main__"].train.__annotations__ == {"steps": int}
