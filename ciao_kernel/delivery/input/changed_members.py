"""Finds members of a notebook's class that were changed after its definition."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from ciao_kernel.delivery.input.class_text import ClassText

NOTEBOOK = "__main__"
"""The module of what the notebook defines."""
_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)
_IMPLIED = frozenset({"__new__", "__init_subclass__", "__class_getitem__"})
"""Methods that Python itself makes static or class methods."""
HOLDERS = {
    staticmethod: "__func__",
    classmethod: "__func__",
    property: "fget",
    functools.cached_property: "func",
    functools.partialmethod: "func",
}
"""Types of members that hold a function, and where."""
_CONSTANTS = (bool, int, float, complex, str, bytes, tuple, type(None))


@dataclass(frozen=True, slots=True)
class Changes:
    """Names of members of a class that its text does not tell."""

    code: tuple[str, ...] = ()
    """Code that the notebook has put there: what a library does to the class it does in the replica
    too."""
    values: tuple[str, ...] = ()
    """Constants, lists and dicts: these may be the state of a program."""


def changed_members(definition: ClassText) -> Changes:
    """Return the members of a class that its text does not tell."""
    kind, last = definition.kind, definition.last_statements
    if definition.node.decorator_list or any(
        one.__module__ == NOTEBOOK for one in definition.hooks
    ):
        return Changes()  # the notebook's own code may change it there as it did here
    is_plain = definition.is_as_written
    code, values = list[str](), list[str]()
    for name, member in vars(kind).items():
        if name in definition.own_state or (name in definition.bound and name not in last):
            continue
        if name in last:
            is_code = _is_changed(kind, name, member, last[name], is_plain=is_plain)
            is_value = _is_other_value(member, last[name])
        else:
            is_code = _is_added(kind, name, member, is_plain=is_plain)
            is_value = isinstance(member, (list, dict, *_CONSTANTS)) and not name.startswith("_")
        if is_code:
            code.append(name)
        elif is_value and is_plain:
            values.append(name)
    # Python changes the names of private methods.
    public = [name for name, one in last.items() if isinstance(one, _DEFS) and name[:2] != "__"]
    code += [name for name in public if is_plain and name not in vars(kind)]
    return Changes(tuple(code), tuple(values))


def _is_changed(
    kind: type, name: str, member: Any, node: ast.stmt | ast.expr, *, is_plain: bool
) -> bool:
    """Return whether a member is not what a statement of the class makes it."""
    if isinstance(node, _DEFS):
        if node.decorator_list:
            return False
        is_method = isinstance(member, FunctionType) or name in _IMPLIED
        is_other = not is_method or hasattr(getattr(member, "__func__", member), "__wrapped__")
        changed = _is_foreign(kind, member) or (is_plain and is_other)
        return changed and not _is_of_base(kind, member)
    return is_plain and bool(constant(node)) and _is_foreign(kind, member)


def _is_other_value(member: Any, node: ast.stmt | ast.expr) -> bool:
    """Return whether a member is another value than the constant of a statement."""
    return any(type(one) is not type(member) or one != member for one in constant(node))


def constant(node: ast.AST | None) -> tuple[Any, ...]:
    """Return the constant that an expression is, alone; nothing for another expression."""
    if not isinstance(node, ast.expr):
        return ()
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError):
        return ()
    # A list or a dict is filled while the class is used.
    return (value,) if isinstance(value, _CONSTANTS) else ()


def _is_added(kind: type, name: str, member: Any, *, is_plain: bool) -> bool:
    """Return whether code that no statement of the class makes was added to it."""
    is_function = isinstance(member, FunctionType) and not name.startswith("_")
    added = _is_foreign(kind, member) or (is_plain and is_function)
    return added and not _is_of_base(kind, member)


def _is_of_base(kind: type, member: Any) -> bool:
    """Return whether the module of a base has made a member, as torch does with ``step``.

    A wrapper may have the ``__module__`` of what it wraps.
    """
    modules = {base.__module__ for base in kind.__mro__[1:]} - {NOTEBOOK, object.__module__}
    return maker(member) in modules


def maker(member: Any) -> str:
    """Return the module whose code has made a function, a method or a wrapper."""
    if issubclass(type(member), (staticmethod, classmethod)):
        member = member.__func__
    is_function = issubclass(type(member), FunctionType)
    return str(member.__globals__.get("__name__") if is_function else type(member).__module__)


def _is_foreign(kind: type, member: Any) -> bool:
    """Return whether a member is a function that the notebook defines outside of the class."""
    for one, attribute in HOLDERS.items():  # any other value is not asked
        if issubclass(type(member), one):
            member = getattr(member, attribute)
    return (
        isinstance(member, FunctionType)
        and member.__module__ == NOTEBOOK
        and not member.__qualname__.startswith(f"{kind.__qualname__}.")
    )
