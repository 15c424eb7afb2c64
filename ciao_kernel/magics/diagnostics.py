"""Errors that show a directive's line, with a caret under the wrong part and without secrets."""

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
    """Return the error for a directive; the caret marks its value, or all of it if ``whole``."""
    start = token.column if whole or not token.value else token.value_column
    text, column, width = shown(token.line, table, start, token.end)
    return DirectiveError(
        message, hint, line=token.line.number, column=column, width=width, text=text
    )


class Shown(NamedTuple):
    """A line without secrets, and the position of the wrong part in it."""

    text: str
    column: int
    width: int


def shown(line: Line, table: Table, column: int = 0, end: int = 0) -> Shown:
    """Hide the values of variables: a value may be a password, and errors end up in logs.

    Args:
        line: The line as written.
        table: The directives.
        column: Start of the wrong part.
        end: Column after the wrong part.
    """
    parts, last = [], 0
    start, stop = column, end
    for first, behind in _secrets(line, table):
        parts += [line.text[last:first], "…"]
        last = behind
        # Positions after the value move to the left; positions in it move to its start.
        start -= max(0, min(column, behind) - first - (column >= behind))
        stop -= max(0, min(end, behind) - first - (end >= behind))
    return Shown("".join((*parts, line.text[last:])), start, max(1, stop - start))


def _secrets(line: Line, table: Table) -> Iterator[tuple[int, int]]:
    """Yield the columns of variables' values in a line, also for a misspelt %envvar."""
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
            last = len(line.text)  # Without a closing quote the end is unknown.
        yield token.value_column, last


def mark(token: Token) -> str:
    """Return the prefix of the name: ``%``, or ``--`` on a command line."""
    return "%" if token.line.number else "--"


def named(token: Token) -> str:
    """Return the directive as the user wrote it: ``%worker``, or ``--worker`` as an option."""
    return mark(token) + token.name


def short(text: str) -> str:
    """Shorten a text that is too long for a message."""
    return text if len(text) <= 60 else text[:59] + "…"
