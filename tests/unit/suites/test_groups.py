"""Tests that share a fixture stay together, and long ones come first."""

from __future__ import annotations

import pytest

pytest_plugins = "pytester"

CONFTEST = """
from tests.suites import groups

def pytest_configure(config):
    for name in ("slow", "xdist_group"):
        config.addinivalue_line("markers", name)

def pytest_collection_modifyitems(items):
    groups.form(items)

def pytest_collection_finish(session):
    for item in session.items:
        mark = item.get_closest_marker("xdist_group")
        print("item", item.name, mark.args[0] if mark else "-")
"""
TESTS = """
import pytest

@pytest.fixture(scope="module")
def kernel(): ...

@pytest.fixture(scope="module", params=["a", "b"])
def mode(request): ...

@pytest.fixture
def own(): ...

def test_plain(own): ...
def test_shares(kernel): ...
def test_shares_too(own, kernel): ...
def test_modes(mode): ...
@pytest.mark.slow
def test_long(own): ...
"""


def test_who_shares_a_fixture_stays_together(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_it=TESTS)
    found = pytester.runpytest_inprocess("--collect-only", "-q", "-s")
    items = [line.split(" ", 2)[1:] for line in found.outlines if line.startswith("item ")]
    assert items[0] == ["test_long", "-"]
    groups = dict(items)
    assert groups["test_plain"] == "-"
    assert groups["test_shares"] == groups["test_shares_too"] == "test_it.py kernel"
    assert groups["test_modes[a]"] == "test_it.py mode=a"
    assert groups["test_modes[b]"] == "test_it.py mode=b"
