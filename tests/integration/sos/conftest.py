"""A SoS kernel for each test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psutil
import pytest


@contextlib.contextmanager
def running(place: Any) -> Iterator[Any]:
    """A SoS kernel (tests.helpers.sos.Sos); nothing that it started is left."""
    from tests.helpers.sos import Sos

    kernel = Sos(place)
    try:
        yield kernel
    finally:
        children = kernel.kernels()
        kernel.shutdown(now=False)
        for one in children:
            with contextlib.suppress(psutil.Error):
                one.kill()


@pytest.fixture
def sos(place: Any) -> Iterator[Any]:
    """A SoS kernel of the test's own, whose next cell is Ciao's."""
    with running(place) as kernel:
        kernel.ok("%use Ciao")
        yield kernel


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A SoS kernel for a file's tests: two kernels take seconds to start."""
    from tests.helpers.kernels import Place

    place = Place(tmp_path_factory.mktemp("sos"))
    with running(place) as kernel:
        yield kernel
    place.kill_all()
