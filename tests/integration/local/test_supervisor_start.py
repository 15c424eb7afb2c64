"""The start of a supervisor: a cell's first line waits for its imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.local import environment, removal, supervisor_start
from tests.helpers.jobs import Place

ROOT = Path(__file__).parents[3]
SLOW = {"typing", "dataclasses", "asyncio", "logging", "ctypes", "tempfile", "importlib"}


def test_a_supervisor_imports_only_what_is_fast() -> None:
    code = (
        f"import sys; sys.path.append({str(ROOT)!r})\n"
        "import ciao_kernel.backends.local.supervisor\n"
        "print(*sys.modules)\n"
    )
    command = [sys.executable, "-I", "-S", "-c", code]
    ran = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True)
    imported = {*ran.stdout.split()}
    assert "ciao_kernel.backends.local.supervisor" in imported
    assert not imported & SLOW


@pytest.mark.parametrize(
    ("directive", "expected"),
    [
        ("", ["start", "clear_leftovers"]),
        # They may take the space that the packages need.
        ("%packages=lib", ["clear_leftovers", "prepare", "start"]),
    ],
)
def test_it_starts_before_the_folders_of_other_jobs_are_looked_at(
    directive: str, expected: list[str], jobs: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []

    async def prepare(python: str, *arguments: Any) -> str:
        return python

    def note(module: Any, name: str) -> None:
        real = getattr(module, name)

        def noted(*arguments: Any) -> Any:
            steps.append(name)
            return real(*arguments)

        monkeypatch.setattr(module, name, noted)

    note(supervisor_start, "start")
    note(removal, "clear_leftovers")
    monkeypatch.setattr(environment, "prepare", prepare)
    note(environment, "prepare")
    assert jobs.run(f"%framework=python\n{directive}\npass\n").error is None
    assert steps == expected
