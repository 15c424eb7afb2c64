"""Every test has one tier, and every slice of the second a representative in the first."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.suites.slices import SLICES

ROOT = Path(__file__).parents[3]
CENSUS = """
import json, os
from tests.suites import tiers

def pytest_collection_finish(session):
    found = {i.nodeid: [tiers.tier(i), sorted(tiers.represented(i))] for i in session.items}
    with open(os.environ["CENSUS"], "w") as file:
        json.dump(found, file)
"""


def test_every_test_has_one_tier_and_every_slice_a_representative(tmp_path: Path) -> None:
    (tmp_path / "census.py").write_text(CENSUS)
    code = (
        f"import os, sys, pytest; os.environ['CENSUS'] = {str(tmp_path / 'found')!r}\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "sys.exit(pytest.main(['tests', '--collect-only', '-q', '-p', 'census']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    found = json.loads((tmp_path / "found").read_text())
    assert {tier for tier, _ in found.values()} == {"first", *SLICES}
    assert {name for _, names in found.values() for name in names} == set(SLICES)
