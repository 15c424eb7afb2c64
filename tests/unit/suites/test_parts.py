"""Each file of tests/unit is in one part, and the parts take about as long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suites import known_seconds, parts

FOLDER = parts.ROOT / "tests" / "unit"


@pytest.mark.parametrize("count", [1, 2, 6])
def test_each_file_is_in_one_part(count: int) -> None:
    chosen = [parts.choose(FOLDER.rglob("test_*.py"), f"{n}/{count}") for n in range(1, count + 1)]
    assert sum(len(files) for files in chosen) == len(frozenset().union(*chosen))
    assert frozenset().union(*chosen) == frozenset(FOLDER.rglob("test_*.py"))


def test_long_files_are_spread_and_the_order_of_a_folder_does_not_matter() -> None:
    files = sorted(FOLDER.rglob("test_*.py"))
    known = known_seconds.read()
    loads = []
    for number in (1, 2, 3):
        chosen = parts.choose(files, f"{number}/3")
        assert chosen == parts.choose(reversed(files), f"{number}/3")
        loads.append(sum(known.get(str(file.relative_to(parts.ROOT)), 0.5) for file in chosen))
    assert max(loads) - min(loads) <= max(known.values())
    assert min(loads) > 0


def test_only_test_files_of_the_folder_are_left_out() -> None:
    here = Path(__file__)
    left_out = [parts.leaves_out(here, FOLDER, part) for part in ("1/2", "2/2")]
    assert sorted(left_out) == [False, True]
    for other in (here.with_name("conftest.py"), parts.ROOT / "tests" / "e2e" / "test_x.py"):
        assert not parts.leaves_out(other, FOLDER, "1/2")


@pytest.mark.parametrize("part", ["0/2", "3/2"])
def test_a_part_that_is_none(part: str) -> None:
    with pytest.raises(ValueError, match="the parts are 1 to 2"):
        parts.choose((), part)
