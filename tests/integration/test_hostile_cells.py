"""No value of a directive causes an internal error, whatever path, pattern or name it is."""

from __future__ import annotations

import pytest

from tests.helpers import hostile


@pytest.mark.stands_for("docs")
def test_some_hostile_cells() -> None:
    ends = hostile.run(1500)
    assert {"DirectiveError", "SourceError", "EnvironmentFault", "parsed"} <= ends.keys()


@pytest.mark.second("docs")
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_hundred_thousand_hostile_cells(seed: int) -> None:
    ends = hostile.run(50_000, seed)
    print(f"seed {seed}: {dict(ends)}")
    assert min(ends[name] for name in ("DirectiveError", "SourceError", "EnvironmentFault")) > 500
