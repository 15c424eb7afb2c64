"""Replaces ``{name}`` and ``$name`` in the values of directives by the notebook's variables.

This is IPython's rule for the line of a magic, but limited to what is certainly meant: only braces
around an expression with a variable of the notebook change. JSON, templates and the variables of a
shell stay as they are, because the cells of others contain them.
"""

from __future__ import annotations

import ast
import builtins
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ciao_kernel.magics.header import Token

_PLACE = re.compile(
    r"(?P<open>\{{1,2}) (?P<field>[^{}]{1,1000}) (?P<close>\}{1,2})"
    r"| (?P<dollars>\${1,2}) (?P<name>[^\W\d]\w*+) (?P<attributes>(?:\.[^\W\d]\w*+)*)",
    re.X,
)
_QUOTED = re.compile(r"""\\. | "(?>(?:[^"\\]++|\\.)*)" | '(?P<single>[^']*+)' """, re.X | re.S)
"""A part of a value that is quoted as in a shell."""

_LIST = re.compile(r"[\w.*?/-]*(?:,[\w.*?/-]*)+")
"""What stands in the braces of a shell's list, such as ``train,test``: it has no spaces."""

_CELL = "{cell}"
"""In ``%command`` it is the path of the cell's file, also if the notebook has such a variable."""


class Expanded(NamedTuple):
    """Directives with the values of variables."""

    tokens: tuple[Token, ...]
    notes: tuple[str, ...]
    """Sentences about braces that look like a variable but stay as written."""


def expand(tokens: Iterable[Token], variables: Mapping[str, Any] | None) -> Expanded:
    """Replace variables in the values of directives.

    ``{lr}``, ``{2 * lr:.3f}``, ``$lr`` and ``$config.lr`` become values; ``{{lr}}`` and ``$$lr``
    become ``{lr}`` and ``$lr``. Between single quotes ``$`` stays, as in a shell, and everywhere
    ``${lr}``, also with a ``$`` or backslash before it. A value cannot add a directive, because the
    directives are already separated.

    Args:
        tokens: The directives of a header.
        variables: The notebook's variables; None: values stay as written.
    """
    if variables is None:
        return Expanded(tuple(tokens), ())
    known, notes = dict(variables), dict[str, None]()

    def expanded(token: Token) -> Token:
        text = token.value or ""
        new, last, missing = "", 0, ""
        for match in _places(token):
            new += text[last : match.start()]
            try:
                new += _dollar(match, known) if match["name"] else _braces(match, known)
            except _Kept as kept:
                new += match[0]
                missing = missing or kept.missing
                if kept.note:
                    notes[f"{match[0]} stays as written: {kept.note}."] = None
            last = match.end()
        new += text[last:]
        token = replace(token, missing=missing) if missing else token
        return token if new == text else replace(token, value=new, written=len(text))

    found = tuple(map(expanded, tokens))
    return Expanded(found, tuple(notes))


def has_variable(token: Token, variables: Mapping[str, Any]) -> bool:
    """Return whether :func:`expand` may change a value; nothing is evaluated."""

    def may_change(match: re.Match[str]) -> bool:
        if name := match["name"]:
            return name in variables
        try:
            _expression(match, variables)
        except _Kept:
            return False
        return True

    return any(map(may_change, _places(token)))


def _places(token: Token) -> Iterator[re.Match[str]]:
    """Yield what may be a variable in a value."""
    text = token.value or ""
    in_command = token.name.lower() == "command"
    single = [part.span() for part in _QUOTED.finditer(text) if part["single"] is not None][::-1]
    for match in _PLACE.finditer(text):
        while single and single[-1][1] <= match.start():
            single.pop()
        quoted = bool(single) and single[-1][0] < match.start()
        if match[0] == _CELL and in_command:
            continue
        # ${name} is a shell's. So is $${name}, which makefiles and templates write for it.
        if match["open"] == "{" and text[match.start() - 1 : match.start()] == "$":
            continue
        if not (match["name"] and quoted):
            yield match


class _Kept(Exception):  # not an error: the text is no placeholder
    def __init__(self, note: str = "", missing: str = "") -> None:
        super().__init__(note)
        self.note = note
        self.missing = missing
        """Name that is no variable of the notebook, if that is why."""


def _dollar(match: re.Match[str], variables: dict[str, Any]) -> str:
    """Return the text for a name after ``$``, with the attributes that its value has.

    Raises:
        _Kept: The notebook has no such variable, or it has no text.
    """
    name, attributes = match["name"], match["attributes"]
    if name not in variables:
        raise _Kept(missing=name if match["dollars"] == "$" else "")
    if match["dollars"] == "$$":
        return match[0][1:]
    try:
        value, rest = _attribute(variables[name], attributes)
        return f"{value}{rest}"
    except Exception as error:  # any error of the user's object; its text may quote a password
        raise _Kept(_failure(error)) from None


def _attribute(value: Any, attributes: str) -> tuple[Any, str]:
    """Return the attribute of a value, and the text behind it: ``.txt`` in ``$name.txt``.

    Methods do not count: ``$name.index`` is meant as the name of a file.
    """
    found, rest = value, attributes
    for match in re.finditer(r"\.(\w+)", attributes):
        try:
            value = getattr(value, match[1])
        except AttributeError:
            break
        if not callable(value):
            found, rest = value, attributes[match.end() :]
    return found, rest


def _braces(match: re.Match[str], variables: dict[str, Any]) -> str:
    """Return the text for braces.

    Raises:
        _Kept: The content is no expression with a variable of the notebook, or it fails.
    """
    found = _expression(match, variables)
    if found is None:
        return match[0][1:-1]
    try:
        # The user's own expression, in the user's own kernel: as IPython evaluates it.
        result = eval(compile(found.tree, "<directive>", "eval"), variables)
        return format(string.Formatter().convert_field(result, found.conversion), found.format)
    except Exception as error:  # any error of the user's expression; its text may quote a password
        raise _Kept(_failure(error)) from None


class _Expression(NamedTuple):
    tree: ast.Expression
    conversion: Any
    format: str


def _expression(match: re.Match[str], variables: Mapping[str, Any]) -> _Expression | None:
    """Return the content of braces; None if the braces are escaped.

    Raises:
        _Kept: The content is no expression with a variable of the notebook.
    """
    escaped = match["open"] == "{{"
    if len(match["open"]) != len(match["close"]):
        raise _Kept
    try:
        ((_, expression, spec, conversion),) = string.Formatter().parse(f"{{{match['field']}}}")
        tree = ast.parse((expression or "").strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _Kept from None
    # {train,test} in a path is a shell's, where such a list has no spaces.
    if _LIST.fullmatch(expression or "") and not (escaped or spec or conversion):
        raise _Kept
    nodes = list(ast.walk(tree))
    bound = {node.arg for node in nodes if isinstance(node, ast.arg)}
    found = [node for node in nodes if isinstance(node, ast.Name)]
    bound |= {node.id for node in found if isinstance(node.ctx, ast.Store)}
    names = [node.id for node in found if node.id not in bound]
    unknown = [name for name in names if name not in variables and not hasattr(builtins, name)]
    missing = unknown[0] if unknown and not escaped else ""
    if not any(name in variables for name in names):
        alone = isinstance(tree.body, ast.Name) and not spec and not escaped
        raise _Kept("the notebook has no such variable" if alone else "", missing)
    if unknown:
        raise _Kept(missing=missing)
    return None if escaped else _Expression(tree, conversion, spec or "")


def _failure(error: Exception) -> str:
    return f"it fails with {type(error).__name__}"
