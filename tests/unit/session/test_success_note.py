"""A cell whose chief decides is told that allWorkers has no effect, and no other cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.model import Owner, Source, SourceFile
from ciao_kernel.plugins import Plan
from ciao_kernel.session.planning import parse_cell
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.success_note import success_note

REGISTRY = Registry(third_party={})
SOURCE = Source(SourceFile("ciao_cell.py", b"", size=0), (), ())
WRITTEN = {"cluster.success_policy": "%successPolicy (line 4)"}


def plan(header: str) -> Plan:
    spec = parse_cell(f"{header}print()\n", REGISTRY, Settings()).spec
    framework = REGISTRY.framework(spec.framework)
    return Plan(None, spec, framework, SOURCE, Path("/"), "", Owner("ada"), written=WRITTEN)


@pytest.mark.parametrize("role", ["chief", "master"])
def test_a_role_that_decides_alone_is_named(role: str) -> None:
    cell = f"%framework=tensorflow\n%{role}=1\n%worker=2\n%successPolicy=allWorkers\n"
    assert success_note(plan(cell)) == (
        "%successPolicy (line 4) has no effect: the success of "
        f"{role}-0 is the success of the job, and "
        "ends all other replicas."
    )


@pytest.mark.parametrize(
    "cell",
    [
        "%framework=tensorflow\n%worker=2\n%successPolicy=allWorkers\n",
        "%framework=tensorflow\n%chief=1\n%worker=2\n",
        "%framework=pytorch\n%worker=2\n",
    ],
    ids=["no chief", "the usual policy", "another framework"],
)
def test_another_cell_has_no_note(cell: str) -> None:
    assert success_note(plan(cell)) == ""
