"""Check the text as a whole, and the program below the header."""

from __future__ import annotations

import codecs
import itertools
import re
import sys
import warnings

from ciao_kernel.errors import SourceError
from ciao_kernel.magics import header, ipython_lines
from ciao_kernel.magics.diagnostics import program_line, shown
from ciao_kernel.magics.header import Header, Line, Style, Token
from ciao_kernel.magics.newer_syntax import may_be_newer
from ciao_kernel.magics.program_text import deliver
from ciao_kernel.magics.statements import starts
from ciao_kernel.magics.table import Table

MAX_BYTES = 1024 * 1024
"""Size limit of a cell: that of a ConfigMap (1 MiB, Kubernetes' limit for one object)."""

_OWN = f"Python {sys.version_info.major}.{sys.version_info.minor}"
_DIRECTIVE_BELOW = re.compile(r"[\r\n]%([A-Za-z][\w-]*)[ \t]*=")
_COMMENT_BELOW = re.compile(r"[\r\n](?P<line>#[ \t]*%([A-Za-z][\w-]*)[ \t]*=)")
_CODING = re.compile(r"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_ASYNC = re.compile(r"'await' outside|outside (?:of an )?async")
_NO_CODE = re.compile(r"[ \t\f]*(?:#.*)?\Z")


def check_text(text: str, table: Table) -> None:
    """Raise SourceError if a text cannot be stored as a file for Python."""
    if (place := text.find("\0")) >= 0:
        raise _at(
            text,
            table,
            place,
            "the code contains a null byte, which Python does not accept.",
            "Delete it, or type the line again.",
        )
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise _at(
            text,
            table,
            error.start,
            f"the code contains half a character (U+{ord(text[error.start]):04X}), "
            "which cannot be written to a file.",
            "Delete it, or type the line again.",
        ) from None
    if size > MAX_BYTES:
        raise SourceError(
            f"the code has {size:,} bytes; {MAX_BYTES:,} is the limit.",
            "Move data to a file for %files, or move code to a module in the same folder.",
        )


def _at(text: str, table: Table, place: int, message: str, hint: str) -> SourceError:
    line = next(line for line in header.lines(text) if place < line.start + len(line.text) + 1)
    safe, column, _ = shown(line, table, place - line.start)
    # The wrong character cannot be displayed either.
    safe = "".join("\ufffd" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in safe)
    return SourceError(message, hint, line=line.number, column=column, text=safe)


def directive_names_below(text: str, head: Header) -> list[str]:
    """Return names before ``=`` in lines below a header that look like directives."""
    return [match[1] for match in _DIRECTIVE_BELOW.finditer(text, _body_start(head, text))]


def below(text: str, head: Header) -> tuple[Token, ...]:
    """Return directives below the header that are in the position of a statement.

    The first ciao used every line that starts with ``%``. Here a line in a string stays text:
    nothing is taken from a text that Python can compile, or from inside a statement.
    """
    start = _body_start(head, text)
    if _DIRECTIVE_BELOW.search(text, start) is None:
        return ()
    if syntax_error(deliver(text, head.tokens)) is None:
        return ()
    places = set(starts(text))
    found: list[Token] = []
    for line in header.lines(text):
        if line.start > start and line.start in places and line.text.startswith("%"):
            tokens = tuple(header.split(line, 0))
            if any(token.name and token.equals for token in tokens):
                found += tokens
    return tuple(found)


def comments_below(text: str, head: Header, table: Table) -> list[str]:
    """Return a sentence if a file has directives below its header, where they are comments.

    Notebook tools write each cell with its header, and some start a file with a docstring.
    """
    found = list(_COMMENT_BELOW.finditer(text, _body_start(head, text)))
    found = [match for match in found if table.find(match[2])]
    places = set(starts(text)) if found else ()
    lines = {line.start: line.number for line in header.lines(text)} if found else {}
    found = [match for match in found if match.start("line") in places]
    if not found:
        return []
    names = ", ".join(dict.fromkeys(f"%{match[2]}" for match in found))
    number = lines[found[0].start("line")]
    return [
        f"line {number} is a comment, no directive ({names}): the header ends at the first line of "
        "code or of a docstring."
    ]


def comments_within(text: str, head: Header, table: Table) -> list[str]:
    """Return a sentence if comments in the header of a file look like directives, but are none.

    They may be prose, such as ``# %date = today``, or have a name that is unlike all directives.

    Args:
        text: The file.
        head: Its header.
        table: The directives.
    """
    used = {token.line.number for token in head.tokens}
    found: list[tuple[int, str]] = []
    for line in itertools.takewhile(head.holds, header.lines(text)):
        first = next(iter(header.pieces(line, Style.FILE)), None)
        if first is None or line.number in used:
            continue
        colon = header.has_colon(first) and table.find(first.name) is not None
        name = first.name if first.equals or colon else header.name_apart(first)
        if len(name) > 1:  # %s= is a format
            found.append((line.number, name))
    if not found:
        return []
    names = ", ".join(dict.fromkeys(f"%{name}" for _, name in found))
    if known := next((entry for _, name in found if (entry := table.find(name))), None):
        return [
            f"line {found[0][0]} is a comment, no directive ({names}): a directive is written as "
            f"{known.example} behind #."
        ]
    return [
        f"line {found[0][0]} is a comment, no directive ({names}): `%ciao magics` lists all "
        "directives."
    ]


def _body_start(head: Header, text: str) -> int:
    # A cell that starts with another cell magic (%%bash) belongs to that magic.
    if head.body is None or head.body.text.lstrip().startswith("%%"):
        return len(text)
    return head.body.start


def check_header(head: Header, table: Table, style: Style) -> None:
    """Raise SourceError if the header contains a line for IPython."""
    if head.foreign:
        raise ipython_lines.error(head.foreign[0], table, style)


def check_body(
    text: str, code: str, head: Header, table: Table, style: Style, *, compiles: bool
) -> None:
    """Raise SourceError if the program cannot run.

    Args:
        text: The cell as written.
        code: The program that would be delivered.
        head: The header of the text.
        table: The directives, to distinguish a misspelt directive from a magic.
        style: Marker of directives.
        compiles: Compile the program with this Python.
    """
    if head.body is None:
        raise SourceError(
            f"the {style.noun} has directives but no code.",
            f"Put the training code below them, in the same {style.noun}.",
            line=head.last.number if head.last else 0,
            text=shown(head.last, table).text if head.last else "",
        )
    _check_coding(text, code, table)
    error = syntax_error(code) if compiles else None
    if compiles and error is None:
        return
    number = error.lineno or 0 if error else 0
    magic = _first_magic(code, head.body.number)
    if magic is not None and (not number or magic.number <= number):
        raise ipython_lines.error(magic, table, style)
    if error is None:
        return
    line = next((line for line in header.lines(text) if line.number == number), None)
    if line is not None and ipython_lines.WITHIN.match(line.text):
        raise ipython_lines.error(line, table, style)
    message = error.msg or "the code is not Python"
    column = max(0, (error.offset or 1) - 1)
    if line is not None:
        safe, column, _ = program_line(line, table, column)
    raise SourceError(
        message if message.endswith((".", "?", "!")) else message + ".",
        _hint(message, line.text if line else ""),
        line=number,
        column=column,
        text=safe if line else "",
    )


def _hint(message: str, line: str) -> str:
    """Return the remedy for a syntax error, by Python's message and the line; "" without one."""
    if _ASYNC.search(message):  # a plain cell may await below no function
        return (
            "A job runs plain Python: put the code into a coroutine, such as `async def main()`, "
            "and run it with `asyncio.run(main())`."
        )
    if message.endswith("outside function"):
        return "A job runs plain Python: put the line into a function, or leave it out."
    if not may_be_newer(message, line):
        return ""
    return (
        f"{_OWN}, on which ciao runs, cannot compile the code. If the replicas have a newer one "
        "that can, name it: %python=python3…."
    )


def _first_magic(code: str, first: int) -> Line | None:
    """Return the body's first line of IPython syntax in the position of a statement."""
    suspects = [
        line
        for line in header.lines(code)
        if line.number >= first and ipython_lines.STATEMENT.match(line.text)
    ]
    places = set(starts(code)) if suspects else ()
    return next((line for line in suspects if line.start in places), None)


def _check_coding(text: str, code: str, table: Table) -> None:
    """Reject an encoding declaration other than UTF-8: the program is delivered in UTF-8.

    A directive can become a declaration: Python reads ``#%args=--encoding=cp1252`` that way.
    """
    for line, delivered in zip(header.lines(text), header.lines(code), strict=False):
        match = _CODING.match(delivered.text.removeprefix("\ufeff"))
        if match and not _is_utf8(match[1]):
            if line.text == delivered.text:
                message = f"the text declares the encoding {match[1]}; ciao delivers UTF-8."
                hint = "Delete this line."
            else:
                message = f"Python would read this line as the encoding of the file, {match[1]}."
                hint = "Move it to the third line or below, or replace the last = with a space."
            raise SourceError(message, hint, line=line.number, text=shown(line, table).text)
        if line.number == 2 or not _NO_CODE.match(delivered.text.removeprefix("\ufeff")):
            return


def _is_utf8(name: str) -> bool:
    try:
        return codecs.lookup(name).name in ("utf-8", "utf-8-sig")
    except LookupError:
        return False


def syntax_error(code: str) -> SyntaxError | None:
    """Compile a program and return its syntax error, or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Python removes the byte order mark only when it reads a file.
            compile(code.removeprefix("\ufeff"), "<cell>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return error
    except (RecursionError, MemoryError, OverflowError):
        return SyntaxError("the code is nested too deeply for Python", ("", 0, 0, ""))
    except ValueError as error:
        return SyntaxError(str(error), ("", 0, 0, ""))
    return None
