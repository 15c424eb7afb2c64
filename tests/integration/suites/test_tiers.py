"""Every slice of the second tier has tests, and a representative in the first.

That a test has one tier alone is checked by each run that collects it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.suites.slices import SLICES

ROOT = Path(__file__).parents[3]
SUITES = ["tests/integration", "tests/browser", "tests/e2e"]
CENSUS = """
import json, os
from tests.suites import tiers

def pytest_collection_finish(session):
    found = {i.nodeid: [tiers.tier(i), sorted(tiers.represented(i))] for i in session.items}
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
    assert {tier for tier, _ in found.values()} | {"oldest"} == {"first", *SLICES}
    assert {name for _, names in found.values() for name in names} == set(SLICES)
