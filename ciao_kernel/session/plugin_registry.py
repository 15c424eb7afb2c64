"""From a name to a plug-in: frameworks, builders and backends.

The built-in ones stand in the tables below, one line each, and are imported on first use.
Third parties add theirs as entry points of the groups ``ciao.frameworks``,
``ciao.builders`` and ``ciao.backends``; a built-in name cannot be taken over.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from ciao_kernel.errors import PluginError
from ciao_kernel.magics import table as magics_table
from ciao_kernel.magics.directive import Scope
from ciao_kernel.magics.table import Names, Table
from ciao_kernel.plugins import Backend, Builder, Framework

if TYPE_CHECKING:
    from ciao_kernel.config import Settings

_T = TypeVar("_T")

_ROLE = re.compile(r"[a-z][a-z0-9]*")
"""A role is a directive, a part of pods' names and one of a variable's words."""

_FRAMEWORKS = {
    "tensorflow": "ciao_kernel.frameworks.tensorflow:TensorFlow",
    "pytorch": "ciao_kernel.frameworks.pytorch:PyTorch",
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


class Registry:
    """Finds plug-ins by name.

    Args:
        third_party: Entry points of each kind by name; None reads what is installed.
    """

    def __init__(self, third_party: Mapping[str, Mapping[str, EntryPoint]] | None = None) -> None:
        self._third_party = third_party
        self._kept: dict[str, tuple[Settings, Backend]] = {}
        self._builder: dict[str, tuple[Settings, Builder]] = {}
        self._replaced: list[Backend] = []

    @functools.cached_property
    def table(self) -> Table:
        """The directives, with the names of all plug-ins."""
        roles = {one.name: one.roles for one in self._loadable("frameworks", self.framework)}
        # Names are enough of the others: what is not used is not imported.
        builders, backends = tuple(self._names("builders")), tuple(self._names("backends"))
        return magics_table.build(Names(roles, builders, backends))

    def framework(self, name: str) -> Framework:
        """Return a framework by its name.

        Raises:
            PluginError: The name is unknown, or its plug-in cannot be loaded.
        """
        made: Framework = self._make("frameworks", name)
        return made

    def builder(self, name: str, settings: Settings) -> Builder:
        """Return a builder by its name; raises PluginError as :meth:`framework` does.

        The same one for the same settings, as :meth:`backend` does.
        """
        if name not in self._builder or self._builder[name][0] is not settings:
            self._builder[name] = settings, self._make("builders", name, settings)
        return self._builder[name][1]

    def backend(self, name: str, settings: Settings) -> Backend:
        """Return a backend by its name; raises PluginError as :meth:`framework` does.

        The same one for the same settings: it may hold connections open.
        """
        if name in self._kept and self._kept[name][0] is settings:
            return self._kept[name][1]
        made: Backend = self._make("backends", name, settings)
        if name in self._kept:
            self._replaced.append(self._kept[name][1])  # a job of its may still be followed
        self._kept[name] = (settings, made)
        return made

    async def close(self) -> None:
        """Let all backends close what they hold open; a later question opens it again."""
        backends = [*self._replaced, *(backend for _, backend in self._kept.values())]
        self._replaced.clear()
        for backend in backends:
            await backend.close()

    def backends(self, settings: Settings) -> list[Backend]:
        """All backends that can be loaded; the local one, which is always there, comes last."""
        return self._loadable("backends", lambda name: self.backend(name, settings))[::-1]

    def builder_for(
        self, backend: str, settings: Settings, wishes: Collection[str] = ()
    ) -> Builder:
        """The builder for a backend where the user names none: the cheapest that can do it.

        Args:
            backend: Its name.
            settings: For the builder.
            wishes: What it has to bring: fields of BuildSpec.
        """
        for builder in self._loadable("builders", lambda name: self.builder(name, settings)):
            if builder.backend == backend and builder.brings.issuperset(wishes):
                return builder
        what = "all that this cell asks for" if wishes else "anything"
        raise PluginError(f"no builder makes {what} for the backend {backend}.")

    def faults(self, settings: Settings) -> list[PluginError]:
        """What is wrong with third parties' plug-ins. `ciao doctor` shows it."""
        found: list[PluginError] = []
        self._loadable("frameworks", self.framework, found)
        self._loadable("builders", lambda name: self.builder(name, settings), found)
        self._loadable("backends", lambda name: self.backend(name, settings), found)
        return found

    def _loadable(
        self, kind: str, make: Callable[[str], _T], faults: list[PluginError] | None = None
    ) -> list[_T]:
        """All plug-ins of a kind but broken ones, which must not take the others along."""
        found = []
        for name in self._names(kind):
            try:
                found.append(make(name))
            except PluginError as error:
                if faults is not None:
                    faults.append(error)
        return found

    def _names(self, kind: str) -> dict[str, str | EntryPoint]:
        third_party = _found(kind, self._third_party)
        return {
            **_BUILT_IN[kind],
            **{k: v for k, v in third_party.items() if k not in _BUILT_IN[kind]},
        }

    def _make(self, kind: str, name: str, *arguments: Any) -> Any:
        target = self._names(kind).get(name)
        if target is None:
            known = ", ".join(sorted(self._names(kind)))
            raise PluginError(f"there is no {kind[:-1]} {name!r}.", f"There are: {known}.")
        try:
            if isinstance(target, EntryPoint):
                return _checked(target.load()(*arguments), _CONTRACTS[kind], name)
            module, _, attribute = target.partition(":")
            return getattr(importlib.import_module(module), attribute)(*arguments)
        except (Exception, SystemExit) as error:
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


