"""The tests' own way to share themselves out: groups stay together, and a hang ends one test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest_plugins = "pytester"

CONFTEST = """
from tests.conftest import (
    pytest_collection_finish, pytest_configure_node, pytest_runtest_setup, pytest_runtest_teardown,
    pytest_xdist_make_scheduler,
)
from tests.suites import hangs

def pytest_configure(config):
    hangs.prepare(config)
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


HANGS = """
import os, pytest, time

@pytest.fixture
def endless():
    yield
    time.sleep(1000)

@pytest.mark.parametrize("number", range(4))
def test_before(number):
    time.sleep(0.2)

{group}
def test_it(endless):
    assert os.getpid() == 1

{group}
@pytest.mark.parametrize("number", range({after}))
def test_after(number):
    pass
"""


@pytest.mark.second("rig")
@pytest.mark.parametrize("group", ["", '@pytest.mark.xdist_group("together")'])
@pytest.mark.parametrize("after", [1, 2, 9])
def test_a_hang_of_a_fixture_ends_its_worker_and_nothing_else(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, after: int, group: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    pytester.makeconftest(CONFTEST + "hangs.LIMIT = 1.0\n")
    pytester.makepyfile(test_it=HANGS.format(after=after, group=group))
    done = pytester.runpytest_subprocess("-n", "2", "--dist", "loadgroup", timeout=100)
    done.assert_outcomes(passed=4 + after, failed=2)  # the test itself, and the worker's end
    done.stdout.fnmatch_lines(["test_it.py::test_it: assert * == 1", "*crashed while running*"])
    done.stderr.fnmatch_lines(["*in endless"])
