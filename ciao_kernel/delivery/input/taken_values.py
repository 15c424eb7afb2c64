"""Finds values that a definition has taken from the notebook, and that are others there now.

The default of a parameter and the constant of a class are taken when the definition runs. A replica
runs the text again, with the present variables. Only a certain difference counts: a cell that runs
once more makes an equal value that is another object.
"""

from __future__ import annotations

import ast
import numbers
from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING
from types import CodeType, FunctionType
from typing import Any

from ciao_kernel.delivery.input.changed_members import HOLDERS, constant
from ciao_kernel.delivery.input.class_text import ClassText
from ciao_kernel.delivery.input.code_objects import is_equal, unwrapped

_Definition = ast.FunctionDef | ast.AsyncFunctionDef
_PLAIN = (numbers.Number, str, bytes, bytearray, tuple, list, dict, set, frozenset, type(None))
"""Types of values that ``==`` tells apart."""


def changed_method_default(definition: ClassText, variables: Mapping[str, Any]) -> str:
    """Return a sentence about a default that a method would not have again; "" without one.

    Args:
        definition: The class.
        variables: The variables of the notebook.
    """
    members = vars(definition.kind)
    for name, node in definition.last_statements.items():
        if isinstance(node, _Definition) and name in members:
            function = _held(members[name], node)
            # The names of a class come before those of the notebook.
            if found := changed_default(function, node, variables, definition.bound):
                return found
    return ""


def _held(member: Any, node: _Definition) -> Any:
    """Return the function in a member of a class that a definition there has made."""
    if issubclass(type(member), property):
        for decorator in node.decorator_list:
            match decorator:
                case ast.Attribute(attr=("setter" | "deleter") as role):
                    return member.fset if role == "setter" else member.fdel
    for one, attribute in HOLDERS.items():  # any other value is not asked
        if issubclass(type(member), one):
            member = getattr(member, attribute)
    return member


def changed_default(
    value: Any,
    node: ast.FunctionDef | ast.AsyncFunctionDef,
    variables: Mapping[str, Any],
    hidden: Collection[str] = (),
) -> str:
    """Return a sentence about a default that a function would not have again; "" without one.

    Args:
        value: The function, or what its decorators have made of it.
        node: Its definition.
        variables: The variables of the notebook.
        hidden: Names of variables that the definition does not see.
    """
    function = unwrapped(value)
    if not isinstance(function, FunctionType) or function.__code__.co_name != node.name:
        return ""  # something else took its name
    name, given = function.__qualname__, node.args
    places = [*given.posonlyargs, *given.args][-len(given.defaults) :] if given.defaults else []
    named = [
        (arg.arg, default)
        for arg, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
        if default is not None
    ]
    by_place, by_name = function.__defaults__ or (), function.__kwdefaults__ or {}
    if (len(by_place), len(by_name)) != (len(places), len(named)):
        return f"a default of {name} was changed after its definition."
    pairs = [
        *zip((arg.arg for arg in places), given.defaults, by_place, strict=True),
        # Python changes the names of private parameters.
        *((arg, default, by_name[arg]) for arg, default in named if arg in by_name),
    ]
    for parameter, default, then in pairs:
        if any(type(one) is not type(then) or is_other(then, one) for one in constant(default)):
            return f"the default of {parameter} was changed after {name} was defined."
        match default:
            case ast.Name(id=one) if one in variables and one not in hidden:
                if is_other(then, variables[one]):
                    # Which of the two has changed is not certain: f may fill a list by itself.
                    return f"the default of {parameter} in {name} is not the value of {one} now."
    return ""


def other_fields(definition: ClassText, variables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the fields of a dataclass or a named tuple whose default is not a variable any more.

    Args:
        definition: The class.
        variables: The variables of the notebook.

    Yields:
        The name of the field, and that of the variable.
    """
    own = vars(definition.kind)
    defaults = dict(own.get("_field_defaults", {}))
    fields = own.get("__dataclass_fields__", {})
    defaults |= {name: one.default for name, one in fields.items() if one.default is not MISSING}
    for name, variable in _named(definition, variables):
        if name in defaults and is_other(defaults[name], variables[variable]):
            yield name, variable


def other_constants(
    definition: ClassText, variables: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield the members of a class that are not the variable any more that its text gives them.

    They may be the state of a program, which code has changed.

    Args:
        definition: The class.
        variables: The variables of the notebook.

    Yields:
        The name of the member, and that of the variable.
    """
    if not definition.is_as_written:
        return
    own = vars(definition.kind)
    for name, variable in _named(definition, variables):
        found = name in own and name not in definition.own_state
        if found and is_other(own[name], variables[variable]):
            yield name, variable


def _named(definition: ClassText, variables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the members of a class that its text makes of a variable alone, and that variable."""
    for name, one in definition.last_statements.items():
        if isinstance(one, ast.Name) and one.id in variables and one.id not in definition.bound:
            yield name, one.id


def is_other(then: Any, now: Any) -> bool:
    """Return whether two values differ for certain.

    Args:
        then: What a definition has taken.
        now: What it would take now.
    """
    if then is now:
        return False
    if then is None or now is None:
        return True
    kinds = type(then), type(now)  # isinstance would ask the values themselves
    if all(issubclass(one, FunctionType) for one in kinds):
        found = (getattr(unwrapped(one), "__code__", None) for one in (then, now))
        codes = [one for one in found if isinstance(one, CodeType)]
        return len(codes) == 2 and not is_equal(*codes)
    if not any(issubclass(one, _PLAIN) for one in kinds):
        return False
    try:
        same = then == now
        if not isinstance(same, bool) and getattr(same, "shape", None) != ():
            return False  # an array compares each of its elements
        # No NaN is equal to another one, alone or in a list.
        both_nan = bool(then != then) and bool(now != now)
        return not (bool(same) or both_nan or repr(then) == repr(now))
    except Exception:  # of the values
        return False
