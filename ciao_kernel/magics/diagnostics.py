"""Errors that show a directive's line, with a caret under the wrong part and without secrets."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ciao_kernel import redaction, visible_text
from ciao_kernel.errors import DirectiveError
from ciao_kernel.magics import header
from ciao_kernel.magics.directives.cluster import KeyValues
from ciao_kernel.magics.directives.images import Address
from ciao_kernel.magics.header import Line, Token
from ciao_kernel.magics.shell_words import words
from ciao_kernel.magics.spelling import key
from ciao_kernel.magics.table import Directive, Table
from ciao_kernel.magics.value_types import Pairs, Word, Words

_MARKED = re.compile(r"(?:%[^\w%;]{0,8}+|\A[^\w%]{0,8}+)([A-Za-z][\w-]*)")
"""What may be meant as a directive: after ``%``, or after other signs at the start of a line."""
_SLIP = 0.75
"""Likeness to the name of a directive without which a line without ``%`` is Python."""
_QUOTED = 60
"""Characters of a value that a message quotes."""
_LONGEST = 64
"""Characters of a name that are compared."""
_LIKE = ("args", "arguments", "env", "environment", "environ", "envsecret", "secret", "token")
"""More names whose slips have a value that may be a password."""
_FOREIGN = re.compile(r"\s*[^\w\s#'\"@(\[{*~+.)\]}:,=-]")
"""The start of a line that is not Python."""
_BEHIND = re.compile(r"\s{0,8}=\s{0,8}([^\s;]{0,200})")
_HARMLESS = re.compile(r"(?i)[0-9]{1,6}|true|false|yes|no")
_MOST = 200
"""Directives of a line that are inspected; the rest of a longer line is hidden."""


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
    """Hide what may be a password: errors end up in logs and in saved notebooks.

    Args:
        line: The line as written.
        table: The directives.
        column: Start of the wrong part.
        end: Column after the wrong part.
    """
    spans = [*_directives(line, table), *redaction.secrets(line.text)]
    return _hidden(line.text, spans, column, end)


def may_be_secret(entry: Directive) -> bool:
    """Return whether no error shows the values of a directive.

    Some users write a password where the name of a Secret belongs.
    """
    return isinstance(entry.kind, Pairs | Address) or "secret" in key(entry.name)


def program_line(line: Line, table: Table, column: int) -> Shown:
    """Return a line of the program for an error of Python.

    Only values of what may be meant as a directive are hidden: names such as ``tokens`` are usual
    in programs, and Python shows such a line too.
    """
    spans = [*_directives(line, table)]
    if _FOREIGN.match(line.text):
        spans += redaction.secrets(line.text)
    return _hidden(line.text, spans, column, column + 1)


def value(text: str, table: Table) -> str:
    """Return the start of a directive's value for a message, without what may be a password."""
    return short(shown(Line(0, 0, text, ""), table).text)


def _hidden(text: str, spans: Iterable[tuple[int, int]], column: int, end: int) -> Shown:
    parts, last = [], 0
    start, stop = column, end
    for first, span_end in _united(spans):
        parts += [text[last:first], "…"]
        last = span_end
        # Positions after the value move to the left; positions in it move to its start.
        start -= max(0, min(column, span_end) - first - (column >= span_end))
        stop -= max(0, min(end, span_end) - first - (end >= span_end))
    return Shown("".join((*parts, text[last:])), start, max(1, stop - start))


def _united(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans in order, with those that overlap as one."""
    found: list[tuple[int, int]] = []
    for first, span_end in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(span_end, found[-1][1])
        else:
            found.append((first, span_end))
    return found


def _directives(line: Line, table: Table) -> Iterator[tuple[int, int]]:
    """Yield the columns of values that may be secret, also for a misspelt directive."""
    text, last = line.text, 0
    secret = [key(entry.name) for entry in table.entries if may_be_secret(entry)]
    for number, match in enumerate(_MARKED.finditer(text)):
        if number == _MOST:  # no line for a human
            yield max(last, match.start()), len(text)
            return
        if match.start() < last or not _is_secret(match, table, secret):
            continue
        start, end = header.value_after(line, match.end())
        if start == end:
            continue
        try:
            words(text[start:end])
        except ValueError:
            end = len(text)  # Without a closing quote the end is unknown.
        last = end
        yield start, end


def _is_secret(match: re.Match[str], table: Table, secret: Sequence[str]) -> bool:
    """Return whether the value after a name may be a password."""
    name = key(match[1][:_LONGEST])
    if not match[0].startswith("%"):
        return bool(difflib.get_close_matches(name, secret, n=1, cutoff=_SLIP))
    if entry := table.find(name):
        return may_be_secret(entry)
    if difflib.get_close_matches(name, [*secret, *_LIKE], n=1):
        return True
    rest = _BEHIND.match(match.string, match.end())
    if rest is None:  # a magic of IPython
        return False
    near = table.find(table.nearest(name) or "")
    harmless = near is not None and not isinstance(near.kind, Words | Word | KeyValues)
    return "=" in rest[1] or not (harmless or _HARMLESS.fullmatch(rest[1]))


def mark(token: Token) -> str:
    """Return the prefix of the name: ``%``, or ``--`` on a command line."""
    return "%" if token.line.number else "--"


def named(token: Token) -> str:
    """Return the directive as the user wrote it: ``%worker``, or ``--worker`` as an option."""
    return mark(token) + short(token.name)


def short(text: str) -> str:
    """Shorten a text that is too long for a message."""
    return visible_text.short(text, _QUOTED)
