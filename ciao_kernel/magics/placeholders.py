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
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ciao_kernel.magics.header import Token

_PLACE = re.compile(
    r"(?P<open>\{{1,2}) (?P<field>[^{}]{1,1000}) (?P<close>\}{1,2})"
    r"| (?P<dollars>\${1,2}) (?P<name>[^\W\d]\w*+)",
    re.X,
)

_CELL = "{cell}"
"""In ``%command`` it is the path of the cell's file, also if the notebook has such a variable."""


class Expanded(NamedTuple):
    """Directives with the values of variables."""

    tokens: tuple[Token, ...]
    notes: tuple[str, ...]
    """Sentences about braces that look like a variable but stay as written."""


def expand(tokens: Iterable[Token], variables: Mapping[str, Any]) -> Expanded:
    """Replace variables in the values of directives.

    ``{lr}``, ``{2 * lr:.3f}`` and ``$lr`` become values; ``{{lr}}`` and ``$$lr`` become ``{lr}``
    and ``$lr``. A value cannot add a directive, because the directives are already separated.

    Args:
        tokens: The directives of a header.
        variables: The notebook's variables.
    """
    known, notes = dict(variables), dict[str, None]()

    def value(match: re.Match[str]) -> str:
        if name := match["name"]:
            if name not in known:
                return match[0]
            if match["dollars"] == "$$":
                return f"${name}"
        field = name or match["field"]
        if match["open"] and len(match["open"]) != len(match["close"]):
            return match[0]
        try:
            text = _field(field, known, escaped=match["open"] == "{{")
        except _Kept as kept:
            if kept.note:
                notes[f"{match[0]} stays as written: {kept.note}."] = None
            return match[0]
        return text

    def of_command(match: re.Match[str]) -> str:
        return match[0] if match[0] == _CELL else value(match)

    def expanded(token: Token) -> Token:
        text = token.value or ""
        new = _PLACE.sub(of_command if token.name.lower() == "command" else value, text)
        return token if new == text else replace(token, value=new, written=len(text))

    found = tuple(map(expanded, tokens))
    return Expanded(found, tuple(notes))


class _Kept(Exception):  # not an error: the braces are no placeholder
    def __init__(self, note: str = "") -> None:
        super().__init__(note)
        self.note = note


def _field(field: str, variables: dict[str, Any], *, escaped: bool) -> str:
    """Return the text for the content of braces.

    Raises:
        _Kept: The content is no expression with a variable of the notebook.
    """
    try:
        ((_, expression, spec, conversion),) = string.Formatter().parse(f"{{{field}}}")
        tree = ast.parse((expression or "").strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _Kept from None
    nodes = list(ast.walk(tree))
    bound = {node.arg for node in nodes if isinstance(node, ast.arg)}
    found = [node for node in nodes if isinstance(node, ast.Name)]
    bound |= {node.id for node in found if isinstance(node.ctx, ast.Store)}
    names = {node.id for node in found} - bound
    if not names.intersection(variables):
        alone = isinstance(tree.body, ast.Name) and not spec and not escaped
        raise _Kept("the notebook has no such variable" if alone else "")
    if not all(name in variables or hasattr(builtins, name) for name in names):
        raise _Kept
    if escaped:
        return f"{{{field}}}"
    try:
        # The user's own expression, in the user's own kernel: as IPython evaluates it.
        result = eval(compile(tree, "<directive>", "eval"), variables)
        return format(string.Formatter().convert_field(result, conversion), spec or "")
    except Exception as error:  # any error of the user's expression; its text may quote a password
        raise _Kept(f"it fails with {type(error).__name__}") from None
