"""A place for real local jobs, and the proof that nothing of it runs on."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ciao_kernel.backends.local import store
from tests.helpers.jobs import MARK, PATIENCE, Place


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Runs cells; fails the test if a process is left when it is over."""
    mark = secrets.token_hex(8)
    monkeypatch.setenv(MARK, mark)
    # A supervisor on a busy machine has the time to say how its job ended.
    monkeypatch.setattr(store, "_LAST_WORDS", 60.0)
    place = Place(tmp_path, mark)
    yield place
    until = time.monotonic() + PATIENCE
    while place.alive() and time.monotonic() < until:
        time.sleep(0.02)
    left = place.commands()
    place.kill_all()
    assert not left
