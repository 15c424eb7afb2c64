"""Finds members of a notebook's class that were changed after its definition."""

from __future__ import annotations

import ast
import functools
import symtable
from abc import ABCMeta
from types import FunctionType
from typing import Any, Generic

NOTEBOOK = "__main__"
"""The module of what the notebook defines."""
_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)
_IMPLIED = frozenset({"__new__", "__init_subclass__", "__class_getitem__"})
"""Methods that Python itself makes static or class methods."""
_HOLDERS = {
    staticmethod: "__func__",
    classmethod: "__func__",
    property: "fget",
    functools.cached_property: "func",
    functools.partialmethod: "func",
}
"""Types of members that hold a function, and where."""
_CONSTANTS = (bool, int, float, complex, str, bytes, tuple, type(None))


def changed_member(kind: type, text: str) -> str:
    """Return a member of a class that its text does not tell; "" if there is none.

    Args:
        kind: The class.
        text: Its definition.
    """
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.ClassDef)
    above = [base for base in kind.__mro__[1:] if "__init_subclass__" in vars(base)]
    above = [base for base in above if base not in (object, Generic)]
    hooks = [*above, *([] if type(kind) in (type, ABCMeta) else [type(kind)])]
    if node.decorator_list or any(one.__module__ == NOTEBOOK for one in hooks):
        return ""  # the notebook's own code may change it there as it did here
    is_plain = not hooks and not hasattr(kind, "_fields")  # a NamedTuple
    bound, last = _bound_names(text, kind.__name__), _last_statements(node)
    own_state = _assigned_attributes(node)
    for name, member in vars(kind).items():
        if name in last:
            changed = _is_changed(kind, name, member, last[name], is_plain=is_plain)
        elif name in bound:
            continue
        else:
            changed = _is_added(kind, name, member, is_plain=is_plain)
        if changed and name not in own_state:
            return name
    # Python changes the names of private methods.
    public = [name for name, one in last.items() if isinstance(one, _DEFS) and name[:2] != "__"]
    return next((name for name in public if is_plain and name not in vars(kind)), "")


def _is_changed(
    kind: type, name: str, member: Any, node: ast.stmt | ast.expr, *, is_plain: bool
) -> bool:
    """Return whether a member is not what a statement of the class makes it."""
    if isinstance(node, _DEFS):
        if node.decorator_list:
            return False
        is_method = isinstance(member, FunctionType) or name in _IMPLIED
        return _is_foreign(kind, member) or (
            is_plain
            and (not is_method or hasattr(getattr(member, "__func__", member), "__wrapped__"))
        )
    if not is_plain or not isinstance(node, ast.expr):
        return False
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError):
        return False
    # A list or a dict is filled while the class is used.
    return isinstance(value, _CONSTANTS) and (type(value) is not type(member) or value != member)


def _is_added(kind: type, name: str, member: Any, *, is_plain: bool) -> bool:
    """Return whether a member that no statement of the class makes was added to it."""
    if _is_foreign(kind, member):
        return True
    is_simple = isinstance(member, (FunctionType, list, dict, *_CONSTANTS))
    return is_plain and is_simple and not name.startswith("_")


def _is_foreign(kind: type, member: Any) -> bool:
    """Return whether a member is a function that the notebook defines outside of the class."""
    for one, attribute in _HOLDERS.items():  # any other value is not asked
        if issubclass(type(member), one):
            member = getattr(member, attribute)
    return (
        isinstance(member, FunctionType)
        and member.__module__ == NOTEBOOK
        and not member.__qualname__.startswith(f"{kind.__qualname__}.")
    )


def _bound_names(text: str, name: str) -> set[str]:
    """Return the names that the body of a class binds, as the class has them."""
    tables = [symtable.symtable(text, "<definition>", "exec")]
    while tables:  # type parameters have a table above that of the class
        table = tables.pop(0)
        if table.get_type() == "class" and table.get_name() == name:
            return {one.get_name() for one in table.get_symbols() if one.is_local()}
        tables += table.get_children()
    return set()


def _last_statements(node: ast.ClassDef) -> dict[str, ast.stmt | ast.expr]:
    """Return the methods and the values of a class by their names, if that is simple to tell."""
    found: dict[str, ast.stmt | ast.expr] = {}
    for one in node.body:
        match one:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found[name] = one
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found[name] = value
            case _:
                for inner in ast.walk(one):
                    found.pop(getattr(inner, "id", None) or getattr(inner, "name", None) or "", "")
    return found


def _assigned_attributes(node: ast.ClassDef) -> set[str]:
    """Return the attributes that a class gives to something else than ``self``: its own state."""
    return {
        one.attr
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute)
        and not isinstance(one.ctx, ast.Load)
        and not (isinstance(one.value, ast.Name) and one.value.id == "self")
    }
