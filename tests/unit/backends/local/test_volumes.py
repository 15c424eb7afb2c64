"""Volumes of roles on this machine, where all replicas share the program's folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ciao_kernel.backends.local import unused, volumes
from ciao_kernel.backends.local.replica_plan import replica_plans
from ciao_kernel.config import Settings
from ciao_kernel.errors import SpecError
from ciao_kernel.magics.header import Style
from ciao_kernel.model import Address, Artifact, Owner, Source, SourceFile
from ciao_kernel.plugins import Plan
from ciao_kernel.session.planning import parse_cell
from ciao_kernel.session.plugin_registry import Registry

REGISTRY = Registry(third_party={})
SOURCE = Source(SourceFile("ciao_cell.py", b"", size=0), (), ())


def plan(header: str) -> Plan:
    text = f"%framework=tensorflow\n{header}print()\n"
    spec = parse_cell(text, REGISTRY, Settings(), style=Style.CELL).spec
    framework = REGISTRY.framework("tensorflow")
    return Plan(None, spec, framework, SOURCE, Path("/"), "", Owner("ada"))


def test_only_the_replicas_of_the_role_have_the_variables() -> None:
    made = plan("%ps=1\n%worker=2;%volume=tmp:scratch data:input/train\n%volume=all:all\n")
    known = {one: Address("127.0.0.1", 1000 + n) for n, one in enumerate(made.spec.replicas())}
    found = replica_plans(made, Artifact(SOURCE, "python", "/job/work"), "job", known, {})
    channels = {
        str(one.replica): {name for name, _ in one.env if name.startswith(("SM_", "CIAO_INPUT"))}
        for one in found
    }
    own = {"SM_CHANNEL_ALL", "SM_CHANNEL_TRAIN", "CIAO_INPUT"}
    assert channels == {"ps-0": {"SM_CHANNEL_ALL"}, "worker-0": own, "worker-1": own}


def test_the_cell_says_that_the_others_find_them_too(tmp_path: Path) -> None:
    made = plan("%ps=1\n%worker=2;%volume=data:in:ro\n")
    said = list(unused.unused(made))
    assert any("replicas of other roles find the volume too" in text for text in said)
    assert any(":ro has no effect" in text for text in said)
    assert list(unused.unused(plan("%worker=2;%volume=data:in\n"))) == []
    # What the cell has not named itself, but a setting, needs no such word.
    written = {"framework": "%framework (line 1)"}
    ours = replace(plan("%worker=2\n%volume=data:in:ro\n"), written=written)
    assert list(unused.unused(ours)) == []
    folders = {"data": str(tmp_path)}
    assert volumes.described(made.spec, folders) == [f"in  {tmp_path}  (for worker)"]


def test_two_roles_share_a_volume_but_no_place(tmp_path: Path) -> None:
    folders = {"a": str(tmp_path), "b": str(tmp_path.parent)}
    for header in (
        "%ps=1;%volume=a:x\n%worker=2;%volume=a:x:ro\n",
        "%ps=1;%volume=tmp:x\n%worker=2;%volume=tmp:1Gi:x\n",
    ):
        made = plan(header)
        volumes.check(made, folders)
        work = tmp_path / f"work-{len(header)}"
        work.mkdir()
        volumes.place(made.spec.all_volumes, work, folders)
        assert (work / "x").is_dir()
    for header in (
        "%ps=1;%volume=a:x\n%worker=2;%volume=b:x\n",
        "%ps=1;%volume=tmp:x\n%worker=2;%volume=a:x/y\n",
    ):
        with pytest.raises(SpecError, match="of two roles are at the same place"):
            volumes.check(plan(header), folders)
