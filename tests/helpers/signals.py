"""Waits until a process is ready for a signal."""

from __future__ import annotations

import time
from pathlib import Path

_WAIT = 60.0


def wait_until_caught(pid: int, number: int) -> None:
    """Wait until a process, whose start may take a while, has a handler for a signal."""
    until = time.monotonic() + _WAIT
    while not _is_caught(pid, number):
        assert time.monotonic() < until, f"process {pid} has no handler for signal {number}"
        time.sleep(0.01)


def _is_caught(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal (proc(5), SigCgt)."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    caught = next((line.split()[1] for line in lines if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)
