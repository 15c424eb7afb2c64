"""Finds plug-ins by name: frameworks, builders and backends.

The tables below list the built-in plug-ins, one line each; they are imported on first use.
Third parties add theirs as entry points of the groups ``ciao.frameworks``,
``ciao.builders`` and ``ciao.backends``; a built-in name cannot be replaced.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ciao_kernel.errors import PluginError
from ciao_kernel.session.installed_plugins import InstalledPlugins

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from ciao_kernel.config import Settings
    from ciao_kernel.magics.table import Table
    from ciao_kernel.plugins import Backend, Builder, Framework

_T = TypeVar("_T")

_FRAMEWORKS = {
    "tensorflow": "ciao_kernel.frameworks.tensorflow:TensorFlow",
    "pytorch": "ciao_kernel.frameworks.pytorch:PyTorch",
    "jax": "ciao_kernel.frameworks.jax:Jax",
    "xgboost": "ciao_kernel.frameworks.xgboost:XGBoost",
    "paddle": "ciao_kernel.frameworks.paddle:Paddle",
    "mpi": "ciao_kernel.frameworks.mpi:Mpi",
    "python": "ciao_kernel.frameworks.python:Python",
    "custom": "ciao_kernel.frameworks.custom:Custom",
}
_BUILDERS = {
    "folder": "ciao_kernel.builders.folder:FolderBuilder",
    "configmap": "ciao_kernel.builders.configmap:ConfigMapBuilder",
    "append": "ciao_kernel.builders.append:AppendBuilder",
    "kaniko": "ciao_kernel.builders.kaniko:KanikoBuilder",
    "s2i": "ciao_kernel.builders.s2i:S2IBuilder",
}
_BACKENDS = {
    "local": "ciao_kernel.backends.local.backend:LocalBackend",
    "kubernetes": "ciao_kernel.backends.kubernetes.backend:KubernetesBackend",
}
_CONFIGURED = {"kubernetes": "ciao_kernel.kube.configured:configured"}
"""What :meth:`Backend.available` asks, where a backend's import takes longer than the question."""


