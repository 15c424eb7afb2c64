"""A kernel for what several tests of a file ask of another IPython."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.kernels import Kernel, Place


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A plain IPython kernel with the extension."""
    kernel = Kernel(Place(tmp_path_factory.mktemp("place")), "python3")
    assert kernel.run("%load_ext ciao_kernel").status == "ok"
    yield kernel
    kernel.shutdown(now=True)
    kernel.place.kill_all()
