"""Keeps the groups of groups.py together when pytest-xdist shares tests out.

Its own way is to write a test's group into the test's name, which pytest 9.2 lets nobody change:
with `--dist loadgroup` each test went anywhere, and nobody said so. Here each worker writes down
the groups that it found, and the controller shares the tests out by them. Names stay as they are.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.suites import groups

_FILE = pytest.StashKey[Path]()


def prepare(node: Any) -> None:
    """Tell a worker where to write the groups down."""
    node.workerinput["groups"] = str(_file(node.config))


def write(session: pytest.Session) -> None:
    """Write the groups down, if this is a worker."""
    told = getattr(session.config, "workerinput", {})
    if "groups" in told:
        file = Path(told["groups"])
        part = file.with_name(f"{told['workerid']}.json")
        part.write_text(json.dumps({one.nodeid: groups.of(one) for one in session.items}))
        part.rename(file)  # all workers write the same, and nobody reads a part of it


def scheduler(config: pytest.Config, log: Any) -> Any:
    """Return what shares tests out; None leaves it to pytest-xdist."""
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
        """Tests of a group go to one worker, each other test to anyone."""

        found: dict[str, str] = {}  # noqa: RUF012

        def _split_scope(self, nodeid: str) -> str:
            if not self.found:
                self.found = json.loads(_file(config).read_text())
            return self.found[nodeid] or nodeid

    return ByGroup(config, log)


def _file(config: pytest.Config) -> Path:
    if _FILE not in config.stash:
        folder = tempfile.TemporaryDirectory(prefix=f"ciao-groups-{os.getpid()}-")
        config.add_cleanup(folder.cleanup)
        config.stash[_FILE] = Path(folder.name) / "groups.json"
    return config.stash[_FILE]
