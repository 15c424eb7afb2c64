"""Which backend runs a cell, and which builder packages it."""

from __future__ import annotations

from ciao_kernel.config import Settings
from ciao_kernel.errors import PluginError, SpecError
from ciao_kernel.model import JobSpec
from ciao_kernel.plugins import Backend, Builder
from ciao_kernel.session.plugin_registry import Registry

_AUTO = "auto"
"""What a cell writes where a setting names one, and it wants none named."""


def available(registry: Registry, settings: Settings) -> list[Backend]:
    """The backends that can be used here; the local one, which always can, is the last."""
    return [one for one in registry.backends(settings) if one.available()]


def backend(asked: str | None, registry: Registry, settings: Settings) -> Backend:
    """The backend for a cell: what it asks for, else the setting; by "auto" the first there is.

    Raises:
        PluginError: There is none of that name.
    """
    name = asked or settings.backend
    if name and name != _AUTO:
        return registry.backend(name, settings)
    return available(registry, settings)[0]


def builder(spec: JobSpec, runs: Backend, registry: Registry, settings: Settings) -> Builder:
    """The builder for a cell: what it asks for, else the setting; by "auto" the cheapest that can.

    Args:
        spec: What the cell wishes for.
        runs: The backend that will run it.
        registry: Finds plug-ins.
        settings: What holds where the cell names none.

    Raises:
        SpecError: The builder that is named lacks a wish or is another backend's, or none brings
            all wishes.
    """
    name = spec.builder or settings.builder
    named = registry.builder(name, settings) if name and name != _AUTO else None
    # A cell that was written for a cluster runs on this machine all the same.
    if named and (named.backend == runs.name or runs.name != "local"):
        _check(named, spec, runs, registry)
        return named
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


def _check(named: Builder, spec: JobSpec, runs: Backend, registry: Registry) -> None:
    """See that the builder that a cell or the setting names can do what the cell wishes for.

    A third party's backend knows which builders serve it.
    """
    name = named.name if spec.builder else f"{named.name}, which the settings name,"
    if named.backend != runs.name == "kubernetes":
        text = f"the builder {name} works for {named.backend}, and this job is for {runs.name}."
    elif named.backend == runs.name and (lacks := spec.build.wishes - named.brings):
        text = f"the builder {name} does not bring what {_written(lacks, registry)} asks for."
    else:
        return
    hint = "With %builder=auto one is chosen that can."
    raise SpecError(text, hint, directive="builder" if spec.builder else "framework")


def _written(wishes: frozenset[str], registry: Registry) -> str:
    """Fields of BuildSpec as directives."""
    named = {f"build.{name}" for name in wishes}
    return " and ".join(f"%{one.name}" for one in registry.table.entries if one.field in named)
