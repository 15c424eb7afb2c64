"""Selects the backend that runs a cell and the builder that packages it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ciao_kernel.errors import PluginError, SpecError
from ciao_kernel.session import named_plugins

if TYPE_CHECKING:
    from ciao_kernel.config import Settings
    from ciao_kernel.model import JobSpec
    from ciao_kernel.plugins import Backend, Builder
    from ciao_kernel.session.plugin_registry import Registry

_AUTO = "auto"
"""Value that requests automatic selection, instead of the name in the settings."""


def available(registry: Registry, settings: Settings) -> list[Backend]:
    """Return the backends that can be used here; the local one, always usable, is last."""
    return registry.available(settings)


def backend(asked: str | None, registry: Registry, settings: Settings) -> Backend:
    """Return the backend for a cell: its own, else the setting's; for "auto" the first available.

    Raises:
        PluginError: No backend has that name.
        SettingError: No backend has the name in the settings.
    """
    if not asked:
        named_plugins.check("backend", settings, registry)
    name = asked or settings.backend
    if name and name != _AUTO:
        return registry.backend(name, settings)
    return available(registry, settings)[0]


def builder(spec: JobSpec, runs: Backend, registry: Registry, settings: Settings) -> Builder:
    """Return the builder for a cell: its own, else the setting's; for "auto" the cheapest suitable.

    Args:
        spec: Spec of the cell.
        runs: The backend that will run the cell.
        registry: Finds plug-ins.
        settings: Used if the cell names no builder.

    Raises:
        SpecError: The named builder does not support a directive or belongs to another backend,
            or no builder supports all directives.
        SettingError: No builder has the name in the settings.
    """
    if not spec.builder:
        named_plugins.check("builder", settings, registry)
    name = spec.builder or settings.builder
    named = registry.builder(name, settings) if name and name != _AUTO else None
    # A cell that was written for a cluster also runs on this machine.
    if named and (named.backend == runs.name or runs.name != "local"):
        _check(named, spec, runs, registry)
        return named
    try:
        return registry.builder_for(runs.name, settings, spec.build.wishes)
    except PluginError:
        if not spec.build.wishes:
            raise
        raise SpecError(
            f"no single builder supports {_written(spec.build.wishes, registry)}.",
            "Move one directive's content into the other's file, or use an image that has it.",
            directive="framework",
        ) from None


def _check(named: Builder, spec: JobSpec, runs: Backend, registry: Registry) -> None:
    """Check that the builder named by a cell or the settings supports the cell's directives.

    A third party's backend decides itself which builders it supports.
    """
    name = named.name if spec.builder else f"{named.name}, named by the settings,"
    if named.backend != runs.name == "kubernetes":
        text = f"the builder {name} works for {named.backend}, but this job is for {runs.name}."
    elif named.backend == runs.name and (lacks := spec.build.wishes - named.supported_fields):
        text = f"the builder {name} does not support {_written(lacks, registry)}."
    else:
        return
    hint = "%builder=auto chooses a suitable builder."
    raise SpecError(text, hint, directive="builder" if spec.builder else "framework")


def _written(wishes: frozenset[str], registry: Registry) -> str:
    """Return fields of BuildSpec as directives."""
    named = {f"build.{name}" for name in wishes}
    return " and ".join(f"%{one.name}" for one in registry.table.entries if one.field in named)
