"""The start of a supervisor: a cell's first line waits for its imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.local import removal, supervisor_start
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


def test_it_starts_before_the_folders_of_other_jobs_are_looked_at(
    jobs: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []

    def note(module: Any, name: str) -> None:
        real = getattr(module, name)

        def noted(*arguments: Any) -> Any:
            steps.append(name)
            return real(*arguments)

        monkeypatch.setattr(module, name, noted)

    note(supervisor_start, "start")
    note(removal, "clear_leftovers")
    assert jobs.run("%framework=python\npass\n").error is None
    assert steps == ["start", "clear_leftovers"]
