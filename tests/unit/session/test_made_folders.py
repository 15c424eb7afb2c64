"""Files that are where a job makes a folder: refused before anything is created."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.delivery.input.program import Program
from ciao_kernel.errors import SpecError
from ciao_kernel.model import Owner
from ciao_kernel.plugins import Plan
from ciao_kernel.session import planning
from ciao_kernel.session.plugin_registry import Registry

REGISTRY = Registry(third_party={})


def plan_of(folder: Path, header: str, code: str = "print()\n") -> Plan:
    parsed = planning.parse_cell(f"%framework=python\n{header}{code}", REGISTRY, Settings())
    program = Program(folder)
    return asyncio.run(planning.make_plan(parsed, program, REGISTRY, Owner("me"), Settings(), None))


@pytest.mark.parametrize(
    ("file", "header", "directive", "message"),
    [
        ("output", "%files=output\n%output\n", "output", "the file output where %output"),
        (
            "output",
            "%files=output\n%output=loss output/\n",
            "output",
            "the file output where %output",
        ),
        (
            "logs",
            "%files=logs\n%tensorboard\n",
            "tensorboard",
            "the file logs where %tensorboard",
        ),
        (
            "runs",
            "%files=runs\n%tensorboard=runs/1\n",
            "tensorboard",
            "the file runs where %tensorboard",
        ),
    ],
)
def test_a_file_in_the_place_of_a_folder_is_refused(
    tmp_path: Path, file: str, header: str, directive: str, message: str
) -> None:
    (tmp_path / file).write_text("1")
    with pytest.raises(SpecError) as caught:
        plan_of(tmp_path, header)
    assert caught.value.message == f"%files has {message} makes a folder."
    assert caught.value.directive == directive
    assert caught.value.hint.startswith("Rename the file")


def test_a_module_in_the_place_of_a_folder_is_one_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("")
    with pytest.raises(SpecError, match=r"the program has the file helper\.py where %tensorboard"):
        plan_of(tmp_path, "%tensorboard=helper.py\n", "import helper\n")


def test_files_inside_such_a_folder_or_beside_it_stay(tmp_path: Path) -> None:
    for name in ("output", "logs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "old.txt").write_text("1")
    (tmp_path / "output.txt").write_text("1")
    header = "%files=output/ logs/ output.txt\n%output\n%tensorboard\n"
    assert len(plan_of(tmp_path, header).source.files) == 3
    (tmp_path / "runs").write_text("1")
    assert plan_of(tmp_path, "%files=runs\n%output=runs\n").source.files[0].path == "runs"
