"""Every slice of the second tier has tests, and a representative in the first.

And the tests that run alone are where the Makefile looks for them.

That a test has one tier alone is checked by each run that collects it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.suites.slices import SLICES

ROOT = Path(__file__).parents[3]
LONE = re.compile(r"\b(alone|breaks_cluster)\b")
"""What the Makefile looks for in the files of those tests."""
SUITES = ["tests/integration", "tests/browser", "tests/e2e"]
CENSUS = """
import json, os
from tests.suites import tiers

def pytest_collection_finish(session):
    found = {
        one.nodeid: [
            tiers.tier(one),
            sorted(tiers.represented(one)),
            any(one.get_closest_marker(name) for name in ("alone", "breaks_cluster")),
        ]
        for one in session.items
    }
    with open(os.environ["CENSUS"], "w") as file:
        json.dump(found, file)
"""


@pytest.mark.second("rig")
def test_every_slice_has_tests_and_a_representative(tmp_path: Path) -> None:
    (tmp_path / "census.py").write_text(CENSUS)
    code = (
        f"import os, sys, pytest; os.environ['CENSUS'] = {str(tmp_path / 'found')!r}\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        f"sys.exit(pytest.main([*{SUITES}, '--collect-only', '-q', '-p', 'census']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    found = json.loads((tmp_path / "found").read_text())
    # Of the slice `oldest` are all tests that do not stand for it, in another environment.
    assert {tier for tier, _, _ in found.values()} | {"oldest"} == {"first", *SLICES}
    assert {name for _, names, _ in found.values() for name in names} == set(SLICES)
    lone = {ROOT / name.partition("::")[0] for name, (_, _, alone) in found.items() if alone}
    assert [file for file in lone if not LONE.search(file.read_text())] == []
