"""The global names in a definition: all that it uses, and what it uses before it is called."""

from __future__ import annotations

import ast
import symtable
import sys
import types
from typing import Any

_BRANCHES = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.TryStar, ast.Match)


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
