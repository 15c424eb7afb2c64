"""Fixtures of tests that need no process beside their own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# A busy machine makes examples slow; a test must not fail for that.
hypothesis.settings.register_profile("ciao", deadline=None)
hypothesis.settings.load_profile("ciao")


@pytest.fixture
def readable() -> Iterator[Path]:
    """A folder to which no other folder's rights bar the way, as pytest's own do."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