_CONTRACTS: dict[str, type] = {
    "frameworks": Framework,
    "builders": Builder,
    "backends": Backend,
}


def _checked(plugin: Any, contract: type, name: str) -> Any:
    """See that a third party's plug-in of this name has all that its contract names."""
    wanted = {*contract.__annotations__, *vars(contract)}
    missing = sorted(n for n in wanted if not n.startswith("_") and not hasattr(plugin, n))
    if missing:
        raise TypeError(f"it lacks {', '.join(missing)}")
    for attribute, method in vars(contract).items():
        if inspect.isfunction(method) and not attribute.startswith("_"):
            _check_call(getattr(plugin, attribute), method)
    if plugin.name != name:
        raise TypeError(f"its name is {plugin.name!r}, and that of its entry point {name!r}")
    if contract is Framework:
        _check_roles(plugin.roles)
    return plugin


def _check_roles(roles: Any) -> None:
    """See that roles can be directives, beside those that there are."""
    if not isinstance(roles, tuple) or not roles:
        raise TypeError(f"its roles are {roles!r}, and have to be a tuple of names")
    table = magics_table.build(Names({}, (), ()))
    for role in roles:
        if not isinstance(role, str) or not _ROLE.fullmatch(role):
            raise TypeError(f"its role {role!r} is not written in lower-case letters and digits")
        taken = table.find(role)
        if taken and taken.scope is not Scope.ROLE:
            raise TypeError(f"its role {role!r} is the name of the directive %{taken.name}")


def _check_call(method: Callable[..., Any], contract: Callable[..., Any]) -> None:
    """See that a method can be called as its contract says; TypeError names what it lacks.

    A package that was written for an earlier contract is found out here, and not in a cell.
    """
    _, *asked = inspect.signature(contract).parameters.values()  # without self
    by_name = {one.name: None for one in asked if one.kind is one.KEYWORD_ONLY}
    by_place = [one.name for one in asked if one.name not in by_name]
    try:
        inspect.signature(method).bind(*by_place, **by_name)
    except TypeError as error:
        said = ", ".join([*by_place, *(f"{name}=…" for name in by_name)])
        raise TypeError(f"its {contract.__name__}({said}): {error}") from None


def _found(
    kind: str, third_party: Mapping[str, Mapping[str, EntryPoint]] | None
) -> Mapping[str, EntryPoint]:
    if third_party is not None:
        return third_party.get(kind, {})
    return {point.name: point for point in entry_points(group=f"ciao.{kind}")}
