"""From a name to a plug-in: frameworks, builders and backends.

The built-in ones stand in the tables below, one line each, and are imported on first use.
Third parties add theirs as entry points of the groups ``ciao.frameworks``,
``ciao.builders`` and ``ciao.backends``; a built-in name cannot be taken over.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from ciao_kernel.errors import PluginError
from ciao_kernel.magics import table as magics_table
from ciao_kernel.magics.table import Names, Table
from ciao_kernel.plugins import Backend, Builder, Framework

if TYPE_CHECKING:
    from ciao_kernel.config import Settings

_FRAMEWORKS = {
    "tensorflow": "ciao_kernel.frameworks.tensorflow:TensorFlow",
    "pytorch": "ciao_kernel.frameworks.pytorch:PyTorch",
}
_BUILDERS = {
    "folder": "ciao_kernel.builders.folder:FolderBuilder",
}
_BACKENDS = {
    "local": "ciao_kernel.backends.local.backend:LocalBackend",
}


class Registry:
    """Finds plug-ins by name.

    Args:
        third_party: Entry points of each kind by name; None reads what is installed.
    """

    def __init__(self, third_party: Mapping[str, Mapping[str, EntryPoint]] | None = None) -> None:
        self._third_party = third_party

    @functools.cached_property
    def table(self) -> Table:
        """The directives, with the names of all plug-ins."""
        roles = {}
        for name in self.frameworks():
            # One that cannot be loaded is no choice; `ciao doctor` names it and says why.
            with contextlib.suppress(PluginError):
                roles[name] = self.framework(name).roles
        return magics_table.build(
            Names(roles, tuple(self._names("builders")), tuple(self._names("backends")))
        )

    def framework(self, name: str) -> Framework:
        """Return a framework by its name.

        Raises:
            PluginError: The name is unknown, or its plug-in cannot be loaded.
        """
        made: Framework = self._make("frameworks", name)
        return made

    def frameworks(self) -> tuple[str, ...]:
        """Names of all frameworks, those that cannot be loaded too."""
        return tuple(self._names("frameworks"))

    def builder(self, name: str) -> Builder:
        """Return a builder by its name; raises PluginError as :meth:`framework` does."""
        made: Builder = self._make("builders", name)
        return made

    def backend(self, name: str, settings: Settings) -> Backend:
        """Return a backend by its name; raises PluginError as :meth:`framework` does."""
        made: Backend = self._make("backends", name, settings)
        return made

    def backends(self) -> tuple[str, ...]:
        """Names of all backends; the one that ``auto`` falls back to comes first."""
        return tuple(self._names("backends"))

    def builder_for(self, backend: str) -> str:
        """The name of the first builder that makes what a backend runs."""
        for name in self._names("builders"):
            if self.builder(name).backend == backend:
                return name
        raise PluginError(f"no builder makes anything for the backend {backend}.")

    def _names(self, kind: str) -> dict[str, str | EntryPoint]:
        return {**_found(kind, self._third_party), **_BUILT_IN[kind]}

    def _make(self, kind: str, name: str, *arguments: Any) -> Any:
        target = self._names(kind).get(name)
        if target is None:
            known = ", ".join(sorted(self._names(kind)))
            raise PluginError(f"there is no {kind[:-1]} {name!r}.", f"There are: {known}.")
        try:
            if isinstance(target, EntryPoint):
                return target.load()(*arguments)
            module, _, attribute = target.partition(":")
            return getattr(importlib.import_module(module), attribute)(*arguments)
        except Exception as error:
            if not isinstance(target, EntryPoint):
                raise
            raise PluginError(
                f"the {kind[:-1]} {name!r} of {target.value} cannot be loaded: {error}",
                "Update or remove the package that brings it.",
            ) from error


_BUILT_IN: dict[str, dict[str, str]] = {
    "frameworks": _FRAMEWORKS,
    "builders": _BUILDERS,
    "backends": _BACKENDS,
}


def _found(
    kind: str, third_party: Mapping[str, Mapping[str, EntryPoint]] | None
) -> Mapping[str, EntryPoint]:
    if third_party is not None:
        return third_party.get(kind, {})
    return {point.name: point for point in entry_points(group=f"ciao.{kind}")}