class Registry:
    """Finds plug-ins by name.

    Args:
        third_party: Entry points of each kind by name; None reads the installed ones.
    """

    def __init__(self, third_party: Mapping[str, Mapping[str, EntryPoint]] | None = None) -> None:
        self._third_party = third_party
        self._installed = InstalledPlugins()
        self._table: tuple[Mapping[str, Mapping[str, EntryPoint]], Table] | None = None
        self._kept: dict[str, tuple[Settings, Backend]] = {}
        self._builder: dict[str, tuple[Settings, Builder]] = {}
        self._replaced: list[Backend] = []

    @property
    def table(self) -> Table:
        """Table of the directives, with the names of all plug-ins that are installed now."""
        plugins = self._plugins()
        if self._table is None or self._table[0] != plugins:
            self._table = plugins, self._new_table()
        return self._table[1]

    def _new_table(self) -> Table:
        from ciao_kernel.magics import table as magics_table
        from ciao_kernel.plugins import AnyLanguage, Forkable, Refusing

        frameworks = self._loadable("frameworks", self.framework)
        roles = {one.name: one.roles for one in frameworks}
        free, forkable = (
            frozenset(one.name for one in frameworks if isinstance(one, part))
            for part in (AnyLanguage, Forkable)
        )
        refused = {one.name: one.refused_roles for one in frameworks if isinstance(one, Refusing)}
        # For the others, names are enough: an unused plug-in is not imported.
        builders, backends = tuple(self._names("builders")), tuple(self._names("backends"))
        names = magics_table.Names(roles, builders, backends, free, forkable, refused)
        return magics_table.build(names)

    def framework(self, name: str) -> Framework:
        """Return a framework by its name.

        Raises:
            PluginError: The name is unknown, or its plug-in cannot be loaded.
        """
        made: Framework = self._make("frameworks", name)
        return made

    def builder(self, name: str, settings: Settings) -> Builder:
        """Return a builder by its name; raises PluginError as :meth:`framework` does.

        Returns the same builder for the same settings, like :meth:`backend`.
        """
        if name not in self._builder or self._builder[name][0] is not settings:
            self._builder[name] = settings, self._make("builders", name, settings)
        return self._builder[name][1]

    def backend(self, name: str, settings: Settings) -> Backend:
        """Return a backend by its name; raises PluginError as :meth:`framework` does.

        Returns the same backend for the same settings: it may hold connections open.
        """
        if name in self._kept and self._kept[name][0] is settings:
            return self._kept[name][1]
        made: Backend = self._make("backends", name, settings)
        if name in self._kept:
            self._replaced.append(self._kept[name][1])  # one of its jobs may still be followed
        self._kept[name] = (settings, made)
        return made

    async def close(self) -> None:
        """Close the connections of all backends; a later request opens them again."""
        backends = [*self._replaced, *(backend for _, backend in self._kept.values())]
        self._replaced.clear()
        for backend in backends:
            await backend.close()

    def names(self, kind: str) -> tuple[str, ...]:
        """Return the names of all plug-ins of a kind, which may not be usable here.

        Args:
            kind: ``frameworks``, ``builders`` or ``backends``.
        """
        return tuple(self._names(kind))

    def backends(self, settings: Settings) -> list[Backend]:
        """Return all backends that can be loaded; the local one, always there, comes last."""
        return self._loadable("backends", lambda name: self.backend(name, settings))[::-1]

    def available(self, settings: Settings) -> list[Backend]:
        """Return the backends that can be used here, ordered as :meth:`backends`."""

        def usable(name: str) -> Backend | None:
            if name in _CONFIGURED and not _imported(_CONFIGURED[name])():
                return None
            made = self.backend(name, settings)
            return made if made.available() else None

        return [one for one in self._loadable("backends", usable)[::-1] if one is not None]

    def builder_for(
        self, backend: str, settings: Settings, wishes: Collection[str] = ()
    ) -> Builder:
        """Return the cheapest suitable builder for a backend, if the user names no builder.

        Args:
            backend: Name of the backend.
            settings: Settings for the builder.
            wishes: Fields of BuildSpec that the builder must support.
        """
        for builder in self._loadable("builders", lambda name: self.builder(name, settings)):
            if builder.backend == backend and builder.supported_fields.issuperset(wishes):
                return builder
        what = " that supports all directives of this job" if wishes else ""
        raise PluginError(f"the backend {backend} has no builder{what}.")

    def faults(self, settings: Settings) -> list[PluginError]:
        """Return the faults of third-party plug-ins. `ciao doctor` shows them."""
        found: list[PluginError] = []
        self._loadable("frameworks", self.framework, found)
        self._loadable("builders", lambda name: self.builder(name, settings), found)
        self._loadable("backends", lambda name: self.backend(name, settings), found)
        return found

    def _loadable(
        self, kind: str, make: Callable[[str], _T], faults: list[PluginError] | None = None
    ) -> list[_T]:
        """Return all plug-ins of a kind except broken ones, which must not disable the others."""
        found = []
        for name in self._names(kind):
            try:
                found.append(make(name))
            except PluginError as error:
                if faults is not None:
                    faults.append(error)
        return found

    def _plugins(self) -> Mapping[str, Mapping[str, EntryPoint]]:
        """Return the entry points of other packages, by kind and name."""
        return self._installed.all() if self._third_party is None else self._third_party

    def _names(self, kind: str) -> dict[str, str | EntryPoint]:
        third_party = self._plugins().get(kind, {})
        return {
            **_BUILT_IN[kind],
            **{k: v for k, v in third_party.items() if k not in _BUILT_IN[kind]},
        }

    def _make(self, kind: str, name: str, *arguments: Any) -> Any:
        target = self._names(kind).get(name)
        if target is None:
            from ciao_kernel.magics import spec_reader

            known = ", ".join(sorted(self._names(kind)))
            more = f" {spec_reader.ADD_A_FRAMEWORK}" if kind == "frameworks" else ""
            raise PluginError(f"there is no {kind[:-1]} {name!r}.", f"There are: {known}.{more}")
        try:
            if isinstance(target, str):
                return _imported(target)(*arguments)
            from ciao_kernel.session import plugin_checks

            return plugin_checks.checked(target.load()(*arguments), kind, name)
        except (Exception, SystemExit) as error:
            if isinstance(target, str):
                raise
            raise PluginError(
                f"the {kind[:-1]} {name!r} of {target.value} cannot be loaded: {error}",
                "Update or remove the package that provides it.",
            ) from error


def _imported(target: str) -> Any:
    """Return what an entry of the tables above names."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


_BUILT_IN: dict[str, dict[str, str]] = {
    "frameworks": _FRAMEWORKS,
    "builders": _BUILDERS,
    "backends": _BACKENDS,
}
