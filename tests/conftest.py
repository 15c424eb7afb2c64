"""Fixtures for all tests: a user's place, real kernels in it, figures for the summary."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Any]:
    """A user's folders and environment; nothing of it runs when the test is over."""
    from tests.helpers.kernels import Place

    made = Place(tmp_path)
    yield made
    made.kill_all()


@pytest.fixture
def start_kernel(place: Any) -> Iterator[Callable[..., Any]]:
    """Starts real kernels (tests.helpers.kernels.Kernel) that end with the test."""
    from tests.helpers.kernels import Kernel

    with contextlib.ExitStack() as stack:

        def start(name: str = "ciao", env: dict[str, str] | None = None) -> Any:
            kernel = Kernel(place, name, env)
            stack.callback(kernel.shutdown, now=True)
            return kernel

        yield start


@pytest.fixture
def kernel(start_kernel: Callable[..., Any]) -> Any:
    """A real ciao kernel."""
    return start_kernel()


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Keeps a measured figure for the end of the run."""
    figures = request.config.stash.setdefault(_FIGURES, [])
    return lambda text: figures.append(f"{request.node.name}: {text}")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Show what was measured."""
    if figures := config.stash.get(_FIGURES, []):
        terminalreporter.section("figures")
        for line in figures:
            terminalreporter.write_line(line)
