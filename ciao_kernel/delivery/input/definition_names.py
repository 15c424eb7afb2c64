"""The global names in a definition: all that it uses, and what it uses before it is called.

And those whose absence nothing in it expects (:func:`without_guard`).
"""

from __future__ import annotations

import ast
import re
import symtable
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

_BRANCHES = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.TryStar, ast.Match)
_NAME_ERRORS = frozenset({"NameError", "Exception", "BaseException"})
_ASKS_FOR_NOTEBOOK = re.compile(
    r"(?i)ipython|ipykernel|jupyter|notebook|colab|interactive|globals|builtins"
)
"""Conditions that are false in a program, as a rule: ``if in_notebook():``."""
_DENIALS = (ast.Not, ast.NotIn, ast.Is, ast.Eq, ast.NotEq)
"""Parts of conditions that are true in a program: ``if not in_notebook():``."""


def used(text: str) -> set[str]:
    """Return the global names that a definition uses."""
    names: set[str] = set()
    tables = [symtable.symtable(text, "<definition>", "exec")]
    while tables:
        table = tables.pop()
        is_module = table.get_type() == "module"
        names |= {
            one.get_name()
            for one in table.get_symbols()
            if one.is_declared_global()
            or (one.is_referenced() and (one.is_global() or (is_module and not one.is_assigned())))
        }
        tables += table.get_children()
    return names


def submodules(name: str, module: types.ModuleType, text: str) -> list[str]:
    """Return the lines that import the submodules of a module which a text uses.

    Another cell may have imported them: ``import xml.etree.ElementTree`` binds ``xml`` alone.
    """
    found = set()
    for node in ast.walk(ast.parse(text)):
        chain: list[str] = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute):
            chain.insert(0, inner.attr)
            inner = inner.value
        if not isinstance(inner, ast.Name) or inner.id != name:
            continue
        full, here = module.__name__, module
        for word in chain:
            below = vars(here).get(word)  # getattr would load what some packages load late
            known = sys.modules.get(f"{full}.{word}")
            if not isinstance(below, types.ModuleType) or below is not known:
                break
            full, here = f"{full}.{word}", below
        if here is not module:
            found.add(full)
    end = "" if module.__name__ == name else " as _submodule"
    longest = [one for one in found if not any(other.startswith(f"{one}.") for other in found)]
    return [f"import {one}{end}" for one in sorted(longest)]


def at_definition(text: str, *, annotations: bool) -> frozenset[str]:
    """Return the names that a definition uses before anything in it is called.

    Args:
        text: The definition.
        annotations: Whether annotations count.
    """
    tree = _WithoutBodies(annotations).visit(ast.parse(text))
    text = ast.unparse(ast.fix_missing_locations(tree))
    outer = symtable.symtable(text, "<definition>", "exec").get_symbols()
    return frozenset(used(text) | {one.get_name() for one in outer if one.is_referenced()})


def certain_at_definition(text: str, *, annotations: bool) -> frozenset[str]:
    """Return those of the names in :func:`at_definition` without which no definition succeeds.

    Others may never be read: they are in a branch, or a handler catches their absence.

    Args:
        text: The definition.
        annotations: Whether annotations count.
    """
    tree = _WithoutBranches(annotations).visit(ast.parse(text))
    certain = used(ast.unparse(ast.fix_missing_locations(tree)))
    # A name that a branch binds looks like a global one when the branch is missing.
    found = at_definition(text, annotations=annotations) & certain
    return frozenset(name for name in found if not name.startswith("__"))


def without_guard(text: str) -> set[str]:
    """Return the names in a definition whose absence nothing in it expects.

    A handler of NameError expects it, and a condition that asks for a notebook, also one that
    leaves the function where there is none. The collection of definitions refuses names that only a
    notebook has, unless they are guarded like that.

    Args:
        text: The definition.
    """
    names: set[str] = set()
    queue: list[ast.AST] = [ast.parse(text)]
    while queue:
        node = queue.pop()
        inner: Iterable[ast.AST] = _before_leaving(node)
        match node:
            case ast.Name(id=name):
                names.add(name)
            case ast.Try(body=body, handlers=handlers) if any(map(_catches_absence, handlers)):
                inner = [one for one in inner if one not in body]
            case ast.With(items=items) if any(map(_suppresses_absence, items)):
                inner = items
            case ast.If(test=test) | ast.IfExp(test=test) if _asks_for_notebook(test):
                # The first part of an "and" guards the others.
                inner = () if isinstance(test, ast.BoolOp) else (test,)
            case ast.BoolOp(values=values):
                asks = [number for number, one in enumerate(values) if _asks_for_notebook(one)]
                inner = values[: asks[0] + 1] if asks else values
        queue += inner
    return names


def _before_leaving(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node, without statements that run only where there is a notebook."""
    for _, value in ast.iter_fields(node):
        for one in value if isinstance(value, list) else (value,):
            if isinstance(one, ast.AST):
                yield one
            if isinstance(one, ast.If) and _leaves_program(one):
                break


def _leaves_program(branch: ast.If) -> bool:
    """Return whether a function ends in a branch unless there is a notebook."""
    denies = any(isinstance(one, _DENIALS) for one in ast.walk(branch.test))
    return isinstance(branch.body[-1], ast.Return) and denies and _asks_for_notebook(branch.test)


def _asks_for_notebook(condition: ast.expr) -> bool:
    return _ASKS_FOR_NOTEBOOK.search(ast.unparse(condition)) is not None


def _catches_absence(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler catches the NameError of a missing name."""
    return handler.type is None or _names_absence(handler.type)


def _suppresses_absence(item: ast.withitem) -> bool:
    """Return whether a context is ``contextlib.suppress(NameError)``."""
    match item.context_expr:
        case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress"), args=kinds):
            return any(map(_names_absence, kinds))
    return False


def _names_absence(kinds: ast.expr) -> bool:
    return any(isinstance(one, ast.Name) and one.id in _NAME_ERRORS for one in ast.walk(kinds))


class _WithoutBodies(ast.NodeTransformer):
    """Removes what runs when a function is called."""

    def __init__(self, annotations: bool) -> None:
        self._annotations = annotations

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._without_body(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._without_body(node)

    def _without_body(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.body = [ast.Pass()]
        if not self._annotations:
            node.returns = None
        return self.generic_visit(node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        node.body = ast.Constant(None)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        if not self._annotations:
            node.annotation = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if not self._annotations:
            node.annotation = ast.Constant(None)
        return self.generic_visit(node)


class _WithoutBranches(_WithoutBodies):
    """Also removes what may not run when the definition runs."""

    def visit(self, node: ast.AST) -> Any:
        match node:
            case ast.IfExp(test=first) | ast.BoolOp(values=[first, *_]):
                return self.visit(first)
            case (
                ast.ListComp(generators=[one, *_])
                | ast.SetComp(generators=[one, *_])
                | ast.DictComp(generators=[one, *_])
                | ast.GeneratorExp(generators=[one, *_])
            ):
                return self.visit(one.iter)
        for part in ("bound", "default_value"):  # of type parameters: they are read when asked for
            if hasattr(node, part):
                setattr(node, part, None)
        return ast.Pass() if isinstance(node, _BRANCHES) else super().visit(node)
