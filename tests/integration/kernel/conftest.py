"""Kernels that several tests of a file ask for: another IPython, and ciao's own."""

from __future__ import annotations

import shutil
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


@pytest.fixture(scope="module")
def kernel_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A ciao kernel for all tests of a file that ask for `shared`."""
    kernel = Kernel(Place(tmp_path_factory.mktemp("place")))
    yield kernel
    kernel.shutdown(now=True)
    kernel.place.kill_all()


@pytest.fixture
def shared(kernel_of_module: Kernel) -> Iterator[Kernel]:
    """The file's kernel, for tests that leave no name or setting behind that another one needs.

    No job of another test is there: names of jobs may be equal.
    """
    kernel = kernel_of_module
    kernel.take(0.1)
    kernel.requests.clear()
    kernel.strangers.clear()
    yield kernel
    kernel.place.kill_all()
    shutil.rmtree(kernel.place.storage / "jobs", ignore_errors=True)
