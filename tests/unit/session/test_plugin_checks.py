"""Optional parts of plug-ins: a wrong signature is found when the plug-in is loaded."""

from __future__ import annotations

import inspect
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from ciao_kernel.backends.local.backend import LocalBackend
from ciao_kernel.config import Settings
from ciao_kernel.errors import PluginError
from ciao_kernel.frameworks.tensorflow import TensorFlow
from ciao_kernel.model import Job
from ciao_kernel.model.stacks import ReplicaStacks
from ciao_kernel.plugins import (
    OPTIONAL_BACKEND_PARTS,
    OPTIONAL_FRAMEWORK_PARTS,
    framework,
    optional_parts,
)
from ciao_kernel.session.plugin_checks import checked
from ciao_kernel.session.plugin_registry import Registry

BUILT_IN = tuple(Registry({}).table.names.frameworks)
PARTS = [
    (kind, part, method)
    for kind, parts in (
        ("frameworks", OPTIONAL_FRAMEWORK_PARTS),
        ("backends", OPTIONAL_BACKEND_PARTS),
    )
    for part in parts
    for method in vars(part)
    if inspect.isfunction(vars(part)[method]) and not method.startswith("_")
]


class Mesh(TensorFlow):
    """A third party's framework whose server takes less than its protocol says."""

    name = "mesh"

    def server_command(self) -> tuple[str, ...]:  # type: ignore[override]
        """Nothing calls it."""
        raise NotImplementedError


class Narrow(LocalBackend):
    """A third party's backend that looks into all replicas alone."""

    name = "narrow"

    async def stacks(self, job: Job) -> list[ReplicaStacks]:  # type: ignore[override]
        """Nothing calls it."""
        raise NotImplementedError


def registry(kind: str, *plugins: type) -> Registry:
    names = {one.__name__.lower(): f"{__name__}:{one.__name__}" for one in plugins}
    points = {one: EntryPoint(one, value, f"ciao.{kind}") for one, value in names.items()}
    return Registry({kind: points})


def test_an_optional_part_with_an_earlier_signature_is_named() -> None:
    with pytest.raises(PluginError, match=r"its server_command\(spec, artifact\): "):
        registry("frameworks", Mesh).framework("mesh")
    with pytest.raises(PluginError, match=r"its stacks\(job, replicas\): "):
        registry("backends", Narrow).backend("narrow", Settings())


@pytest.mark.parametrize(("kind", "part", "method"), PARTS)
def test_each_method_of_an_optional_part_is_checked(kind: str, part: type, method: str) -> None:
    methods = {one for found, other, one in PARTS if (found, other) == (kind, part)}
    members: dict[str, object] = {one: lambda self, *_, **__: None for one in methods}
    members |= dict.fromkeys(part.__annotations__, ())

    def load(**more: object) -> object:
        if kind == "frameworks":
            made = type("Made", (TensorFlow,), {**members, **more})
            return checked(made(), kind, "tensorflow")
        made = type("Made", (LocalBackend,), {**members, **more})
        return checked(made(Settings()), kind, "local")

    assert isinstance(load(), part)
    with pytest.raises(TypeError, match=rf"its {method}\(.+\): too many positional arguments"):
        load(**{method: lambda self: None})


@pytest.mark.parametrize(
    ("module", "parts", "required"),
    [
        (framework, OPTIONAL_FRAMEWORK_PARTS, {framework.Framework}),
        (optional_parts, OPTIONAL_BACKEND_PARTS, set()),
    ],
)
def test_no_optional_part_is_left_out(
    module: ModuleType, parts: tuple[type, ...], required: set[type]
) -> None:
    own = (
        one for one in vars(module).values() if getattr(one, "__module__", "") == module.__name__
    )
    assert set(parts) == {one for one in own if getattr(one, "_is_protocol", False)} - required


def test_built_in_plugins_fulfil_their_optional_parts() -> None:
    for name in BUILT_IN:
        checked(Registry({}).framework(name), "frameworks", name)
    for backend in Registry({}).backends(Settings()):
        checked(backend, "backends", backend.name)
