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
from ciao_kernel.magics.value_types import Flag


class Style(enum.Enum):
    """How a directive is marked."""

    CELL = "%"
    FILE = "#%"

    @property
    def comment(self) -> str:
        """What stands in front of the first ``%`` of a line."""
        return self.value.removesuffix("%")


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
    """The text behind the name, stripped, without a comment; None where there is none."""
    value_column: int
    equals: bool
    """Whether ``=`` follows the name."""

    @property
    def name_column(self) -> int:
        """Where the name starts."""
        return self.column + 1

    @property
    def name_end(self) -> int:
        """Column behind the name."""
        return self.name_column + len(self.name)

    @property
    def end(self) -> int:
        """Column behind the last character of the directive."""
        return self.value_column + len(self.value or "")


@dataclass(frozen=True, slots=True)
class Header:
    """What :func:`scan` found."""

    tokens: tuple[Token, ...]
    foreign: tuple[Line, ...]
    """Lines in the header that are no directives: IPython's magics and ``!`` commands."""
    last: Line | None
    """The last line of the header."""
    body: Line | None
    """The first line behind the header; None where there is none."""

    def holds(self, line: Line) -> bool:
        """Whether a line of the text is one of the header's."""
        return self.body is None or line.number < self.body.number


# Only these end a line for Python's tokenizer; str.splitlines() knows eight more.
_LINE = re.compile(r"([^\r\n]*)(\r\n|\n|\r|\Z)")
# Blanks that come with text from a web page (no-break space, byte order mark) are forgiven in
# front of a directive, although Python would not take them.
_INDENT = re.compile(r"[\s\ufeff]*")
_PYTHON_INDENT = re.compile(r"[ \t\f]*")
_NAME = re.compile(r"%([A-Za-z][A-Za-z0-9_-]*)")
_EQUALS = re.compile(r"\s*=")
# One directive: up to a `;%` or a comment that are not in quotes. A quote that is never closed
# is taken as it stands; reading the value complains about it. Here and in other modules (?>(…)*)
# and not (…)*+, which loses a character in Python 3.11.4 and older, for one Debian 12's.
_PIECE = re.compile(
    r"""(?>(?:
      [^;\#\\"']++ | \\. | "(?>(?:\\.|[^"\\]++)*)" | '[^']*+'
      | ;(?![ \t\xa0]*%) | (?<![ \t])\# | [\\"']
    )*)""",
    re.X,
)
_SEPARATOR = re.compile(r";[ \t\xa0]*(?=%)")
_FILE_MARK = re.compile(r"#([ \t]*)(?=%(?!%))")
_CIAO = re.compile(r"\ufeff?(?>(?:[ \t\f]*(?:\r\n|\n|\r))*)(%%ciao)(?=[ \t\r\n]|\Z)")
_CELL_MAGIC = re.compile(r"%%(\w*)")
# Cell magics that run the cell as Python. In front of a header they are a mistake that is
# worth a word; behind any other (%%bash, %%writefile) the cell is that magic's alone.
_RUN_PYTHON = frozenset({"capture", "debug", "prun", "time", "timeit"})


def lines(text: str) -> Iterator[Line]:
    """Split a text as Python does."""
    number, start = 1, 0
    for match in _LINE.finditer(text):
        if match.start() == len(text) and number > 1:
            return
        yield Line(number, start, match[1], match[2])
        number, start = number + 1, match.end()


def line_at(text: str, cursor: int) -> Line | None:
    """The line that a cursor is on; None on the empty line behind the last line end."""
    return next((line for line in lines(text) if cursor <= line.start + len(line.text)), None)


def is_cell_magic(text: str) -> bool:
    """Whether the cell starts with ``%%ciao``, which makes it a job in any IPython."""
    return _CIAO.match(text) is not None


