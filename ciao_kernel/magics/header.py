"""Find the directives of a cell: their lines, and the columns of each name and value.

The header consists of the blank lines, comments and directives at the start of a cell. Nothing is
ever removed: :mod:`ciao_kernel.magics.program_text` turns each directive into a comment in place.
Line N of the cell stays line N of the program, byte for byte except for one ``#``.

There are two styles: in a cell a directive is ``%worker=2``; in a ``.py`` file it is
``#%worker=2``, which is a comment in Python.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ciao_kernel.magics.table import Scope, Table
from ciao_kernel.magics.value_types import may_be_bare


class Style(enum.Enum):
    """Marker of a directive."""

    CELL = "%"
    FILE = "#%"

    @property
    def comment(self) -> str:
        """Return the text before the first ``%`` of a line."""
        return self.value.removesuffix("%")

    @property
    def noun(self) -> str:
        """Return the word for a text with such directives."""
        return "cell" if self is Style.CELL else "file"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a text; ``number`` counts from 1 and ``start`` is its offset."""

    number: int
    start: int
    text: str
    end: str
    """Line end: ``\\n``, ``\\r\\n``, ``\\r`` or nothing."""


@dataclass(frozen=True, slots=True)
class Token:
    """One directive as written. Columns count from 0 in its line."""

    line: Line
    column: int
    """Column of the ``%``."""
    name: str
    value: str | None
    """Stripped text after the name, without a comment; None if there is no value."""
    value_column: int
    equals: bool
    """True if ``=`` follows the name."""
    written: int | None = None
    """Length of the value in its line, if a variable of the notebook has changed the value."""
    missing: str = field(default="", compare=False)
    """A name in the value that may be meant as a variable, but the notebook has none of it."""

    @property
    def as_written(self) -> str | None:
        """Return the value in the line, if a variable of the notebook has changed it; else None."""
        return None if self.written is None else self.line.text[self.value_column : self.end]

    @property
    def name_column(self) -> int:
        """Return the column of the name."""
        return self.column + 1

    @property
    def name_end(self) -> int:
        """Return the column after the name."""
        return self.name_column + len(self.name)

    @property
    def end(self) -> int:
        """Return the column after the last character of the directive."""
        written = len(self.value or "") if self.written is None else self.written
        return self.value_column + written


@dataclass(frozen=True, slots=True)
class Header:
    """Result of :func:`scan`."""

    tokens: tuple[Token, ...]
    foreign: tuple[Line, ...]
    """Lines in the header that are not directives: IPython's magics and ``!`` commands."""
    last: Line | None
    """The last line of the header."""
    body: Line | None
    """The first line after the header; None if there is none."""

    def holds(self, line: Line) -> bool:
        """Return whether a line of the text belongs to the header."""
        return self.body is None or line.number < self.body.number


# Only these end a line for Python's tokenizer; str.splitlines() accepts eight more.
_LINE = re.compile(r"([^\r\n]*)(\r\n|\n|\r|\Z)")
# Blanks in text copied from a web page (no-break space, byte order mark) are accepted before a
# directive, although Python rejects them.
_INDENT = re.compile(r"[\s\ufeff]*")
_NAME = re.compile(r"%([A-Za-z][A-Za-z0-9_-]*)")
_EQUALS = re.compile(r"\s*=")
# One directive: up to an unquoted `;%` or comment. A quote that is never closed is part of the
# text; parsing the value reports it. This and other modules use (?>(…)*) instead of (…)*+, which
# loses a character in Python 3.11.4 and older, for example in Debian 12.
_PIECE = re.compile(
    r"""(?>(?:
      [^;\#\\"']++ | \\. | "(?>(?:\\.|[^"\\]++)*)" | '[^']*+'
      | ;(?![ \t\xa0]*%) | (?<![ \t])\# | [\\"']
    )*)""",
    re.X,
)
_SEPARATOR = re.compile(r";[ \t\xa0]*(?=%)")
_APART = re.compile(r"%(?:%|[ \t\xa0]+)([A-Za-z][\w-]*)[ \t]*=")
# "# %%" starts a cell of an editor.
_FILE_MARK = re.compile(r"#([ \t]*)(?=%(?!%)|%%[A-Za-z][\w-]*[ \t]*=)")
CIAO = re.compile(r"\ufeff?(?>(?:[ \t\f]*(?:\r\n|\n|\r))*)(%%ciao)(?=[ \t\r\n]|\Z)")
_CELL_MAGIC = re.compile(r"%%(\w*)")
# Cell magics that run the cell as Python. Before a header they are reported as an error; a cell
# that starts with another magic (%%bash, %%writefile) belongs to that magic.
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
    """Return the line of a cursor; None on the empty line after the last line end."""
    return next((line for line in lines(text) if cursor <= line.start + len(line.text)), None)


def is_cell_magic(text: str) -> bool:
    """Return whether the cell starts with ``%%ciao``, which makes it a job in any IPython."""
    return CIAO.match(text) is not None


def has_misplaced_mark(head: Header) -> bool:
    """Return whether ``%%ciao`` is below a comment or a magic; IPython knows it at the top only."""
    magics = (_CELL_MAGIC.match(line.text, indent(line.text)) for line in head.foreign)
    first = next((magic for magic in magics if magic), None)  # another one has the rest as its text
    return first is not None and first[1] == "ciao"


def scan(text: str, table: Table, style: Style = Style.CELL) -> Header:
    """Return the header of a text. Never raises: the parser reports errors in the header."""
    head = _scan(text, table, style, sure=False)
    # In a file with a directive, comments that only look like one are slips, not prose.
    return _scan(text, table, style, sure=True) if style is Style.FILE and head.tokens else head


