"""What setup.cfg requires is what `make oldest` tries and `ciao doctor` looks for."""

from __future__ import annotations

import configparser
import json
import re
import sys
from pathlib import Path

from packaging.requirements import Requirement

from ciao_kernel.commands import doctor
from ciao_kernel.session.failure.distributions import distribution

ROOT = Path(__file__).parents[2]

ELSEWHERE = {"jupyter_client"}
"""Proven by tests/integration/test_neighbours.py."""


BROUGHT = {
    "ciao_kernel",
    "tensorflow",
    "lightning",
    "mpi4py",
    "paddle",
    "tabulate",
    "transformers",
    "xgboost",
    "fsspec",
    "jax",
}
"""By ciao, its extras, %packages of the block, or the framework that the page is about."""
_IMPORT = re.compile(r"^[ \t]*(?:import|from)[ \t]+(\w+)", re.M)
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


def requirements() -> list[Requirement]:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lines = setup["options"]["install_requires"].splitlines()
    return [Requirement(line) for line in lines if line]


def test_each_lower_bound_is_tried() -> None:
    lines = (ROOT / "tests" / "oldest.txt").read_text().splitlines()
    pins = {
        one.name: one for line in lines if line[:1] not in ("", "#") for one in [Requirement(line)]
    }
    for one in requirements():
        lowest = next(part.version for part in one.specifier if part.operator == ">=")
        assert one.name in ELSEWHERE or pins[one.name].specifier.contains(lowest), one


def test_only_what_the_kernel_overrides_has_an_upper_bound() -> None:
    capped = [
        one.name for one in requirements() if any(part.operator == "<" for part in one.specifier)
    ]
    assert capped == ["ipykernel"]


def test_the_doctor_looks_for_all_of_them() -> None:
    assert sorted(doctor._NEEDED) == sorted(one.name for one in requirements())


def test_the_documented_install_has_what_notebooks_and_pages_import() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = setup["options.extras_require"]
    lines = "\n".join(extras[name] for name in ("tensorflow", "pytorch", "examples")).splitlines()
    given = {Requirement(line).name for line in lines if line and "%(" not in line}
    code = [
        text for page in (ROOT / "docs").glob("*.md") for text in _BLOCK.findall(page.read_text())
    ]
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(notebook.read_text())["cells"]
        code += ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    imported = {name for text in code for name in _IMPORT.findall(text)}
    packages = {distribution(name) for name in imported - BROUGHT - set(sys.stdlib_module_names)}
    assert "scikit-learn" in packages
    assert packages - {None} <= given  # modules of the examples themselves have no package
