"""Fixtures for all tests: a user's place, real kernels in it, figures for the summary."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import chromium, fixtures
from tests.browser.fixtures import browser, installed, open_lab, serve

__all__ = ["browser", "installed", "open_lab", "serve"]

_FIGURES = pytest.StashKey[list[str]]()
_LEFT_OUT = pytest.StashKey[str]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests with a browser out where there is none, which the summary says in a line.

    In continuous integration they stay, and fail: .ci/run installs one, or says that it cannot.
    """
    wanted = os.environ.get("CI") and os.environ.get("CIAO_TEST_BROWSER") != "none"
    left_out = [] if wanted else fixtures.without_browser(items)
    if left_out:
        config.stash[_LEFT_OUT] = f"{len(left_out)} tests that need a browser"
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """Add to a failure what its pages show."""
    report = yield
    if report.when == "call" and report.failed:
        report.sections.extend(fixtures.evidence(item))
    return report


@pytest.fixture(scope="session", autouse=True)
def no_cluster() -> Iterator[None]:
    """Keep the user's own cluster out of the tests; those that want one name it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", os.devnull)
        patch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        yield


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
    """Show what was measured, and say what was left out."""
    if figures := config.stash.get(_FIGURES, []):
        terminalreporter.section("figures")
        for line in figures:
            terminalreporter.write_line(line)
    if said := config.stash.get(_LEFT_OUT, None):
        terminalreporter.write_line(f"LEFT OUT {said}: {chromium.missing()}")
