"""Where a run's time goes: its slowest tests, and each folder's share.

Seconds are those of the clock, with a test's fixtures; CPU seconds are this process's and those of
its children that have ended meanwhile. What a cluster's parts and pods use is not in them.
"""

from __future__ import annotations

import resource
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import pytest

SLOWEST = 20
PROPERTY = "cpu"
_BEGAN = pytest.StashKey[float]()


@dataclass(frozen=True)
class Took:
    """What one test took.

    Args:
        test: its node id.
        seconds: by the clock.
        cpu: seconds of processors.
    """

    test: str
    seconds: float
    cpu: float

    @property
    def folder(self) -> str:
        """Its place in the table: tests/e2e/jobs, tests/unit."""
        parts = self.test.split("::")[0].split("/")[:-1]
        return "/".join(parts[:2] if parts[1:2] == ["unit"] else parts[:3])


def begin(item: pytest.Item) -> None:
    """Note what was used before a test."""
    item.stash[_BEGAN] = _used()


def end(item: pytest.Item) -> None:
    """Give a test's report what it has used since."""
    item.user_properties.append((PROPERTY, round(_used() - item.stash[_BEGAN], 2)))


def _used() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def of_reports(stats: dict[str, list[object]]) -> list[Took]:
    """Return what each test took, from all reports of a run."""
    seconds: dict[str, float] = defaultdict(float)
    cpu: dict[str, float] = {}
    for report in (one for reports in stats.values() for one in reports):
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid] += report.duration
            if report.when == "teardown":
                cpu[report.nodeid] = float(dict(report.user_properties).get(PROPERTY, 0))
    return [Took(test, took, cpu.get(test, 0)) for test, took in seconds.items()]


def slowest(tests: Iterable[Took], most: int = SLOWEST) -> list[str]:
    """Return a line for each of the slowest."""
    found = sorted(tests, key=lambda took: -took.seconds)[:most]
    return [f"{took.seconds:7.1f} s {took.cpu:7.1f} CPU s  {took.test}" for took in found]


def folders(tests: Iterable[Took]) -> list[tuple[str, int, float, float]]:
    """Return folder, tests, seconds and CPU seconds; the longest first."""
    by: dict[str, list[Took]] = defaultdict(list)
    for took in tests:
        by[took.folder].append(took)
    rows = [
        (folder, len(took), sum(t.seconds for t in took), sum(t.cpu for t in took))
        for folder, took in by.items()
    ]
    return sorted(rows, key=lambda row: -row[2])


def table(tests: Iterable[Took]) -> list[str]:
    """Return the folders' share as lines of Markdown."""
    lines = ["| folder | tests | seconds | CPU seconds |", "|---|---:|---:|---:|"]
    rows = folders(tests)
    total = ("all", *(sum(row[i] for row in rows) for i in (1, 2, 3)))
    lines += [f"| {f} | {n} | {s:.0f} | {c:.0f} |" for f, n, s, c in [*rows, total]]
    return lines


def write(reporter: pytest.TerminalReporter) -> None:
    """Write both into a run's summary."""
    tests = of_reports(reporter.stats)
    if len(tests) < SLOWEST:
        return
    reporter.section(f"the {SLOWEST} slowest tests")
    for line in slowest(tests):
        reporter.write_line(line)
    reporter.section("where the time goes")
    for line in table(tests):
        reporter.write_line(line)
