"""Functions and classes of the notebook as source text, with everything that they use.

They are delivered as text and not as pickles: their lines show in tracebacks, and any Python can
read them.
"""

from __future__ import annotations

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
_OF_IPYTHON = frozenset({"In", "Out", "display", "exit", "get_ipython", "open", "quit"})
"""Names that every notebook has; ``open`` is IPython's wrapper of the builtin."""
_CODE = (types.FunctionType, type, type(functools.cache(len)))


@dataclass(frozen=True, slots=True)
class Definitions:
    """Code of the notebook that a program can import."""

    code: str
    """Imports and definitions, each after what it needs."""
    values: Mapping[str, str]
    """Variables that the code uses, each with the name in ``%input`` that needs it. They must be
    global names before the code runs."""


def is_code(value: Any) -> bool:
    """Return whether a variable of the notebook is code: a function or a class."""
    return issubclass(type(value), _CODE)  # isinstance would ask the value itself


def collect(names: Iterable[str], variables: Mapping[str, Any]) -> Definitions:
    """Return the source of functions and classes, and of what they use.

    Args:
        names: Names of functions and classes.
        variables: The variables of the notebook.

    Raises:
        SpecError: Code has no source here, or depends on the variables of another function.
    """
    pieces: dict[str, str] = {}
    values: dict[str, str] = {}
    open_names: set[str] = set()

    def add(name: str, asked: str) -> None:
        if name in pieces or name in values or name in open_names:
            return
        open_names.add(name)
        value = variables[name]
        if (line := _import(name, value)) is not None:
            pieces[name] = line
        elif is_code(value):
            text = _source(value, asked, variables)
            for used in _globals(text):
                if used in variables and not _is_builtin(used, variables[used]):
                    add(used, asked)
            own = value.__name__
            pieces[name] = text if own == name else f"{text}\n{name} = {own}\n"
        else:
            values[name] = asked

    for name in names:
        add(name, name)
    imports = [text for text in pieces.values() if text.startswith(("import ", "from "))]
    others = [text for text in pieces.values() if not text.startswith(("import ", "from "))]
    return Definitions("\n\n".join(["\n".join(imports), *others]).strip() + "\n", values)


def _is_builtin(name: str, value: Any) -> bool:
    """Return whether a name means Python's builtin, or one that IPython adds to the notebook."""
    return getattr(builtins, name, None) is value or name in _OF_IPYTHON


def _import(name: str, value: Any) -> str | None:
    """Return the line that imports an object of a module; None for the notebook's own objects."""
    if isinstance(value, types.ModuleType):
        return f"import {value.__name__} as {name}"
    module, own = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if not isinstance(module, str) or module == _NOTEBOOK or not own.isidentifier():
        return None
    if getattr(sys.modules.get(module), own, None) is not value:
        return None
    return f"from {module} import {own}" + ("" if own == name else f" as {name}")


def _source(value: Any, asked: str, variables: Mapping[str, Any]) -> str:
    """Return the definition of a function or a class."""
    name = value.__qualname__
    if "<lambda>" in name:
        raise _wrong(f"{asked} uses a lambda.", "Write a function with def.", asked)
    if "<locals>" in name:
        text = f"{name.split('.')[-1]} was defined inside {name.split('.')[0]}, with its variables."
        raise _wrong(text, "Define it at the top level of a cell.", asked)
    found = _of_class(value, variables) if isinstance(value, type) else _of_function(value)
    if found is None:
        text = f"the source of {name} is not known here."
        raise _wrong(text, "Run the cell that defines it, or put it into a module.", asked)
    return found


def _of_function(function: Callable[..., Any]) -> str | None:
    try:
        return textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    except (OSError, TypeError):
        return None


def _of_class(kind: type, variables: Mapping[str, Any]) -> str | None:
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
        code = getattr(inspect.unwrap(member) if callable(member) else member, "__code__", None)
        if code is not None:
            yield "".join(linecache.getlines(code.co_filename))
    history = variables.get("In")  # IPython's list of cells
    yield from reversed([one for one in history or () if isinstance(one, str)])


def _globals(text: str) -> set[str]:
    """Return the global names that a definition uses."""
    names: set[str] = set()
    rest = [symtable.symtable(text, "<definition>", "exec")]
    while rest:
        table = rest.pop()
        top = table.get_type() == "module"
        names |= {
            one.get_name()
            for one in table.get_symbols()
            if one.is_referenced() and (one.is_global() or (top and not one.is_assigned()))
        }
        rest += table.get_children()
    return names


def _wrong(message: str, hint: str, name: str) -> SpecError:
    return SpecError(f"%input cannot take {name}: {message}", hint, directive="input", word=name)
