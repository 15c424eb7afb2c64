"""Keeps the groups of groups.py together when pytest-xdist shares tests out.

Its own way is to write a test's group into the test's name, which pytest 9.2 lets nobody change:
with `--dist loadgroup` each test went anywhere, and nobody said so. Here each worker writes down
the groups that it found, and the controller shares the tests out by them. Names stay as they are.

A worker that dies, such as one that :mod:`.hangs` ends, costs its test alone. In pytest-xdist 3.8
(scheduler/loadscope.py) its successor gets one group, and starts none of it before it has a second
one: the run waits for ever where the other workers have been told to end.
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
_AHEAD = 2
"""Tests that a worker has in hand at least, as in pytest-xdist: it begins one when it knows the
next."""


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

        def remove_node(self, node: Any) -> str | None:
            """Return the test at which a worker died, and let others do what it had left."""
            groups = self.assigned_work.pop(node)
            left = [name for group in groups.values() for name, done in group.items() if not done]
            for scope, group in groups.items():
                if rest := [name for name, done in group.items() if not done and name != left[0]]:
                    self.workqueue[scope] = dict.fromkeys(rest, False)
            for other in self.nodes:
                self._reschedule(other)
            return left[0] if left else None

        def _reschedule(self, node: Any) -> None:
            """Keep a worker in work; its last test begins when it knows that nothing follows."""
            while not node.shutting_down and self._pending_of(self.assigned_work[node]) <= _AHEAD:
                if not self.workqueue:
                    node.shutdown()
                    return
                self._assign_work_unit(node)

    return ByGroup(config, log)


def _file(config: pytest.Config) -> Path:
    if _FILE not in config.stash:
        folder = tempfile.TemporaryDirectory(prefix=f"ciao-groups-{os.getpid()}-")
        config.add_cleanup(folder.cleanup)
        config.stash[_FILE] = Path(folder.name) / "groups.json"
    return config.stash[_FILE]
