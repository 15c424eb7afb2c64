"""The source texts of the notebook's functions and classes, found in its cells.

A text is the old form of what was changed after its definition: that is refused.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from ciao_kernel.delivery.input.cell_bindings import is_rebound, is_set, set_attribute
from ciao_kernel.delivery.input.changed_members import NOTEBOOK, changed_members, maker
from ciao_kernel.delivery.input.class_text import ClassText
from ciao_kernel.delivery.input.code_objects import is_equal, unwrapped
from ciao_kernel.delivery.input.notebook_cells import NotebookCells
from ciao_kernel.delivery.input.taken_values import (
    changed_default,
    changed_method_default,
    other_constants,
    other_fields,
)
from ciao_kernel.errors import SpecError


def source(variable: str, value: Any, requested: str, cells: NotebookCells) -> str:
    """Return the definition of a function or a class.

    Args:
        variable: The name that it has in the notebook.
        value: The function or the class.
        requested: The name in ``%input`` that needs it.
        cells: The cells of the notebook.

    Raises:
        SpecError: There is no text, or it is not what the notebook has now.
    """
    name = value.__qualname__
    if "<lambda>" in name:
        raise refused(f"{requested} uses a lambda.", "Write a function with def.", requested)
    if "<locals>" in name:
        text = f"{name.split('.')[-1]} was defined inside {name.split('.')[0]}, with its variables."
        raise refused(text, "Define it at the top level of a cell.", requested)
    if isinstance(value, type):
        return _checked_class(value, requested, cells)
    return _checked_function(variable, value, requested, cells)


def refused(message: str, hint: str, name: str) -> SpecError:
    """Return the error for code that cannot be delivered."""
    return SpecError(f"%input cannot take {name}: {message}", hint, directive="input", word=name)


def _unknown(name: str, requested: str) -> SpecError:
    text = f"the source of {name} is not known here."
    return refused(
        text, "Define it at the top level of a cell, or put it into a module.", requested
    )


def _checked_class(kind: type, requested: str, cells: NotebookCells) -> str:
    name, definition = kind.__qualname__, _class_source(kind, cells)
    if definition is None:
        raise _unknown(name, requested)
    if members := _changed(definition, cells):
        text = f"{name}.{members[0]} was changed after the class was defined."
        hint = f"Put it into the body of class {name}, and run that cell again."
        raise refused(text, hint, requested)
    changed = _changed_variable(definition, cells)
    changed = changed or changed_method_default(definition, cells.variables)
    if changed:
        raise refused(changed, f"Run the cell that defines {name} again.", requested)
    return definition.text


def _checked_function(variable: str, value: Any, requested: str, cells: NotebookCells) -> str:
    name, text = value.__qualname__, _function_source(value, cells)
    if text is None:
        raise _unknown(name, requested)
    body = cells.parsed(text)
    match body:
        case [ast.FunctionDef() | ast.AsyncFunctionDef() as node, *_]:
            if changed := changed_default(value, node, cells.variables):
                raise refused(changed, f"Run the cell that defines {name} again.", requested)
    has_decorator = not body or any(getattr(node, "decorator_list", True) for node in body)
    if not has_decorator and (attribute := set_attribute(unwrapped(value), cells)):
        why = f"{name}.{attribute} was set after the function was defined."
        hint = f"Keep the value in a variable of the notebook, which {name} uses by its name."
        raise refused(why, hint, requested)
    if _has_own_wrapper(value) and not has_decorator:
        why = f"another function wraps {name}, after its definition."
        hint = f"Write it as a decorator above def {variable}, and run that cell again."
        raise refused(why, hint, requested)
    return text


def _has_own_wrapper(value: Any) -> bool:
    """Return whether a function of the notebook wraps another one.

    The inner one alone is delivered where the wrapper is of a library: as a rule it returns the
    same, as with ``functools.lru_cache`` and ``torch.compile``.
    """
    seen = set[int]()
    while hasattr(value, "__wrapped__") and id(value) not in seen:
        if maker(value) == NOTEBOOK:
            return True
        seen.add(id(value))
        value = value.__wrapped__
    return False


def _changed(definition: ClassText, cells: NotebookCells) -> list[str]:
    """Return the members of a class that are lost with its text."""
    found = changed_members(definition)
    values = [*found.values, *(name for name, _ in other_constants(definition, cells.variables))]
    return [*found.code, *(name for name in values if is_set(definition.kind, name, cells))]


def _changed_variable(definition: ClassText, cells: NotebookCells) -> str:
    """Return a sentence about a variable that a class has taken and whose value is another now."""
    found = other_constants(definition, cells.variables)
    others = (one for one in found if is_rebound(*one, cells))
    for member, name in (*other_fields(definition, cells.variables), *others):
        own = f"{definition.kind.__name__}.{member}"
        return f"{own} is not the value of {name} now."
    return ""


# ------------------------------------------------------------------------------- finding


def _function_source(function: Callable[..., Any], cells: NotebookCells) -> str | None:
    inner = unwrapped(function)
    try:
        return textwrap.dedent(inspect.getsource(inner))
    except (OSError, TypeError):
        code = getattr(inner, "__code__", None)
    for text, body in cells.newest_first():  # Python does not keep the lines of a magic's cell
        for node in reversed(body):
            if (
                not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                or code is None
                or node.name != code.co_name
            ):
                continue
            if _is_compiled(node, code):
                return _lines(text, node)
    return None


def _class_source(kind: type, cells: NotebookCells) -> ClassText | None:
    """Return the definition of a class, which Python itself finds only in modules.

    It is the newest of its name, or another one if only that has the members of the class.
    """
    newest, likely = None, None
    for text, body in _likely_cells(kind, cells):
        for node in reversed(body):
            if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
                found = ClassText(kind, _lines(text, node))
                newest = newest or found
                changes = changed_members(found)
                if changes.code or not (newest == found or _has_code(kind, node)):
                    continue
                if not changes.values:
                    return found
                likely = likely or found
    return likely or newest


def _lines(text: str, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    return "\n".join(text.split("\n")[first - 1 : node.end_lineno]) + "\n"


def _likely_cells(kind: type, cells: NotebookCells) -> Iterator[tuple[str, list[ast.stmt]]]:
    """Yield the cells that may define a class, the likeliest first."""
    for member in vars(kind).values():
        code = getattr(unwrapped(member), "__code__", None)
        if code is not None:
            text = "".join(linecache.getlines(code.co_filename))
            yield text, cells.parsed(text)
    yield from cells.newest_first()


def _is_compiled(node: ast.stmt, code: CodeType) -> bool:
    """Return whether a definition has the code of a function."""
    return any(is_equal(one, code) for one in _codes(node))


def _codes(node: ast.stmt) -> list[CodeType]:
    """Return the code of all functions in a definition."""
    queue = [compile(ast.Module([node], []), "<definition>", "exec", dont_inherit=True)]
    for code in queue:
        queue += [one for one in code.co_consts if isinstance(one, CodeType)]
    return queue


def _has_code(kind: type, node: ast.ClassDef) -> bool:
    """Return whether the methods of a class are those of a definition."""
    methods = [getattr(one, "__func__", one) for one in vars(kind).values()]
    return all(
        _is_compiled(node, method.__code__)
        for method in methods
        if isinstance(method, FunctionType) and method.__qualname__.startswith(f"{kind.__name__}.")
    )
