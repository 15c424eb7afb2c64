"""What a failed test's report is given of the cluster, before the test's namespace goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.cluster.errors import ClusterError


def add(report: pytest.TestReport, ask: Callable[[], Iterable[tuple[str, str]]]) -> None:
    """Add what is asked for, as far as it is to be had.

    The test's time may be over in the middle of it. What is raised here would end the whole run,
    with all workers.
    """
    try:
        report.sections.extend(ask())
    except (ClusterError, pytest.fail.Exception) as error:
        report.sections.append(("of the cluster there is no more", str(error)))
