"""The index that pip is set up for, which some tests need."""

from __future__ import annotations

import subprocess
import sys

import pytest

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def skip_unless_reached() -> None:
    """Skip the test if pip's index does not answer; the summary has the reason."""
    options = ("--dry-run", "--ignore-installed", "--no-deps", "--retries", "1", "--timeout", "20")
    done = subprocess.run([*PIP, "install", *options, "wheel"], capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        pytest.skip(f"pip's index cannot be reached: {last}")
