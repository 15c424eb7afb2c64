"""A real TensorBoard for tests, and what it answers."""

from __future__ import annotations

import importlib.util
import json
import time
import urllib.request
from typing import Any

import pytest

_WAIT = 120.0


needs_tensorboard = pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None,
    reason="needs tensorboard: pip install '.[test]'",
)


def scalars(address: str, *runs: str, step: int = 0) -> dict[str, Any]:
    """The tags of all runs by name, once TensorBoard shows some runs.

    Args:
        address: Where TensorBoard is.
        runs: The runs that have to be there.
        step: Newest step of the tag ``loss`` in each of them.
    """
    until = time.monotonic() + _WAIT
    while True:
        tags: dict[str, Any] = get(address, "tags")
        there = set(runs) <= set(tags) and all("loss" in tags[one] for one in runs)
        if there and all(newest(address, one) >= step for one in runs):
            return tags
        assert time.monotonic() < until, f"TensorBoard shows {tags}"
        time.sleep(0.2)


def newest(address: str, run: str) -> int:
    """The newest step of the tag ``loss`` of a run."""
    points = get(address, f"scalars?tag=loss&run={run}")
    return int(points[-1][1])


def get(address: str, what: str) -> Any:
    """An answer of the plugin for scalars."""
    with urllib.request.urlopen(f"{address}data/plugin/scalars/{what}", timeout=60) as answer:
        return json.load(answer)
