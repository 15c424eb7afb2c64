"""Functions and classes of the notebook as source text, with everything that they use.

They are delivered as text and not as pickles: their lines show in tracebacks, and any Python can
read them.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import functools
import logging
import sys
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ciao_kernel.delivery.input import definition_names, remade_objects
from ciao_kernel.delivery.input.changed_members import NOTEBOOK
from ciao_kernel.delivery.input.code_objects import unwrapped
from ciao_kernel.delivery.input.notebook_cells import NotebookCells
from ciao_kernel.delivery.input.source_texts import refused, source

_IPYTHON_NAMES = frozenset({"In", "Out", "display", "exit", "get_ipython", "open", "quit"})
"""Names that every notebook has; ``open`` is IPython's wrapper of the builtin."""
_REMEDIES = {
    "get_ipython": (
        "an IPython command (! or %, or get_ipython)",
        "Use subprocess, or leave the line out.",
    ),
    "display": (
        "IPython's display",
        "Use print, or import it inside the function: from IPython.display import display.",
    ),
}
"""Names that IPython gives to cells alone: a text for each, and the remedy."""
_CODE_TYPES = (types.FunctionType, type, type(functools.cache(len)))


@dataclass(frozen=True, slots=True)
class Definitions:
    """Code of the notebook that a program can import."""

    code: str
    """Imports and definitions, each after what it needs."""
    values: Mapping[str, str]
    """Variables that the code uses, each with the name in ``%input`` that needs it. They must be
    global names before the code runs."""
    future: bool = False
    """Whether the cells were compiled with ``from __future__ import annotations``."""
    loggers: tuple[logging.Logger, ...] = ()
    """Loggers that the code makes again, without the level of the notebook's root."""


def is_code(value: Any) -> bool:
    """Return whether a variable of the notebook is code: a function or a class."""
    return issubclass(type(value), _CODE_TYPES)  # isinstance would ask the value itself


def collect(names: Iterable[str], variables: Mapping[str, Any]) -> Definitions:
    """Return the source of functions and classes, and of what they use.

    Args:
        names: Names of functions and classes.
        variables: The variables of the notebook.

    Raises:
        SpecError: Code has no source here, was changed after its definition, or depends on the
            variables of another function.
    """
    found = _Collection(NotebookCells(variables))
    for name in names:
        found.add(name)
    code = "\n\n".join(["\n".join(found.imports()), *found.definitions()]).strip() + "\n"
    future = any(one.future for one in found.parts.values())
    made = [variables[name] for name in found.lines]
    loggers = tuple(one for one in made if isinstance(one, logging.Logger))
    return Definitions(code, found.values, future, loggers)


@dataclass(frozen=True, slots=True)
class _Part:
    """The text of a function or a class, or of another name of one.

    Args:
        text: The text.
        first: Names that it needs when it is defined, such as the bases of a class.
        later: Names that it needs when it is called.
        future: Whether it was compiled with ``from __future__ import annotations``.
    """

    text: str
    first: frozenset[str]
    later: frozenset[str]
    future: bool = False


