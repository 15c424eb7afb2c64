"""Which tests stay together when several workers run side by side.

Tests of a file that share a fixture stay on one worker, so that it is made once; any other test
may run anywhere. Long ones come first: nobody waits for one that began last.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.suites import known_seconds

_SHARED = ("class", "module", "package")
_NEEDS = {"browser": 20, "cluster": 8, "place": 4, "ciao": 4}
"""Seconds of a test that asks for a fixture, of those that are not marked slow."""


def form(items: list[pytest.Item]) -> None:
    """Name groups for `--dist loadgroup`, and put the long tests to the front.

    The order is the same in all workers, as it has to be.
    """
    for item in items:
        if not item.get_closest_marker("xdist_group") and (shared := _shared(item)):
            file = item.nodeid.split("::")[0]
            item.add_marker(pytest.mark.xdist_group(" ".join([file, *shared])))
    seconds: dict[str, float] = defaultdict(float)
    for item in items:
        seconds[of(item) or item.nodeid] += _seconds(item)
    # By the first test of a group where two take as long, so that a group stays in one piece.
    place = {name: number for number, name in enumerate(seconds)}

    def order(item: pytest.Item) -> tuple[float, int]:
        name = of(item) or item.nodeid
        return -seconds[name], place[name]

    items.sort(key=order)


def _seconds(item: pytest.Item) -> float:
    """Return what a test takes: as in an earlier run, or roughly, by what it needs."""
    if known := known_seconds.read().get(known_seconds.name(item.nodeid)):
        return known
    if item.get_closest_marker("slow"):
        return 30
    needed = getattr(item, "fixturenames", ())
    return next((long for name, long in _NEEDS.items() if name in needed), 0.5)


def of(item: pytest.Item) -> str:
    """Return the name of a test's group; "" is none."""
    mark = item.get_closest_marker("xdist_group")
    return str(mark.args[0]) if mark and mark.args else ""


def _shared(item: pytest.Item) -> list[str]:
    """Return the fixtures that it shares with other tests of its file, with their parameters."""
    info = getattr(item, "_fixtureinfo", None)
    fixtures = info.name2fixturedefs if info else {}
    names = sorted(n for n, defs in fixtures.items() if defs and defs[-1].scope in _SHARED)
    given = getattr(getattr(item, "callspec", None), "params", {})
    return [f"{name}={given[name]}" if name in given else name for name in names]
