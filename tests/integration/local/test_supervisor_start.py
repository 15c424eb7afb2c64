"""The start of a supervisor: a cell's first line waits for its imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
