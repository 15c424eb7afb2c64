"""Many jobs in one kernel on a cluster of the loopback, and many presses of its stop button.

By hand, with more of both: ``CIAO_TEST_JOBS=1000 CIAO_TEST_PRESSES=100 pytest
tests/integration/kube/test_endurance.py``.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster.waiting import until
from tests.helpers import endurance
from tests.helpers.api_pods import Pod
from tests.helpers.api_server import ApiServer
from tests.helpers.kernels import IN_PODS, Kernel, Place

JOBS = int(os.environ.get("CIAO_TEST_JOBS", "50"))
PRESSES = int(os.environ.get("CIAO_TEST_PRESSES", "15"))
SEED = int(os.environ.get("CIAO_TEST_SEED", "0")) or random.randrange(1, 10**6)
SECONDS = 60 + 15 * max(JOBS, PRESSES)
"""Limit for pytest."""


@pytest.fixture
def server(place: Place) -> Iterator[ApiServer]:
    """A cluster whose programs are the two of `endurance`."""

    async def program(pod: Pod) -> int:
        pod.print("ready")
        if "sleep" in pod.source:
            await asyncio.sleep(600)
        return 0

    with ApiServer(place.folder, program) as made:
        yield made


@pytest.fixture
def cluster_kernel(server: ApiServer, start_kernel: Callable[..., Any]) -> Kernel:
    env = {"KUBECONFIG": str(server.kubeconfig), "CIAO_IMAGES": "tensorflow=image", **IN_PODS}
    found = start_kernel(env=env)
    assert isinstance(found, Kernel)
    return found


def left(server: ApiServer, place: Place) -> list[object]:
    return [*server.left(), *endurance.folders(place.storage)]


@pytest.mark.stands_for("trials")
def test_a_few_jobs_in_one_kernel(
    cluster_kernel: Kernel, server: ApiServer, place: Place, figure: Callable[[str], None]
) -> None:
    figure(endurance.soak(cluster_kernel, 8, lambda: left(server, place)))


@pytest.mark.second("trials")
@pytest.mark.timeout(SECONDS)
def test_many_jobs_in_one_kernel(
    cluster_kernel: Kernel, server: ApiServer, place: Place, figure: Callable[[str], None]
) -> None:
    figure(endurance.soak(cluster_kernel, JOBS, lambda: left(server, place)))


@pytest.mark.second("trials")
@pytest.mark.timeout(SECONDS)
def test_presses_of_the_stop_button_at_any_moment(
    cluster_kernel: Kernel, server: ApiServer, figure: Callable[[str], None]
) -> None:
    def gone() -> None:
        until(lambda: not server.left(), "everything to be gone", 60)

    figure(endurance.interrupts(cluster_kernel, PRESSES, SEED, gone))
