"""The source texts of the notebook's functions and classes, found in its cells.

A text is the old form of what was changed after its definition: that is refused.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

from ciao_kernel.delivery.input.changed_members import NOTEBOOK, changed_members, constant, maker
from ciao_kernel.delivery.input.code_objects import is_equal, unwrapped
from ciao_kernel.delivery.input.taken_values import changed_default, other_constants, other_fields
from ciao_kernel.errors import SpecError

_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (*_DEFS, *_COMPREHENSIONS, ast.ClassDef, ast.Lambda)
"""Code whose variables are its own."""
_OTHER_CELLS = frozenset(
    {"ciao", "file", "pypy", "python", "python2", "python3", "script", "timeit", "writefile"}
)
"""Magics whose cells define nothing in the notebook, though they may be Python."""


def source(variable: str, value: Any, requested: str, variables: Mapping[str, Any]) -> str:
    """Return the definition of a function or a class.

    Args:
        variable: The name that it has in the notebook.
        value: The function or the class.
        requested: The name in ``%input`` that needs it.
        variables: The variables of the notebook.

    Raises:
        SpecError: There is no text, or it is not what the notebook has now.
    """
    name = value.__qualname__
    if "<lambda>" in name:
        raise refused(f"{requested} uses a lambda.", "Write a function with def.", requested)
    if "<locals>" in name:
        text = f"{name.split('.')[-1]} was defined inside {name.split('.')[0]}, with its variables."
        raise refused(text, "Define it at the top level of a cell.", requested)
    is_class = isinstance(value, type)
    found = _class_source(value, variables) if is_class else _function_source(value, variables)
    if found is None:
        text = f"the source of {name} is not known here."
        hint = "Define it at the top level of a cell, or put it into a module."
        raise refused(text, hint, requested)
    if is_class and (members := _changed(value, found, variables)):
        text = f"{name}.{members[0]} was changed after the class was defined."
        hint = f"Put it into the body of class {name}, and run that cell again."
        raise refused(text, hint, requested)
    text = _changed_variable(value, found, variables) if is_class else ""
    if _parsed(found):
        text = text or changed_default(found, value, variables)
    if text:
        raise refused(text, f"Run the cell that defines {name} again.", requested)
    if not is_class and _has_own_wrapper(value) and not _has_decorator(found):
        text = f"another function wraps {name}, after its definition."
        hint = f"Write it as a decorator above def {variable}, and run that cell again."
        raise refused(text, hint, requested)
    return found


def refused(message: str, hint: str, name: str) -> SpecError:
    """Return the error for code that cannot be delivered."""
    return SpecError(f"%input cannot take {name}: {message}", hint, directive="input", word=name)


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


def _changed(kind: type, text: str, variables: Mapping[str, Any]) -> list[str]:
    """Return the members of a class that are lost with its text."""
    found = changed_members(kind, text)
    values = [*found.values, *(name for name, _ in other_constants(kind, text, variables))]
    lost = (name for name in values if _is_set(kind, name, variables))
    return [*found.code, *lost]


def _changed_variable(kind: type, text: str, variables: Mapping[str, Any]) -> str:
    """Return a sentence about a variable that a class has taken and whose value is another now."""
    found = other_constants(kind, text, variables)
    others = (one for one in found if _is_rebound(*one, variables))
    for member, name in (*other_fields(kind, text, variables), *others):
        own = f"{kind.__name__}.{member}"
        return f"{own} is not the value of {name} now."
    return ""


def _is_rebound(member: str, name: str, variables: Mapping[str, Any]) -> bool:
    """Return whether cells have bound a variable again, and none sets the member of a class."""
    found = set[object]()
    for _, body in _history(variables):
        for node in (inner for one in body for inner in ast.walk(one)):
            match node:
                case ast.Call(ast.Name("setattr"), [_, one, *_]):
                    if not isinstance(one, ast.Constant) or one.value == member:
                        return False
            if _sets(node, member):
                return False
        found.update(_bindings(body, name))
    return len(found) > 1


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


def _is_set(kind: type, name: str, variables: Mapping[str, Any]) -> bool:
    """Return whether a line of a cell has set a constant of a class, and nothing else sets it.

    What functions, loops or methods change is the state of a program.
    """
    now, values = vars(kind)[name], list[Any]()
    for node in (one for _, body in _history(variables) for one in body):
        match node:
            case ast.Assign(targets=[ast.Attribute(ast.Name(owner), attr)], value=value):
                found = constant(value) if (owner, attr) == (kind.__name__, name) else ()
            case _:
                found = ()
        values += found
        if not found and any(_sets(one, name) for one in ast.walk(node)):
            return False
    return any(type(one) is type(now) and one == now for one in values)


def _sets(node: ast.AST, name: str) -> bool:
    """Return whether code sets an attribute of something else than ``self``."""
    match node:
        case ast.Attribute(value, attr, ast.Store()) if attr == name:
            return not (isinstance(value, ast.Name) and value.id == "self")
    return False


def _parsed(text: str) -> list[ast.stmt]:
    try:
        return ast.parse(text).body
    except (SyntaxError, ValueError):  # a cell with magics
        return []


def _has_decorator(text: str) -> bool:
    body = _parsed(text)
    return not body or any(getattr(node, "decorator_list", True) for node in body)


# ------------------------------------------------------------------------------- finding


def _function_source(function: Callable[..., Any], variables: Mapping[str, Any]) -> str | None:
    inner = unwrapped(function)
    try:
        return textwrap.dedent(inspect.getsource(inner))
    except (OSError, TypeError):
        code = getattr(inner, "__code__", None)
    for text, body in _history(variables):  # Python does not keep the lines of a magic's cell
        for node in reversed(body):
            if not isinstance(node, _DEFS) or code is None or node.name != code.co_name:
                continue
            if _is_compiled(node, code):
                return _lines(text, node)
    return None


def _class_source(kind: type, variables: Mapping[str, Any]) -> str | None:
    """Return the definition of a class, which Python itself finds only in modules.

    It is the newest of its name, or another one if only that has the members of the class.
    """
    newest, likely = None, None
    for text, body in _cells(kind, variables):
        for node in reversed(body):
            if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
                found = _lines(text, node)
                newest = newest or found
                changes = changed_members(kind, found)
                if changes.code or not (newest == found or _has_code(kind, node)):
                    continue
                if not changes.values:
                    return found
                likely = likely or found
    return likely or newest


def _lines(text: str, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    return "\n".join(text.split("\n")[first - 1 : node.end_lineno]) + "\n"


def _cells(kind: type, variables: Mapping[str, Any]) -> Iterator[tuple[str, list[ast.stmt]]]:
    """Yield the cells that may define a class, the likeliest first."""
    for member in vars(kind).values():
        code = getattr(unwrapped(member), "__code__", None)
        if code is not None:
            text = "".join(linecache.getlines(code.co_filename))
            yield text, _parsed(text)
    yield from _history(variables)


def _history(variables: Mapping[str, Any]) -> Iterator[tuple[str, list[ast.stmt]]]:
    """Yield the cells of the notebook, the newest first, and those inside magics."""
    cells = variables.get("In")  # IPython's list of cells
    for text in reversed([one for one in cells or () if isinstance(one, str)]):
        body = _parsed(text)
        yield text, body
        for inner in map(_magic_text, reversed(body)):
            if inner:
                yield inner, _parsed(inner)


def _magic_text(node: ast.stmt) -> str:
    """Return the Python cell of a magic such as ``%%time``; "" if it is something else."""
    match node:
        case ast.Expr(
            ast.Call(
                func=ast.Attribute(attr="run_cell_magic"),
                args=[ast.Constant(str(name)), _, ast.Constant(str(text))],
            )
        ):
            pass
        case _:
            return ""
    while text.startswith("%%"):  # one magic in another
        line, _, text = text.partition("\n")
        name = line.removeprefix("%%").partition(" ")[0]
    if name in _OTHER_CELLS:
        return ""
    # IPython translates the lines of this cell when the magic runs it.
    lines = ["pass" if line.startswith(("%", "!")) else line for line in text.split("\n")]
    return text if _parsed(text) else "\n".join(lines)


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
