"""Both front ends, one after the other, for tests that hold in each; ports of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.server import Server
from tests.helpers.loopback import pytest_runtest_protocol

__all__ = ["home", "pytest_runtest_protocol"]


@pytest.fixture(scope="session", params=["lab", "notebook"])
def home(request: pytest.FixtureRequest, serve: Callable[..., Server]) -> Server:
    """JupyterLab, then Notebook."""
    return serve(request.param)
