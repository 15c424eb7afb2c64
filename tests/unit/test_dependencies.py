"""What setup.cfg requires is what `make oldest` tries and `ciao doctor` looks for."""

from __future__ import annotations

import configparser
from pathlib import Path

from packaging.requirements import Requirement

from ciao_kernel.commands import doctor

ROOT = Path(__file__).parents[2]

ELSEWHERE = {"jupyter_client"}
"""Proven by tests/integration/test_neighbours.py."""


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
