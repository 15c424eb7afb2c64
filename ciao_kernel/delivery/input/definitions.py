"""Functions and classes of the notebook as source text, with everything that they use.

They are delivered as text and not as pickles: their lines show in tracebacks, and any Python can
read them.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import functools
import inspect
import linecache
import symtable
import sys
import textwrap
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ciao_kernel.errors import SpecError

_NOTEBOOK = "__main__"
_IPYTHON_NAMES = frozenset({"In", "Out", "display", "exit", "get_ipython", "open", "quit"})
"""Names that every notebook has; ``open`` is IPython's wrapper of the builtin."""
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


def is_code(value: Any) -> bool:
    """Return whether a variable of the notebook is code: a function or a class."""
    return issubclass(type(value), _CODE_TYPES)  # isinstance would ask the value itself


def collect(names: Iterable[str], variables: Mapping[str, Any]) -> Definitions:
    """Return the source of functions and classes, and of what they use.

    Args:
        names: Names of functions and classes.
        variables: The variables of the notebook.

    Raises:
        SpecError: Code has no source here, or depends on the variables of another function.
    """
    parts: dict[str, str] = {}
    values: dict[str, str] = {}
    visited: set[str] = set()

    def add(name: str, requested: str) -> None:
        if name in parts or name in values or name in visited:
            return
        visited.add(name)
        value = variables[name]
        if (line := _import(name, value)) is not None:
            parts[name] = line
        elif is_code(value):
            text = _source(value, requested, variables)
            try:
                used_names = sorted(_globals(text))  # the same text for the same notebook
            except SyntaxError:
                why = f"the source of {name} cannot be told from the lines around it."
                hint = "Define it at the top level of a cell, not inside an if or a with."
                raise _error(why, hint, requested) from None
            for used in used_names:
                if used in variables and not _is_builtin(used, variables[used]):
                    add(used, requested)
            true_name = value.__name__
            parts[name] = text if true_name == name else f"{text}\n{name} = {true_name}\n"
        else:
            values[name] = requested

    for name in names:
        add(name, name)
    imports = [text for text in parts.values() if text.startswith(("import ", "from "))]
    others = [text for text in parts.values() if not text.startswith(("import ", "from "))]
    code = "\n\n".join(["\n".join(imports), *others]).strip() + "\n"
    future = any(_has_future(variables[name]) for name in parts)
    return Definitions(code, values, future)


def _has_future(value: Any) -> bool:
    """Return whether code of the notebook keeps annotations as text."""
    if not is_code(value) or getattr(value, "__module__", "") != _NOTEBOOK:
        return False
    members = vars(value).values() if isinstance(value, type) else (value,)
    codes = (getattr(_unwrapped(one), "__code__", None) for one in members)
    return any(code.co_flags & __future__.annotations.compiler_flag for code in codes if code)


def _unwrapped(value: Any) -> Any:
    try:
        return inspect.unwrap(value) if callable(value) else value
    except ValueError:  # it wraps itself
        return value


def _is_builtin(name: str, value: Any) -> bool:
    """Return whether a name means Python's builtin, or one that IPython adds to the notebook."""
    of_ipython = name in _IPYTHON_NAMES and getattr(value, "__module__", "") != _NOTEBOOK
    return getattr(builtins, name, None) is value or of_ipython


def _import(name: str, value: Any) -> str | None:
    """Return the line that imports an object of a module; None for the notebook's own objects."""
    if isinstance(value, types.ModuleType):
        return f"import {value.__name__} as {name}"
    module, true_name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if not isinstance(module, str) or module == _NOTEBOOK or not true_name.isidentifier():
        return None
    if getattr(sys.modules.get(module), true_name, None) is not value:
        return None
    return f"from {module} import {true_name}" + ("" if true_name == name else f" as {name}")


def _source(value: Any, requested: str, variables: Mapping[str, Any]) -> str:
    """Return the definition of a function or a class."""
    name = value.__qualname__
    if "<lambda>" in name:
        raise _error(f"{requested} uses a lambda.", "Write a function with def.", requested)
    if "<locals>" in name:
        text = f"{name.split('.')[-1]} was defined inside {name.split('.')[0]}, with its variables."
        raise _error(text, "Define it at the top level of a cell.", requested)
    found = _class_source(value, variables) if isinstance(value, type) else _function_source(value)
    if found is None:
        text = f"the source of {name} is not known here."
        raise _error(text, "Run the cell that defines it, or put it into a module.", requested)
    return found


def _function_source(function: Callable[..., Any]) -> str | None:
    try:
        return textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    except (OSError, TypeError):
        return None


def _class_source(kind: type, variables: Mapping[str, Any]) -> str | None:
    """Return the newest definition of a class, which Python itself finds only in modules."""
    for text in _cells(kind, variables):
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):  # a cell with magics
            continue
        for node in reversed(tree.body):
            if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                return "\n".join(text.split("\n")[first - 1 : node.end_lineno]) + "\n"
    return None


def _cells(kind: type, variables: Mapping[str, Any]) -> Iterator[str]:
    """Yield the cells that may define a class, the likeliest first."""
    for member in vars(kind).values():
        code = getattr(_unwrapped(member), "__code__", None)
        if code is not None:
            yield "".join(linecache.getlines(code.co_filename))
    history = variables.get("In")  # IPython's list of cells
    yield from reversed([one for one in history or () if isinstance(one, str)])


def _globals(text: str) -> set[str]:
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


def _error(message: str, hint: str, name: str) -> SpecError:
    return SpecError(f"%input cannot take {name}: {message}", hint, directive="input", word=name)
