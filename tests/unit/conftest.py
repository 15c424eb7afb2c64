"""Fixtures of tests that need no process beside their own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def readable() -> Iterator[Path]:
    """A folder to which no other folder's rights bar the way, as pytest's own do."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
