"""What is made once for all workers of a run that pytest-xdist shares out."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def folder(factory: pytest.TempPathFactory) -> Path:
    """The temporary folder of the whole run, which all of its workers see."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that the first worker to need it fills, while the others wait for it.

    Args:
        factory: pytest's ``tmp_path_factory``.
        name: Of the folder; the same for the same content.
        make: Fills the folder, which is there and empty. Where it fails, the next one tries anew.
    """
    shared = folder(factory)
    done = shared / f"{name}.done"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = shared / name
        if not done.exists():
            tries = len(list(shared.glob(f"{name}.failed-*")))
            if made.exists():
                made.rename(shared / f"{name}.failed-{tries}")
            made.mkdir()
            make(made)
            done.touch()
    return made
