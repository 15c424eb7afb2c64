"""The tests' own way to share themselves out: groups stay on one worker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest_plugins = "pytester"

CONFTEST = """
from tests.conftest import (
    pytest_collection_finish, pytest_configure_node, pytest_xdist_make_scheduler,
)
"""
TESTS = """
import json, os, pathlib, pytest

def note(number):
    with pathlib.Path({file!r}).open("a") as file:
        file.write(json.dumps([number, os.environ["PYTEST_XDIST_WORKER"]]) + "\\n")

@pytest.mark.xdist_group("together")
@pytest.mark.parametrize("number", range(6))
def test_together(number):
    note(number)

@pytest.mark.parametrize("number", range(6, 12))
def test_anywhere(number):
    note(number)
"""


def test_a_group_stays_on_one_worker(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    ran = Path(pytester.path, "ran")
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_it=TESTS.format(file=str(ran)))
    done = pytester.runpytest_subprocess("-n", "2", "--dist", "loadgroup")
    done.assert_outcomes(passed=12)
    where = dict(json.loads(line) for line in ran.read_text().splitlines())
    assert len({where[number] for number in range(6)}) == 1
    assert set(where.values()) == {"gw0", "gw1"}
