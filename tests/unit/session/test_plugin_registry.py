"""Plug-ins: built-in ones, third parties' as entry points, and broken ones."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from ciao_kernel.backends.local.backend import LocalBackend
from ciao_kernel.builders.folder import FolderBuilder
from ciao_kernel.config import Settings
from ciao_kernel.errors import PluginError
from ciao_kernel.frameworks.tensorflow import TensorFlow
from ciao_kernel.magics import parse
from ciao_kernel.magics.value_types import JobName
from ciao_kernel.model import Job, JobSpec, naming
from ciao_kernel.plugins import JobManifest, OperatorKind
from ciao_kernel.session import plugin_registry
from ciao_kernel.session.plugin_registry import Registry

OLD = 1_700_000_000
BUILT_IN = set(Registry({}).table.names.frameworks)


class Mesh(TensorFlow):
    """A third party's framework, of one role of its own."""

    name = "mesh"
    roles = ("host",)


class Copier(FolderBuilder):
    """A third party's builder, for a backend that has one already."""

    name = "copier"


class Earlier(LocalBackend):
    """A third party's backend, written when ``stop`` was called with less."""

    name = "earlier"

    async def stop(self, job: Job, reason: str) -> None:  # type: ignore[override]
        """Nothing runs here."""


class Half:
    """What somebody began to write."""

    name = "half"


def leave() -> None:
    """A framework of a package that does not want this machine."""
    sys.exit("not today")


class Bare:
    """A third party's framework that has no kind of the training operator."""

    name = "bare"
    roles = ("worker",)
    package = requirement = image = "bare"
    endless = frozenset[str]()
    complete = TensorFlow.complete
    decider = TensorFlow.decider
    needs_package = TensorFlow.needs_package
    command = TensorFlow.command
    environment = TensorFlow.environment


class Old(TensorFlow):
    """A framework whose manifest takes less than its contract says."""

    name = "old"

    def manifest(self, spec: JobSpec) -> JobManifest:  # type: ignore[override]
        """Nothing calls it."""
        raise NotImplementedError


def _entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, "ciao.frameworks")


def test_built_in_plugins_are_found_by_name() -> None:
    registry = Registry({})

    assert registry.framework("tensorflow").name == "tensorflow"
    assert registry.builder("folder", Settings()).backend == "local"
    assert registry.backend("local", Settings()).name == "local"
    assert registry.builder_for("local", Settings()).name == "folder"


def test_an_unknown_name_is_an_error_that_lists_what_there_is() -> None:
    with pytest.raises(PluginError) as caught:
        Registry({}).framework("keras")

    assert "keras" in caught.value.message
    assert ", ".join(sorted(BUILT_IN)) in caught.value.hint


def test_an_entry_point_adds_a_framework_with_its_roles() -> None:
    registry = Registry({"frameworks": {"mesh": _entry("mesh", f"{__name__}:Mesh")}})

    spec = parse.parse("%framework=mesh\n%host=3\nx = 1\n", registry.table).spec

    assert (spec.framework, spec.count("host")) == ("mesh", 3)


def test_a_framework_needs_no_kind_of_the_operator_but_has_it_as_the_contract_says() -> None:
    points = {name: _entry(name.lower(), f"{__name__}:{name}") for name in ("Bare", "Old")}
    registry = Registry({"frameworks": {name.lower(): one for name, one in points.items()}})
    assert registry.framework("bare").roles == ("worker",)
    assert not isinstance(registry.framework("bare"), OperatorKind)
    with pytest.raises(PluginError, match=r"its manifest\(spec, pods\): "):
        registry.framework("old")


def test_the_frameworks_that_warm_replicas_run_come_from_all_that_are_installed() -> None:
    own = {"tensorflow", "pytorch", "jax", "python"}
    assert Registry({}).table.names.forkable == own
    points = {name.lower(): _entry(name.lower(), f"{__name__}:{name}") for name in ("Bare", "Mesh")}
    names = Registry({"frameworks": points}).table.names
    assert set(names.frameworks) == {*BUILT_IN, "bare", "mesh"}
    assert names.forkable == own | {"mesh"}


def test_a_built_in_name_cannot_be_taken_over() -> None:
    registry = Registry({"frameworks": {"tensorflow": _entry("tensorflow", f"{__name__}:Mesh")}})

    assert isinstance(registry.framework("tensorflow"), TensorFlow)


@pytest.mark.parametrize("kind", ["frameworks", "builders", "backends"])
@pytest.mark.parametrize(
    ("target", "why"), [("no_such_module:Thing", "no_such_module"), (f"{__name__}:Half", "lacks")]
)
def test_a_broken_entry_point_harms_nobody_else(kind: str, target: str, why: str) -> None:
    registry = Registry({kind: {"broken": _entry("broken", target)}})

    assert set(registry.table.names.frameworks) == BUILT_IN
    assert registry.builder_for("local", Settings()).name == "folder"
    assert [backend.name for backend in registry.backends(Settings())] == ["kubernetes", "local"]
    (fault,) = registry.faults(Settings())
    assert "broken" in fault.message
    # Backends and builders are made with settings, which this one does not even take.
    assert kind != "frameworks" or why in fault.message


