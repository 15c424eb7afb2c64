"""The two tiers: what every change runs, and the slices of the rest.

A test without a marker belongs to the first tier. `second("gateway")` puts one into a slice of
the second, and `stands_for("gateway")` marks those of the first tier that represent a slice there.
`second("browser", only="notebook")` means the parameters whose id contains that word. In the
environment of the oldest packages (`--oldest`) the tests that stand for the slice `oldest` are the
first tier, and all others are that slice. Those of the slice `trials`, which try the same many
times, run with the newest packages alone.
`pytest --tiers=first,gateway` runs the first tier and that slice; without the option all run.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.suites import told
from tests.suites.slices import SLICES

FIRST = "first"
OLDEST = "oldest"
TRIALS = "trials"
MARKERS = (
    "second(slice, only=''): belongs to the second tier, to this slice (tests/suites/slices.py); "
    "only: just the parameters whose id contains that",
    "stands_for(slice): represents a slice of the second tier in the first",
)


def tier(item: pytest.Item) -> str:
    """Return the tier of a test: `first`, or the name of its slice.

    Raises:
        pytest.UsageError: it has two, or one that does not exist.
    """
    named = _named(item, "second")
    if len(named) > 1:
        raise pytest.UsageError(f"{item.nodeid} has two tiers: {', '.join(sorted(named))}")
    return next(iter(named), FIRST)


def tier_on_oldest(item: pytest.Item) -> str:
    """Return the tier of a test that runs with the oldest packages; `trials` does not run there."""
    if tier(item) == TRIALS:
        return TRIALS
    return FIRST if OLDEST in represented(item) else OLDEST


def represented(item: pytest.Item) -> set[str]:
    """Return the slices that a test of the first tier stands for.

    Raises:
        pytest.UsageError: it names a slice that does not exist, or is not of the first tier.
    """
    named = _named(item, "stands_for")
    if named and tier(item) != FIRST:
        if named == {OLDEST}:  # by its file's mark; the test itself was put into another slice
            return set()
        raise pytest.UsageError(f"{item.nodeid} stands for {named}, but is not of the first tier")
    return named


def _named(item: pytest.Item, marker: str) -> set[str]:
    found = set()
    for mark in item.iter_markers(marker):
        if len(mark.args) != 1 or mark.args[0] not in SLICES:
            known = ", ".join(SLICES)
            raise pytest.UsageError(f"{item.nodeid}: {marker}{mark.args!r}; slices are {known}")
        if mark.kwargs.get("only", "") in _parameters(item):
            found.add(str(mark.args[0]))
    return found


def _parameters(item: pytest.Item) -> str:
    """Return the id of a test's parameters, "" where it has none."""
    callspec = getattr(item, "callspec", None)
    return str(callspec.id) if callspec else ""


def read(option: str) -> set[str]:
    """Return the tiers that `--tiers` names; `all` means each, `rest` each but the first.

    Raises:
        pytest.UsageError: one of them does not exist.
    """
    words = [word for word in option.replace(",", " ").split() if word]
    tiers: set[str] = set()
    for word in words:
        if word == "all":
            tiers |= {FIRST, *SLICES}
        elif word == "rest":
            tiers |= set(SLICES)
        elif word == FIRST or word in SLICES:
            tiers.add(word)
        else:
            known = ", ".join([FIRST, *SLICES, "rest", "all"])
            raise pytest.UsageError(f"--tiers: {word!r} is none; there are {known}")
    return tiers


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the tiers that were asked for; the summary says what was left out."""
    option = config.getoption("--tiers")
    oldest = config.getoption("--oldest")
    wanted = read(option) if option else {FIRST, *SLICES}
    wanted -= {TRIALS} if oldest else set()
    tier_of = tier_on_oldest if oldest else tier
    left_out = Counter[str]()
    kept, gone = [], []
    for item in items:
        name = tier_of(item)
        if name in wanted:
            kept.append(item)
        else:
            gone.append(item)
            left_out[name] += 0 if oldest and name == TRIALS else 1
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = kept
    if left_out.total():
        told.left_out(config, _words(+left_out))


def _words(left_out: Counter[str]) -> str:
    parts = ", ".join(f"{name} {count}" for name, count in sorted(left_out.items()))
    slices = [name for name in sorted(left_out) if name in SLICES]
    how = f"make test-all SLICES='{' '.join(slices)}'" if slices else "make test"
    return f"{left_out.total()} tests of other tiers ({parts}); run them: {how}"
