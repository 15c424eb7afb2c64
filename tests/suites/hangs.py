"""Lets a run survive a test that hangs, and tells which one it was while the run goes on.

pytest-timeout fails a test once. What its fixtures do after that has no limit of its own: one that
waits for a process that nobody ends would keep the whole run until somebody else stops it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
from collections.abc import Iterator
from typing import Any

import pytest

LIMIT = 300.0
"""Seconds for the end of a test's fixtures."""
_STDERR = pytest.StashKey[int]()


def prepare(config: pytest.Config) -> None:
    """Keep the standard error of this process, which pytest takes away during tests."""
    config.stash[_STDERR] = os.dup(2)
    config.add_cleanup(lambda: os.close(config.stash[_STDERR]))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Teller(config), "failures-at-once")


@contextlib.contextmanager
def limited(config: pytest.Config) -> Iterator[None]:
    """End this process if what is done meanwhile takes too long, and show where it stands.

    With pytest-xdist that fails the test, and another worker goes on with the others.
    """
    faulthandler.dump_traceback_later(LIMIT, exit=True, file=config.stash[_STDERR])
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


class _Teller:
    """Writes each failure at once: a run that is stopped from outside never gets to its summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter and report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            lines = (crash.message if crash else str(report.longrepr)).strip().splitlines()
            reporter.write("\n")  # after its letter
            reporter.write_line(f"{report.nodeid}: {lines[0][:300] if lines else 'no message'}")
