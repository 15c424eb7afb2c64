"""Find the directives of a cell: which lines they are, and where each name and value stands.

The header is the leading run of blank lines, comments and directives. Nothing is ever
removed: :func:`deliver` turns each directive into a comment in place, so that line N of the
cell stays line N of the program, byte for byte but for one ``#``.

Two styles: in a cell a directive is ``%worker=2``; in a ``.py`` file it is ``#%worker=2``,
which is a comment to Python.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ciao_kernel.magics.table import Table


class Style(enum.Enum):
    """How a directive is marked."""

    CELL = "%"
    FILE = "#%"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a text; ``number`` counts from 1 and ``start`` is its offset."""

    number: int
    start: int
    text: str
    end: str
    """What ends it: ``\\n``, ``\\r\\n``, ``\\r`` or nothing."""


@dataclass(frozen=True, slots=True)
class Token:
    """One directive as written. Columns count from 0 in its line."""

    line: Line
    column: int
    """Where its ``%`` stands."""
    name: str
    value: str | None
    """The text behind the name, stripped; None where there is none."""
    value_column: int
    equals: bool
    """Whether ``=`` follows the name."""

    @property
    def name_column(self) -> int:
        """Where the name starts."""
        return self.column + 1


@dataclass(frozen=True, slots=True)
class Header:
    """What :func:`scan` found."""

    tokens: tuple[Token, ...]
    foreign: tuple[Line, ...]
    """Lines in the header that are no directives: IPython's magics and ``!`` commands."""
    body: int
    """Number of the first line behind the header."""


# Only these end a line for Python's tokenizer; str.splitlines() knows eight more.
_LINE = re.compile(r"([^\r\n]*)(\r\n|\n|\r|\Z)")
_NAME = re.compile(r"%([A-Za-z][A-Za-z0-9_-]*)")
_SEPARATOR = re.compile(r";[ \t]*(?=%)")
_QUOTED = re.compile(r"\\.|\"(?:\\.|[^\"\\])*\"|'[^']*'")
_CELL_MAGIC = re.compile(r"%%ciao[ \t]*(?=[\r\n]|\Z)")


def lines(text: str) -> Iterator[Line]:
    """Split a text as Python does."""
    number, start = 1, 0
    for match in _LINE.finditer(text):
        if match.start() == len(text) and number > 1:
            return
        yield Line(number, start, match[1], match[2])
        number, start = number + 1, match.end()


def is_cell_magic(text: str) -> bool:
    """Whether the cell starts with a bare ``%%ciao``, which makes it a job in any IPython."""
    return _CELL_MAGIC.match(text) is not None


def scan(text: str, table: Table, style: Style = Style.CELL) -> Header:
    """Read the header of a text. Never raises: what is wrong in it is for the parser to say."""
    tokens: list[Token] = []
    foreign: list[Line] = []
    number = 1
    for line in lines(text):
        number = line.number
        stripped = line.text.lstrip()
        if not stripped or (line.number == 1 and style is Style.CELL and is_cell_magic(text)):
            continue
        column = len(line.text) - len(stripped)
        if stripped.startswith(style.value) and not stripped.startswith(style.value + "%"):
            found = list(split(line, column + len(style.value) - 1))
            # "#%something" in a file may be any comment: only what reads as ours counts.
            if style is Style.FILE and not any(is_directive(token, table) for token in found):
                continue
            if any(is_directive(token, table) for token in found):
                tokens += found
            else:
                foreign.append(line)
        elif stripped.startswith("#"):
            continue
        elif style is Style.CELL and stripped.startswith(("!", "%")) and line.number >= 1:
            foreign.append(line)
        else:
            break
    else:
        number += 1
    return Header(tuple(tokens), tuple(foreign), number)


def is_directive(token: Token, table: Table) -> bool:
    """Whether a token is one of ours, or a slip of one.

    IPython's magics take their arguments after a space, so ``%anything=`` is a directive that
    is spelt wrong, while ``%matplotlib inline`` is not ours.
    """
    return bool(token.name) and (table.find(token.name) is not None or token.equals)


def split(line: Line, column: int) -> Iterator[Token]:
    """Split a header line, whose ``%`` stands at ``column``, at each ``;%`` outside quotes."""
    end = len(line.text)
    while column < end:
        stop = _piece_end(line.text, column + 1)
        yield _token(line, column, stop)
        separator = _SEPARATOR.match(line.text, stop)
        column = separator.end() if separator else end


def _piece_end(text: str, position: int) -> int:
    """Where the directive that is read at ``position`` ends: at ``;%``, a comment or the end."""
    while position < len(text):
        character = text[position]
        if character in "\"'\\" and (quoted := _QUOTED.match(text, position)):
            position = quoted.end()
            continue
        if character == ";" and _SEPARATOR.match(text, position):
            return position
        if character == "#" and text[position - 1] in " \t":
            return len(text)
        position += 1
    return position


def _token(line: Line, column: int, stop: int) -> Token:
    match = _NAME.match(line.text, column, stop)
    if match is None:
        return Token(line, column, "", None, column + 1, equals=False)
    rest = line.text[match.end() : stop]
    behind = rest.lstrip()
    equals = behind.startswith("=")
    if equals:
        behind = behind[1:].lstrip()
    value_column = stop - len(behind)
    # A ";" that closes the line is the habit of another language, and means nothing.
    value = behind.rstrip()
    value = value[:-1].rstrip() if value.endswith(";") and not value.endswith("\\;") else value
    return Token(line, column, match[1], value if value or equals else None, value_column, equals)


def deliver(text: str, tokens: tuple[Token, ...], style: Style = Style.CELL) -> str:
    """Return the program: the text with each directive line made a comment in place."""
    if style is Style.FILE:
        return text
    places = sorted({token.line.start + _indent(token.line) for token in tokens})
    if is_cell_magic(text):
        places.insert(0, 0)
    parts, last = [], 0
    for place in places:
        parts += [text[last:place], "#"]
        last = place
    return "".join((*parts, text[last:]))


def _indent(line: Line) -> int:
    return len(line.text) - len(line.text.lstrip())
