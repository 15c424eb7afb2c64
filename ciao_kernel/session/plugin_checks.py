"""Checks plug-ins of other packages before they are used."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from ciao_kernel.magics import table as magics_table
from ciao_kernel.magics.directive import Scope
from ciao_kernel.plugins import (
    OPTIONAL_BACKEND_PARTS,
    OPTIONAL_FRAMEWORK_PARTS,
    Backend,
    Builder,
    Framework,
)

_ROLE = re.compile(r"[a-z][a-z0-9]*")
"""A role becomes a directive, a part of pod names and a word in the value of a variable."""

_NAME = re.compile(r"[a-z][-a-z0-9]{0,38}")
"""The name of a framework starts the names of its jobs, ``NAME-x5t2k``: those are DNS labels of at
most 45 characters (:class:`ciao_kernel.magics.value_types.JobName`)."""

_CONTRACTS: dict[str, type] = {
    "frameworks": Framework,
    "builders": Builder,
    "backends": Backend,
}
_OPTIONAL: dict[str, tuple[type, ...]] = {
    "frameworks": OPTIONAL_FRAMEWORK_PARTS,
    "backends": OPTIONAL_BACKEND_PARTS,
}


def checked(plugin: Any, kind: str, name: str) -> Any:
    """Return a plug-in after checking it against its name and its contract.

    Args:
        plugin: The plug-in.
        kind: Its kind: ``frameworks``, ``builders`` or ``backends``.
        name: Name of its entry point.

    Raises:
        TypeError: It does not fulfil the contract.
    """
    contract = _CONTRACTS[kind]
    wanted = {*contract.__annotations__, *vars(contract)}
    missing = sorted(n for n in wanted if not n.startswith("_") and not hasattr(plugin, n))
    if missing:
        raise TypeError(f"it lacks {', '.join(missing)}")
    parts = [one for one in _OPTIONAL.get(kind, ()) if isinstance(plugin, one)]
    for one in (contract, *parts):
        for attribute, method in vars(one).items():
            if inspect.isfunction(method) and not attribute.startswith("_"):
                _check_call(getattr(plugin, attribute), method)
    if plugin.name != name:
        raise TypeError(f"its name is {plugin.name!r}, but its entry point is named {name!r}")
    if contract is Framework:
        if not _NAME.fullmatch(name):
            raise TypeError(
                f"its name {name!r} cannot start the name of a job: it must have at most 39 "
                "lower-case letters, digits and dashes, and start with a letter"
            )
        _check_roles(plugin.roles)
    return plugin


def _check_roles(roles: Any) -> None:
    """Check that roles can become directives next to the existing ones."""
    if not isinstance(roles, tuple) or not roles:
        raise TypeError(f"its roles are {roles!r}, but must be a tuple of names")
    table = magics_table.build(magics_table.Names({}, (), ()))
    for role in roles:
        if not isinstance(role, str) or not _ROLE.fullmatch(role):
            raise TypeError(f"its role {role!r} is not written in lower-case letters and digits")
        taken = table.find(role)
        if taken and taken.scope is not Scope.ROLE:
            raise TypeError(f"its role {role!r} is the name of the directive %{taken.name}")


def _check_call(method: Callable[..., Any], contract: Callable[..., Any]) -> None:
    """Check that a method accepts the call of its contract; raise TypeError if it does not.

    A package that was written for an earlier contract fails here, and not in a cell.
    """
    _, *asked = inspect.signature(contract).parameters.values()  # without self
    by_name = {one.name: None for one in asked if one.kind is one.KEYWORD_ONLY}
    by_place = [one.name for one in asked if one.name not in by_name]
    try:
        inspect.signature(method).bind(*by_place, **by_name)
    except TypeError as error:
        said = ", ".join([*by_place, *(f"{name}=…" for name in by_name)])
        raise TypeError(f"its {contract.__name__}({said}): {error}") from None