@dataclass(slots=True)
class _Collection:
    """What functions and classes need, directly or through others.

    Args:
        cells: The cells of the notebook.
    """

    cells: NotebookCells
    parts: dict[str, _Part] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)
    """Lines that import an object or make it again, by its name."""
    values: dict[str, str] = field(default_factory=dict)
    """Variables, each with the name in ``%input`` that needs it."""

    @property
    def variables(self) -> Mapping[str, Any]:
        """The variables of the notebook."""
        return self.cells.variables

    def add(self, requested: str) -> None:
        """Find what a name needs."""
        queue = [requested]
        while queue:
            name = queue.pop()
            if name in self.parts or name in self.lines or name in self.values:
                continue
            value = self.variables[name]
            if line := _import(name, value) or remade_objects.line(name, value):
                self.lines[name] = line
            elif is_code(value):
                part = self.parts[name] = self._part(name, value, requested)
                queue += sorted(part.first | part.later, reverse=True)
            else:
                self.values[name] = requested

    def _part(self, name: str, value: Any, requested: str) -> _Part:
        own = value.__name__
        if own != name and self.variables.get(own) is value:
            return _Part(f"{name} = {own}\n", frozenset({own}), frozenset())
        text = source(name, value, requested, self.cells)
        try:
            used = definition_names.used(text)
            future = _has_future(value, text)
            first = definition_names.at_definition(text, annotations=not future)
            certain = definition_names.certain_at_definition(text, annotations=not future)
            builds_on_itself = own in definition_names.at_definition(text, annotations=False)
        except SyntaxError:
            why = f"the source of {name} cannot be told from the lines around it."
            hint = "Define it at the top level of a cell, not inside an if or a with."
            raise refused(why, hint, requested) from None
        if builds_on_itself:
            why = f"{own} builds upon an older {own}."
            raise refused(why, "Give the older one another name.", requested)
        if gone := sorted(one for one in certain if not self._is_known(one) and one != own):
            why = f"{own} was defined with {gone[0]}, which the notebook does not have any more."
            raise refused(why, f"Run the cell that defines {gone[0]} again.", requested)
        if own != name:
            text = f"{text}\n{name} = {own}\n"
        self._check_ipython(own, text, used, requested)
        known = {
            one
            for one in used
            if one in self.variables and not _is_builtin(one, self.variables[one])
        }
        return _Part(text, frozenset(known & first - {own}), frozenset(known - first), future)

    def _check_ipython(self, own: str, text: str, used: set[str], requested: str) -> None:
        """Refuse a definition that would miss IPython in a program, perhaps after hours."""
        for name, (what, hint) in _REMEDIES.items():
            own_one = name in self.variables and not _is_builtin(name, self.variables[name])
            if name in used and not own_one and name in definition_names.without_guard(text):
                raise refused(f"{own} uses {what}, which a program does not have.", hint, requested)

    def _is_known(self, name: str) -> bool:
        return name in self.variables or hasattr(builtins, name) or name in _IPYTHON_NAMES

    def imports(self) -> list[str]:
        """Return the lines that import what the definitions use."""
        texts = "\n".join(part.text for part in self.parts.values())
        more = [
            line
            for name in self.lines
            if isinstance(module := self.variables[name], types.ModuleType)
            for line in definition_names.submodules(name, module, texts)
        ]
        return [*more, *self.lines.values()]

    def definitions(self) -> list[str]:
        """Return the texts of functions and classes, each after what it needs first."""
        order: dict[str, str] = {}
        open_parts: set[str] = set()

        def write(name: str) -> None:
            if name in order or name in open_parts or name not in self.parts:
                return
            part = self.parts[name]
            open_parts.add(name)
            for one in sorted(part.first | self._older(name)):
                write(one)
            open_parts.discard(name)
            order[name] = self._text(name)
            # A decorator, for example, is called when what follows is defined.
            for one in sorted(part.later):
                if not self._needs(one) & open_parts:
                    write(one)

        for name in self.parts:
            write(name)
        return list(order.values())

    def _text(self, name: str) -> str:
        """Return the text of a name, which leaves a variable or an import of its own name alone."""
        text, own = self.parts[name].text, self.variables[name].__name__
        if own != name and (own in self.values or own in self.lines):
            return f"_kept = {own}\n{text}{own} = _kept\n"
        return text

    def _older(self, name: str) -> set[str]:
        """Return other names of older definitions, whose texts bind this name too."""
        return {
            other
            for other in self.parts
            if other != name
            and self.variables[other].__name__ == name
            and self.variables[other] is not self.variables[name]
        }

    def _needs(self, name: str) -> set[str]:
        """Return what must be defined before a name, directly or not, and the name."""
        found, queue = set[str](), [name]
        while queue:
            if (one := queue.pop()) in self.parts and one not in found:
                found.add(one)
                queue += self.parts[one].first | self._older(one)
        return found


def _has_future(value: Any, text: str) -> bool:
    """Return whether code of the notebook keeps annotations as text."""
    if not is_code(value) or getattr(value, "__module__", "") != NOTEBOOK:
        return False
    members = vars(value).values() if isinstance(value, type) else (value,)
    codes = (getattr(unwrapped(one), "__code__", None) for one in members)
    compiled = any(code.co_flags & __future__.annotations.compiler_flag for code in codes if code)
    return compiled or (isinstance(value, type) and _keeps_text(value, text))


def _keeps_text(kind: type, text: str) -> bool:
    """Return whether the annotations of a class, which may have no methods, are their source."""
    kept = vars(kind).get("__annotations__", {})
    bodies = [one.body for one in ast.parse(text).body if isinstance(one, ast.ClassDef)]
    for statement in (one for body in bodies for one in body):
        match statement:
            case ast.AnnAssign(ast.Name(name), annotation):
                # A named tuple makes a reference of a text.
                value = getattr(kept.get(name), "__forward_arg__", kept.get(name))
                if isinstance(value, str) and value == ast.unparse(annotation):
                    return True
    return False


def _is_builtin(name: str, value: Any) -> bool:
    """Return whether a name means Python's builtin, or one that IPython adds to the notebook."""
    if name == "display":
        return False  # IPython's is no variable until a cell imports it
    of_ipython = name in _IPYTHON_NAMES and getattr(value, "__module__", "") != NOTEBOOK
    is_same = hasattr(builtins, name) and getattr(builtins, name) is value
    return is_same or of_ipython


def _import(name: str, value: Any) -> str | None:
    """Return the line that imports an object of a module; None for the notebook's own objects."""
    if isinstance(value, types.ModuleType):
        return f"import {value.__name__} as {name}"
    module, true_name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if not isinstance(module, str) or module == NOTEBOOK or not true_name.isidentifier():
        return None
    if not _is_same(getattr(sys.modules.get(module), true_name, None), value):
        return None
    return f"from {module} import {true_name}" + ("" if true_name == name else f" as {name}")


def _is_same(found: Any, value: Any) -> bool:
    """Return whether a module has an object, or has loaded a newer form of it since."""
    if found is value or type(found) is not type(value):
        return found is value
    if not isinstance(value, types.FunctionType | type) or hasattr(value, "__wrapped__"):
        return False
    codes = [getattr(one, "__code__", None) for one in (found, value)]
    return (
        not hasattr(found, "__wrapped__")
        and (found.__module__, found.__qualname__) == (value.__module__, value.__qualname__)
        and len({code.co_filename for code in codes if code}) < 2
    )