def _scan(text: str, table: Table, style: Style, *, sure: bool) -> Header:
    tokens: list[Token] = []
    foreign: list[Line] = []
    opening = CIAO.match(text) if style is Style.CELL else None
    last = None
    for line in lines(text):
        column = indent(line.text)
        if opening and line.start + column == opening.start(1):
            if line.text[column:].strip() != opening[1]:
                foreign.append(line)
        elif (found := pieces(line, style)) and _has_directives(found, table, style, sure):
            tokens += found
        elif style is Style.CELL and line.text.startswith(("%", "!"), column):
            magic = _CELL_MAGIC.match(line.text, column)
            if magic and not (tokens or opening or _is_reported(magic[1], text, line)):
                return Header((), (), last, line)
            foreign.append(line)
        elif column < len(line.text) and line.text[column] != "#":
            return Header(tuple(tokens), tuple(foreign), last, line)
        last = line
    return Header(tuple(tokens), tuple(foreign), last, None)


def _is_reported(magic: str, text: str, line: Line) -> bool:
    """Return whether a cell magic is an error; IPython does not know %%ciao below a comment."""
    return magic in _RUN_PYTHON or (magic == "ciao" and indent(text) < line.start)


def pieces(line: Line, style: Style) -> tuple[Token, ...]:
    """Return the directives of a line, also unknown ones; nothing for any other line."""
    column = indent(line.text)
    if style is Style.FILE:
        mark = _FILE_MARK.match(line.text, column)
        return tuple(split(line, mark.end())) if mark else ()
    if line.text.startswith("%", column) and not line.text.startswith("%%", column):
        return tuple(split(line, column))
    return ()


def _has_directives(tokens: tuple[Token, ...], table: Table, style: Style, sure: bool) -> bool:
    first = tokens[0]
    if style is Style.FILE and sure and _is_meant(first, table):
        return True
    if style is Style.FILE and first.line.text[first.column - 1] != "#":
        # Formatters turn "#%worker=2" into "# %worker=2", which is still a directive. Prose can
        # look similar ("# %cpu of the host"), so only unambiguous directives are accepted.
        entry = table.find(first.name)
        flag = entry is not None and may_be_bare(entry.kind) and first.value is None
        return entry is not None and (first.equals or flag)
    return any(is_directive(token, table) for token in tokens)


def _is_meant(token: Token, table: Table) -> bool:
    """Return whether a comment is meant as a directive in a file that has another one."""
    entry = table.find(token.name or name_apart(token))
    if entry is None:  # %s= is a format, and %date= may be prose
        return token.equals and len(token.name) > 1 and table.nearest(token.name) is not None
    if token.equals:
        return True
    value, is_slip = token.value or "", not token.name
    if apart := _APART.match(token.line.text, token.column):
        value = token.line.text[slice(*value_after(token.line, apart.end(1)))]
    elif has_colon(token):
        value, is_slip = value[1:].lstrip(), True
    try:  # "# %worker 3" is one, and "# %cpu of the host" or "# %gpu: 80 is enough" is prose
        given = bool(entry.kind.parse(value))
    except ValueError:
        return False
    return is_slip or (given and entry.scope in (Scope.ROLE, Scope.RESOURCE))


def has_colon(token: Token) -> bool:
    """Return whether a colon is right behind the name, in the place of ``=``."""
    return (token.value or "")[:1] == ":" and token.value_column == token.name_end


def name_apart(token: Token) -> str:
    """Return the name of a directive that is not right behind its ``%``: ``% worker=2``; or ""."""
    found = _APART.match(token.line.text, token.column)
    return found[1] if found else ""


def is_directive(token: Token, table: Table) -> bool:
    """Return whether a token is a directive of ciao or a misspelt directive.

    IPython's magics take their arguments after a space. ``%anything=`` is therefore a misspelt
    directive, and ``%matplotlib inline`` is a magic.
    """
    entry = table.find(token.name)
    if entry is not None and entry.also_magic and token.value is not None and not token.equals:
        return False
    return bool(token.name) and (entry is not None or token.equals)


def split(line: Line, column: int) -> Iterator[Token]:
    """Split a header line with its ``%`` at ``column`` at each ``;%`` outside quotes."""
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
    value, value_column, equals = _value(line, match.end(), stop)
    return Token(line, column, match[1], value, value_column, equals)


def value_after(line: Line, end: int) -> tuple[int, int]:
    """Return the first column of a value, and the column after it.

    Args:
        line: A line that may be meant as a directive.
        end: Column after the name.
    """
    piece = _PIECE.match(line.text, end)
    value, start, _ = _value(line, end, piece.end() if piece else len(line.text))
    return start, start + len(value or "")


def _value(line: Line, end: int, stop: int) -> tuple[str | None, int, bool]:
    """Return the value between two columns, its column, and whether ``=`` is before it."""
    value_column = end
    sign = _EQUALS.match(line.text, value_column, stop)
    if sign is not None:
        value_column = sign.end()
    rest = line.text[value_column:stop].lstrip()
    if rest:
        value_column = stop - len(rest)
    # A ";" at the end of the line is a habit from other languages and is ignored.
    value = rest.rstrip()
    value = value[:-1].rstrip() if value.endswith(";") and not value.endswith("\\;") else value
    equals = sign is not None
    return value if value or equals else None, value_column, equals


def indent(text: str) -> int:
    """Return the number of blank characters at the start of a text."""
    match = _INDENT.match(text)
    return match.end() if match else 0
