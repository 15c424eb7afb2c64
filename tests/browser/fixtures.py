"""Fixtures of tests with a real browser; tests/conftest.py gives them to every test.

A test that asks for ``browser`` is left out where there is no Chromium, which the summary says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.lab import Lab
    from tests.browser.server import Server
    from tests.helpers.installed import Environment

__all__ = ["browser", "installed", "open_lab", "serve"]

SHOWN = pytest.StashKey[list["Lab"]]()
"""The pages of a test, whose text its failure shows."""


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment in which pip has installed ciao's wheel; the same for all workers."""
    from tests.helpers.installed import Environment, build
    from tests.helpers.once import once

    def make(folder: Path) -> None:
        (wheel,) = build(folder, "--wheel").glob("*.whl")
        Environment(folder / "env").install(wheel)

    return Environment(once(tmp_path_factory, "installed", make) / "env")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real Chromium; the same for all tests of a file.

    Not longer: while it is open, Playwright's loop runs in this thread, and asyncio.run cannot.
    """
    with chromium.started() as running:
        yield running


@pytest.fixture(scope="session")
def serve(
    installed: Environment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Server]]:
    """Starts servers: ``serve("lab")``, the same one when asked again in the same words."""
    from tests.browser.server import serving
    from tests.helpers.kernels import Place

    servers: dict[str, Server] = {}
    with contextlib.ExitStack() as stack:

        def start(home: str = "lab", **options: object) -> Server:
            key = repr((home, options))
            if key not in servers:
                place = Place(tmp_path_factory.mktemp(home))
                stack.callback(place.kill_all)
                servers[key] = stack.enter_context(serving(place, installed, home, **options))
            return servers[key]

        yield start


@pytest.fixture
def open_lab(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Callable[..., Lab]]:
    """Opens notebooks (:meth:`Lab.new`) on a server; their kernels end with the test."""
    from tests.browser.lab import Lab

    with contextlib.ExitStack() as stack:

        def start(server: Server, cells: list[str], kernel: str = "ciao") -> Lab:
            number = len(list(server.place.work.glob("*.ipynb")))
            lab = Lab(browser, server, server.write(f"n{number}.ipynb", cells, kernel).name)
            stack.callback(lab.close)
            request.node.stash[SHOWN].append(lab)
            lab.wait_idle()
            return lab

        request.node.stash[SHOWN] = []
        yield start


def without_browser(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests that cannot run here, because there is no browser."""
    if not chromium.missing():
        return []
    return [item for item in items if "browser" in getattr(item, "fixturenames", ())]


def evidence(item: pytest.Item) -> Iterator[tuple[str, str]]:
    """What a failed test's pages show."""
    for lab in item.stash.get(SHOWN, []):
        with contextlib.suppress(Exception):
            yield f"{lab.notebook} in {lab.server.home}, kernel {lab.status}", lab.seen()
