"""Which backend runs a cell, and which builder packages it."""

from __future__ import annotations

from ciao_kernel.config import Settings
from ciao_kernel.errors import PluginError, SpecError
from ciao_kernel.model import JobSpec
from ciao_kernel.plugins import Backend, Builder
from ciao_kernel.registry import Registry


def available(registry: Registry, settings: Settings) -> list[Backend]:
    """The backends that can be used here; the local one, which always can, is the last."""
    return [one for one in registry.backends(settings) if one.available()]


def backend(asked: str | None, registry: Registry, settings: Settings) -> Backend:
    """The backend for a cell: what it asks for, else the setting, else the first there is.

    Raises:
        PluginError: There is none of that name.
    """
    name = asked if asked and asked != "auto" else settings.backend
    if name and name != "auto":
        return registry.backend(name, settings)
    return available(registry, settings)[0]


def builder(spec: JobSpec, runs: Backend, registry: Registry, settings: Settings) -> Builder:
    """The builder for a cell: what it asks for, else the setting, else the cheapest that can.

    Args:
        spec: What the cell wishes for.
        runs: The backend that will run it.
        registry: Finds plug-ins.
        settings: What holds where the cell names none.

    Raises:
        SpecError: The builder that is asked for lacks a wish, or none brings all of them.
    """
    name = spec.builder if spec.builder and spec.builder != "auto" else settings.builder
    if name and name != "auto":
        named = registry.builder(name, settings)
        lacks = spec.build.wishes - named.brings
        if named.backend == runs.name and lacks:
            raise SpecError(
                f"the builder {name} does not bring what {_written(lacks, registry)} asks for.",
                "Leave %builder out: then one is chosen that does.",
                directive="builder",
            )
        if named.backend == runs.name or runs.name != "local":
            return named  # else the cell was written for a cluster, and runs here all the same
    try:
        return registry.builder_for(runs.name, settings, spec.build.wishes)
    except PluginError:
        if not spec.build.wishes:
            raise
        raise SpecError(
            f"no builder brings {_written(spec.build.wishes, registry)} together.",
            "What one of them asks for can stand in the other's file, or in another image.",
            directive="framework",
        ) from None


def _written(wishes: frozenset[str], registry: Registry) -> str:
    """Fields of BuildSpec as directives."""
    named = {f"build.{name}" for name in wishes}
    return " and ".join(f"%{one.name}" for one in registry.table.entries if one.field in named)