def scan(text: str, table: Table, style: Style = Style.CELL) -> Header:
    """Read the header of a text. Never raises: what is wrong in it is for the parser to say."""
    tokens: list[Token] = []
    foreign: list[Line] = []
    opening = _CIAO.match(text) if style is Style.CELL else None
    last = None
    for line in lines(text):
        column = indent(line.text)
        if opening and line.start + column == opening.start(1):
            if line.text[column:].strip() != opening[1]:
                foreign.append(line)
        elif (found := pieces(line, style)) and _ours(found, table, style):
            tokens += found
        elif style is Style.CELL and line.text.startswith(("%", "!"), column):
            magic = _CELL_MAGIC.match(line.text, column)
            if magic and not (tokens or opening or magic[1] in _RUN_PYTHON):
                return Header((), (), last, line)
            foreign.append(line)
        elif column < len(line.text) and line.text[column] != "#":
            return Header(tuple(tokens), tuple(foreign), last, line)
        last = line
    return Header(tuple(tokens), tuple(foreign), last, None)


def pieces(line: Line, style: Style) -> tuple[Token, ...]:
    """What a line holds if it is one of directives, ours or not: nothing if it is not."""
    column = indent(line.text)
    if style is Style.FILE:
        mark = _FILE_MARK.match(line.text, column)
        return tuple(split(line, mark.end())) if mark else ()
    if line.text.startswith("%", column) and not line.text.startswith("%%", column):
        return tuple(split(line, column))
    return ()


def _ours(tokens: tuple[Token, ...], table: Table, style: Style) -> bool:
    first = tokens[0]
    if style is Style.FILE and first.line.text[first.column - 1] != "#":
        # Formatters turn "#%worker=2" into "# %worker=2". It still counts, but prose may look
        # like it ("# %cpu of the host"), so only what can be nothing else is taken.
        entry = table.find(first.name)
        flag = entry is not None and isinstance(entry.kind, Flag) and first.value is None
        return entry is not None and (first.equals or flag)
    return any(is_directive(token, table) for token in tokens)


def is_directive(token: Token, table: Table) -> bool:
    """Whether a token is one of ours, or a slip of one.

    IPython's magics take their arguments after a space, so ``%anything=`` is a directive that
    is spelt wrong, while ``%matplotlib inline`` is not ours.
    """
    return bool(token.name) and (table.find(token.name) is not None or token.equals)


def split(line: Line, column: int) -> Iterator[Token]:
    """Split a header line, whose ``%`` stands at ``column``, at each ``;%`` outside quotes."""
    while True:
        piece = _PIECE.match(line.text, column + 1)
        stop = piece.end() if piece else len(line.text)
        yield _token(line, column, stop)
        separator = _SEPARATOR.match(line.text, stop)
        if separator is None:
            return
        column = separator.end()


def _token(line: Line, column: int, stop: int) -> Token:
    match = _NAME.match(line.text, column, stop)
    if match is None:
        return Token(line, column, "", None, column + 1, equals=False)
    value_column = match.end()
    sign = _EQUALS.match(line.text, value_column, stop)
    if sign is not None:
        value_column = sign.end()
    behind = line.text[value_column:stop].lstrip()
    if behind:
        value_column = stop - len(behind)
    # A ";" that closes the line is the habit of another language, and means nothing.
    value = behind.rstrip()
    value = value[:-1].rstrip() if value.endswith(";") and not value.endswith("\\;") else value
    equals = sign is not None
    return Token(line, column, match[1], value if value or equals else None, value_column, equals)


def deliver(text: str, tokens: tuple[Token, ...], style: Style = Style.CELL) -> str:
    """Return the program: the text with each directive line made a comment in place."""
    if style is Style.FILE:
        return text
    places = {_comment_place(token.line) for token in tokens}
    if opening := _CIAO.match(text):
        places.add(opening.start(1))
    parts, last = [], 0
    for place in sorted(places):
        parts += [text[last:place], "#"]
        last = place
    return "".join((*parts, text[last:]))


def _comment_place(line: Line) -> int:
    """Where the ``#`` goes: in front of the ``%``, or of blanks that Python does not take."""
    mark = int(line.start == 0 and line.text.startswith("\ufeff"))
    blank = _PYTHON_INDENT.match(line.text, mark)
    end = blank.end() if blank else mark
    return line.start + (end if end == indent(line.text) else mark)


def indent(text: str) -> int:
    """How many characters stand in front of the first that counts."""
    match = _INDENT.match(text)
    return match.end() if match else 0