def test_a_backend_that_cannot_be_called_as_its_contract_says_is_found_out_at_once() -> None:
    registry = Registry({"backends": {"earlier": _entry("earlier", f"{__name__}:Earlier")}})

    expected = r"its stop\(job, reason, stop_certain=…\): .*'stop_certain'"
    with pytest.raises(PluginError, match=expected):
        registry.backend("earlier", Settings())


@pytest.mark.parametrize(
    ("name", "roles", "why"),
    [
        ("mesh", ("Worker",), "role 'Worker' is not written in lower-case letters"),
        ("mesh", ("host", "a-b"), "role 'a-b' is not"),
        ("mesh", ("host", 3), "role 3 is not"),
        ("mesh", ("image",), "role 'image' is the name of the directive %image"),
        ("mesh", ("labels", "host"), "role 'labels' is the name"),
        ("mesh", None, "roles are None"),
        ("mesh", "host", "roles are 'host'"),
        ("mesh", (), "roles are ()"),
        ("MESH", ("host",), "its name is 'MESH', but its entry point is named 'mesh'"),
        ("tensorflow", ("host",), "its name is 'tensorflow'"),
    ],
)
def test_a_framework_that_would_harm_others_is_left_out(
    monkeypatch: pytest.MonkeyPatch, name: str, roles: object, why: str
) -> None:
    monkeypatch.setattr(Mesh, "name", name)
    monkeypatch.setattr(Mesh, "roles", roles)
    registry = Registry({"frameworks": {"mesh": _entry("mesh", f"{__name__}:Mesh")}})

    spec = parse.parse("%framework=tensorflow\n%worker=2\nx = 1\n", registry.table).spec

    assert spec.count("worker") == 2
    assert set(registry.table.names.frameworks) == BUILT_IN
    (fault,) = registry.faults(Settings())
    assert why in fault.message


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("m" * 39, True),
        ("my-mesh2", True),
        ("m" * 40, False),
        ("Mesh", False),
        ("my_mesh", False),
        ("2mesh", False),
        ("-mesh", False),
        ("m\u00e9sh", False),
        ("mesh\n", False),
    ],
)
def test_the_name_of_a_framework_starts_the_names_of_its_jobs(
    monkeypatch: pytest.MonkeyPatch, name: str, fits: bool
) -> None:
    monkeypatch.setattr(Mesh, "name", name)
    registry = Registry({"frameworks": {name: _entry(name, f"{__name__}:Mesh")}})
    found = [fault.message for fault in registry.faults(Settings())]
    assert (name in registry.table.names.frameworks) == fits
    assert ["cannot start the name of a job" in message for message in found] == [True] * (not fits)
    job = naming.candidate(None, name, 1)
    if fits:
        assert JobName().parse(job) == job
        assert Settings().with_values({"images": f"{name}=a"}, "x").images.get(name) == "a"


def test_a_plugin_is_known_that_is_installed_while_the_kernel_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    os.utime(site, (OLD, OLD))
    registry = Registry()
    before = registry.table
    assert "mesh" not in before.names.frameworks
    assert registry.table is before

    package = site / "mesh-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: mesh\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[ciao.frameworks]\nmesh = {__name__}:Mesh\n")
    os.utime(site, (OLD + 30, OLD + 30))
    spec = parse.parse("%framework=mesh\n%host=3\nx = 1\n", registry.table).spec
    assert spec.count("host") == 3
    assert registry.table is registry.table

    shutil.rmtree(package)
    os.utime(site, (OLD + 60, OLD + 60))
    assert registry.table.names.frameworks == before.names.frameworks


def test_a_plugin_that_exits_when_it_is_loaded_is_left_out() -> None:
    registry = Registry({"frameworks": {"leaver": _entry("leaver", f"{__name__}:leave")}})

    assert set(registry.table.names.frameworks) == BUILT_IN
    (fault,) = registry.faults(Settings())
    assert "not today" in fault.message


def test_a_third_partys_builder_is_chosen_only_by_name() -> None:
    registry = Registry({"builders": {"copier": _entry("copier", f"{__name__}:Copier")}})

    assert registry.builder_for("local", Settings()).name == "folder"
    assert registry.builder("copier", Settings()).name == "copier"


def test_a_list_of_jobs_imports_no_backend_without_a_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    moved = {**plugin_registry._BACKENDS, "kubernetes": "no_such_module:KubernetesBackend"}
    monkeypatch.setitem(plugin_registry._BUILT_IN, "backends", moved)
    monkeypatch.setenv("KUBECONFIG", os.devnull)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert [one.name for one in Registry({}).available(Settings())] == ["local"]

    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(ModuleNotFoundError):
        Registry({}).available(Settings())
