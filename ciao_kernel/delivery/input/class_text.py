"""A class of the notebook with the text of its definition: what its statements make."""

from __future__ import annotations

import ast
import symtable
from abc import ABCMeta
from dataclasses import dataclass
from functools import cached_property
from typing import Generic


@dataclass(frozen=True)
class ClassText:
    """A definition, which is read once.

    Args:
        kind: The class.
        text: Its definition, or that of another class of its name.
    """

    kind: type
    text: str

    @cached_property
    def node(self) -> ast.ClassDef:
        """The statement.

        Raises:
            SyntaxError: The text is no Python.
        """
        node = ast.parse(self.text).body[0]
        assert isinstance(node, ast.ClassDef)
        return node

    @cached_property
    def hooks(self) -> list[type]:
        """The bases and the metaclass that run code when the class is defined."""
        above = [base for base in self.kind.__mro__[1:] if "__init_subclass__" in vars(base)]
        above = [base for base in above if base not in (object, Generic)]
        return [*above, *([] if type(self.kind) in (type, ABCMeta) else [type(self.kind)])]

    @cached_property
    def is_as_written(self) -> bool:
        """Nothing but the statements of the class makes its members."""
        is_tuple = hasattr(self.kind, "_fields")  # a NamedTuple
        return not (self.node.decorator_list or self.hooks or is_tuple)

    @cached_property
    def bound(self) -> set[str]:
        """The names that the body binds, as the class has them."""
        tables = [symtable.symtable(self.text, "<definition>", "exec")]
        while tables:  # type parameters have a table above that of the class
            table = tables.pop(0)
            if table.get_type() == "class" and table.get_name() == self.kind.__name__:
                return {one.get_name() for one in table.get_symbols() if one.is_local()}
            tables += table.get_children()
        return set()

    @cached_property
    def last_statements(self) -> dict[str, ast.stmt | ast.expr]:
        """The methods and the values by their names, where that is simple to tell."""
        found: dict[str, ast.stmt | ast.expr] = {}
        for one in self.node.body:
            match one:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    found[name] = one
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    found[name] = value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    found[name] = value
                case _:
                    for inner in ast.walk(one):
                        name = getattr(inner, "id", None) or getattr(inner, "name", None) or ""
                        found.pop(name, "")
        return found

    @cached_property
    def own_state(self) -> set[str]:
        """The attributes that the class gives to something else than ``self``."""
        return {
            one.attr
            for one in ast.walk(self.node)
            if isinstance(one, ast.Attribute)
            and not isinstance(one.ctx, ast.Load)
            and not (isinstance(one.value, ast.Name) and one.value.id == "self")
        }
