"""Both front ends, one after the other, for tests that hold in each; ports of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.server import Server

HOMES = [
    pytest.param(name, marks=pytest.mark.xdist_group(f"tests/browser {name}"))
    for name in ("lab", "notebook")
]
"""A group each, since a file with one browser for both would be the longest of all."""


@pytest.fixture(scope="session", params=HOMES)
def home(request: pytest.FixtureRequest, serve: Callable[..., Server]) -> Server:
    """JupyterLab, then Notebook."""
    return serve(request.param)
