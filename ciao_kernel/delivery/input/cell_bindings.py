"""Finds what the cells of a notebook bind: its variables, members of classes, and attributes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any

from ciao_kernel.delivery.input.changed_members import constant
from ciao_kernel.delivery.input.code_objects import unwrapped
from ciao_kernel.delivery.input.notebook_cells import NotebookCells

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, *_COMPREHENSIONS, ast.ClassDef, ast.Lambda)
"""Code whose variables are its own."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def is_rebound(member: str, name: str, cells: NotebookCells) -> bool:
    """Return whether cells have bound a variable again, and none sets the member of a class."""
    found = set[object]()
    for _, body in cells.newest_first():
        for node in (inner for one in body for inner in ast.walk(one)):
            match node:
                case ast.Call(ast.Name("setattr"), [_, one, *_]):
                    if not isinstance(one, ast.Constant) or one.value == member:
                        return False
            if _sets(node, member):
                return False
        found.update(_bindings(body, name))
    return len(found) > 1


def is_set(kind: type, name: str, cells: NotebookCells) -> bool:
    """Return whether a line of a cell has set a constant of a class, and nothing else sets it.

    What functions, loops or methods change is the state of a program.
    """
    now, values = vars(kind)[name], list[Any]()
    for node in (one for _, body in cells.newest_first() for one in body):
        match node:
            case ast.Assign(targets=[ast.Attribute(ast.Name(owner), attr)], value=value):
                found = constant(value) if (owner, attr) == (kind.__name__, name) else ()
            case _:
                found = ()
        values += found
        if not found and any(_sets(one, name) for one in ast.walk(node)):
            return False
    return any(type(one) is type(now) and one == now for one in values)


def set_attribute(function: Any, cells: NotebookCells) -> str:
    """Return an attribute of a function that a line of a cell has set; "" without one.

    What a function sets is the state of a program, which begins anew in a replica; and libraries
    have marks of their own.
    """
    attributes = getattr(function, "__dict__", {})
    if not attributes:
        return ""
    found, state = list[str](), set[str]()
    for _, body in cells.newest_first():
        for owner, name, is_inside in _set_attributes(body):
            if unwrapped(cells.variables.get(owner)) is not function:
                continue
            if is_inside:
                state.add(name)
            elif name in attributes and not name.startswith("__"):
                found.append(name)
    return next((name for name in found if name not in state), "")


def _set_attributes(body: Iterable[ast.AST]) -> Iterator[tuple[str, str, bool]]:
    """Yield the variable and the attribute where code sets one, and whether a function does it."""
    queue = [(one, False) for one in body]
    while queue:
        node, is_inside = queue.pop()
        is_inside = is_inside or isinstance(node, _FUNCTIONS)
        parts = ast.iter_child_nodes(node)
        match node:
            case ast.AugAssign(ast.Attribute(), _, value) if is_inside:
                parts = iter([value])  # it needs the attribute
            case ast.Attribute(ast.Name(owner), name, ast.Store()) | ast.Call(
                ast.Name("setattr"), [ast.Name(owner), ast.Constant(str(name)), _]
            ):
                yield owner, name, is_inside
        queue += [(one, is_inside) for one in parts]


def _bindings(body: Iterable[ast.AST], name: str) -> Iterator[object]:
    """Yield what binds a variable when a cell runs: the text of a literal, else the node.

    A cell that runs again binds the same literal, which is no change: the class may have filled a
    list that it had taken.
    """
    queue = list(body)
    while queue:
        match queue.pop():
            case ast.Assign([ast.Name(id=one)], value) if one == name and _is_literal(value):
                yield ast.dump(value)
            case ast.Name(id=one, ctx=ast.Store()) as node if one == name:
                yield node
            case node if isinstance(node, _SCOPES):
                yield from _bindings_from_inside(node, name)
            case node:
                queue += ast.iter_child_nodes(node)


def _bindings_from_inside(scope: ast.AST, name: str) -> Iterator[object]:
    """Yield what binds a variable of the notebook from inside a function or a comprehension."""
    inside = list(ast.walk(scope))
    is_global = any(isinstance(one, ast.Global) and name in one.names for one in inside)
    for one in inside:
        match one:
            case ast.Name(id=bound, ctx=ast.Store()) as node if is_global and bound == name:
                yield node
            case ast.NamedExpr(ast.Name(bound) as node) if bound == name and isinstance(
                scope, _COMPREHENSIONS
            ):
                yield node


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError):
        return False
    return True


def _sets(node: ast.AST, name: str) -> bool:
    """Return whether code sets an attribute of something else than ``self``."""
    match node:
        case ast.Attribute(value, attr, ast.Store()) if attr == name:
            return not (isinstance(value, ast.Name) and value.id == "self")
    return False
