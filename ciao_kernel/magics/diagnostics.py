"""Errors that show the line of a directive, with a caret under the wrong part and no secrets."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import NamedTuple

from ciao_kernel.errors import DirectiveError
from ciao_kernel.magics import header
from ciao_kernel.magics.header import Line, Token
from ciao_kernel.magics.images import Address
from ciao_kernel.magics.shell_words import words
from ciao_kernel.magics.table import Table, key
from ciao_kernel.magics.value_types import Pairs

_MARKED = re.compile(r"%([A-Za-z][\w-]*)")


def wrong(
    token: Token, table: Table, message: str, hint: str, *, whole: bool = False
) -> DirectiveError:
    """Make the error for a directive; the caret stands under its value, or under all of it."""
    start = token.column if whole or not token.value else token.value_column
    text, column, width = shown(token.line, table, start, token.end)
    return DirectiveError(
        message, hint, line=token.line.number, column=column, width=width, text=text
    )


class Shown(NamedTuple):
    """A line as an error may show it, and the place in it."""

    text: str
    column: int
    width: int


def shown(line: Line, table: Table, column: int = 0, end: int = 0) -> Shown:
    """Blank the values of variables: one may be a password, and errors go to logs.

    Args:
        line: The line as written.
        table: What directives there are.
        column: Where the wrong part starts.
        end: Column behind it.
    """
    parts, last = [], 0
    start, stop = column, end
    for first, behind in _secrets(line, table):
        parts += [line.text[last:first], "…"]
        last = behind
        # Places behind it move to the left, and those in it to its start.
        start -= max(0, min(column, behind) - first - (column >= behind))
        stop -= max(0, min(end, behind) - first - (end >= behind))
    return Shown("".join((*parts, line.text[last:])), start, max(1, stop - start))


def _secrets(line: Line, table: Table) -> Iterator[tuple[int, int]]:
    """Where values of variables stand in a line, those of a misspelt %envvar too."""
    names = [key(e.name) for e in table.entries if isinstance(e.kind, Pairs | Address)]
    last = 0
    for match in _MARKED.finditer(line.text):
        name = key(match[1])
        if match.start() < last or (name not in names and table.find(name)):
            continue
        if not difflib.get_close_matches(name, names, n=1):
            continue
        token = next(header.split(line, match.start()))
        if not token.value:
            continue
        last = token.end
        try:
            words(token.value)
        except ValueError:
            last = len(line.text)  # Without its closing quote nobody knows where it ends.
        yield token.value_column, last


def mark(token: Token) -> str:
    """What stands before its name: ``%``, or ``--`` on a command line."""
    return "%" if token.line.number else "--"


def named(token: Token) -> str:
    """The directive as the user knows it: ``%worker``, or ``--worker`` on a command line."""
    return mark(token) + token.name


def short(text: str) -> str:
    """Cut what would fill the message."""
    return text if len(text) <= 60 else text[:59] + "…"
