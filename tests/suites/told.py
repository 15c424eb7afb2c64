"""What a run tells at its end: measured figures, and what was left out with the reason.

With pytest-xdist tests are collected and run in workers, and the summary is the controller's: each
worker sends what it has to tell when it ends.
"""

from __future__ import annotations

from typing import Any

import pytest

_FIGURES = pytest.StashKey[list[str]]()
_LEFT_OUT = pytest.StashKey[list[str]]()
_KEYS = {"figures": _FIGURES, "left_out": _LEFT_OUT}


def figure(config: pytest.Config, text: str) -> None:
    """Keep a measured figure for the summary."""
    _add(config, _FIGURES, text)


def left_out(config: pytest.Config, text: str) -> None:
    """Keep a sentence about tests that do not run, and how to run them."""
    _add(config, _LEFT_OUT, text)


def _add(config: pytest.Config, key: pytest.StashKey[list[str]], text: str) -> None:
    lines = config.stash.setdefault(key, [])
    if text not in lines:  # each worker collects all tests and leaves the same ones out
        lines.append(text)


def send(config: pytest.Config) -> None:
    """Hand over to the controller, if this is a worker."""
    output: dict[str, Any] | None = getattr(config, "workeroutput", None)
    if output is not None:
        output["told"] = {name: config.stash.get(key, []) for name, key in _KEYS.items()}


def receive(config: pytest.Config, output: dict[str, Any]) -> None:
    """Take what a worker had to tell."""
    for name, lines in output.get("told", {}).items():
        for line in lines:
            _add(config, _KEYS[name], line)


def write(reporter: pytest.TerminalReporter) -> None:
    """Write both parts of the summary."""
    if figures := reporter.config.stash.get(_FIGURES, []):
        reporter.section("figures")
        for line in figures:
            reporter.write_line(line)
    for line in reporter.config.stash.get(_LEFT_OUT, []):
        reporter.write_line(f"LEFT OUT {line}")
