"""Many cluster jobs in one kernel, and many presses of its stop button.

By hand, with more of both: ``CIAO_TEST_JOBS=1000 CIAO_TEST_PRESSES=100 pytest
tests/e2e/jobs/test_endurance.py``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import Team
from tests.e2e.jobs.test_kernel import environment
from tests.helpers import endurance

JOBS = int(os.environ.get("CIAO_TEST_JOBS", "50"))
PRESSES = int(os.environ.get("CIAO_TEST_PRESSES", "15"))
SEED = int(os.environ.get("CIAO_TEST_SEED", "0")) or random.randrange(1, 10**6)
SECONDS = 60 + 15 * max(JOBS, PRESSES)
"""Limit for pytest: a busy node needs many seconds for a pod."""


def gone(team: Team) -> None:
    until(lambda: not team.left(), "everything to be gone", 120)


@pytest.mark.second("trials")
@pytest.mark.timeout(SECONDS)
def test_many_jobs_in_one_kernel(
    team: Team, start_kernel: Callable[..., object], figure: Callable[[str], None]
) -> None:
    kernel = start_kernel(env=environment(team))
    figure(endurance.soak(kernel, JOBS, lambda: [*team.left(), *endurance.folders(team.storage)]))  # type: ignore[arg-type]


@pytest.mark.second("trials")
@pytest.mark.timeout(SECONDS)
def test_presses_of_the_stop_button_at_any_moment(
    team: Team, start_kernel: Callable[..., object], figure: Callable[[str], None]
) -> None:
    kernel = start_kernel(env=environment(team))
    figure(endurance.interrupts(kernel, PRESSES, SEED, lambda: gone(team)))  # type: ignore[arg-type]
