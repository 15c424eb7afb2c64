"""The environment of replicas on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from ciao_kernel.backends.local.machine.gpus import Devices
from ciao_kernel.backends.local.replica_plan import replica_plans
from ciao_kernel.config import Settings
from ciao_kernel.magics.header import Style
from ciao_kernel.model import Address, Artifact, Owner, Source, SourceFile
from ciao_kernel.model.environment import LAUNCHER_PATH
from ciao_kernel.plugins import Plan
from ciao_kernel.session.planning import parse_cell
from ciao_kernel.session.plugin_registry import Registry

REGISTRY = Registry(third_party={})
SOURCE = Source(SourceFile("ciao_cell.py", b"", size=0), (), ())


def environments(
    header: str, base: str = "", devices: Mapping[str, str] = MappingProxyType({})
) -> list[dict[str, str]]:
    """Return the variables of each replica of a cell with this header."""
    text = f"{header}\n%worker=1\nprint()\n"
    spec = parse_cell(text, REGISTRY, Settings(), style=Style.CELL).spec
    framework = REGISTRY.framework(spec.framework)
    made = Plan(None, framework.complete(spec), framework, SOURCE, Path("/"), "", Owner("ada"))
    known = {one: Address("127.0.0.1", 1000 + n) for n, one in enumerate(made.spec.replicas())}
    artifact = Artifact(SOURCE, "/made/bin/python", "/job/work")
    shares = dict.fromkeys(known, devices) if devices else {}
    return [dict(one.env) for one in replica_plans(made, artifact, "job", known, shares, base)]


@pytest.mark.parametrize(
    ("header", "base", "path"),
    [
        ("%framework=mpi", "/base/bin/python", "/made/bin:/usr/bin:/base/bin"),
        ("%framework=mpi\n%envvar=PATH=/own", "/base/bin/python", "/made/bin:/own:/base/bin"),
        ("%framework=mpi", "", None),
        ("%framework=mpi\n%envvar=PATH=/own", "", "/own"),
        ("%framework=tensorflow", "/base/bin/python", None),
    ],
)
def test_programs_beside_both_interpreters_are_found(
    header: str, base: str, path: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    found = environments(header, base)
    assert {one.get("PATH") for one in found} == {path}
    folder = "/base/bin" if path and base else None
    assert {one.get(LAUNCHER_PATH) for one in found} == {folder}


@pytest.mark.parametrize(
    ("header", "own", "expected"),
    [
        ("%framework=pytorch", None, "1"),
        ("%framework=pytorch", "", None),  # it is inherited
        ("%framework=pytorch\n%envvar=SPT_NOENV=", None, ""),
    ],
)
def test_a_new_title_of_a_process_does_not_hide_its_variables(
    header: str, own: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPT_NOENV", raising=False)
    if own is not None:
        monkeypatch.setenv("SPT_NOENV", own)
    assert {one.get("SPT_NOENV") for one in environments(header)} == {expected}


@pytest.mark.parametrize(
    ("envvar", "visible", "order"),
    [
        ("", "1", "PCI_BUS_ID"),
        ("CUDA_DEVICE_ORDER=FASTEST_FIRST", "1", "FASTEST_FIRST"),
        ("CUDA_VISIBLE_DEVICES=7", "7", None),  # the user counts as CUDA does
        ("CUDA_VISIBLE_DEVICES=7 CUDA_DEVICE_ORDER=FASTEST_FIRST", "7", "FASTEST_FIRST"),
    ],
)
def test_gpus_are_counted_as_they_were_assigned(
    envvar: str, visible: str, order: str | None
) -> None:
    header = "%framework=pytorch" + (f"\n%envvar={envvar}" if envvar else "")
    given = Devices(("0", "1"), "PCI_BUS_ID").variables(["1"])
    for one in environments(header, devices=given):
        assert (one["CUDA_VISIBLE_DEVICES"], one.get("CUDA_DEVICE_ORDER")) == (visible, order)
