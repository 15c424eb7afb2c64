"""Check what is no directive: the text as a whole, and the program below the header."""

from __future__ import annotations

import codecs
import re
import warnings

from ciao_kernel.errors import SourceError
from ciao_kernel.magics import header
from ciao_kernel.magics.diagnostics import shown
from ciao_kernel.magics.header import Header, Line, Style, Token
from ciao_kernel.magics.statements import starts
from ciao_kernel.magics.table import Table

MAX_BYTES = 1024 * 1024
"""Size limit of a cell: what a ConfigMap holds (1 MiB, Kubernetes' limit for one object)."""

_DIRECTIVE_BELOW = re.compile(r"[\r\n]%([A-Za-z][\w-]*)[ \t]*=")
_MAGIC = re.compile(r"[ \t\f]*(%%?\w*|[!?]+\w*)")
# IPython's other forms, tried only on a line that Python cannot read: x = !ls, x = %time, name?
_MAGIC_WITHIN = re.compile(r"[^=#'\"]*=[ \t]*([!%]\w+)|[ \t]*[%\w.]+(\?\??)[ \t]*\Z")
_NAME = re.compile(r"%[ \t]*([A-Za-z][\w-]*)")
_CODING = re.compile(r"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
# IPython's own, which no directive is near to.
_TAKEN = frozenset({"time", "timeit", "env", "pip", "conda", "run", "load", "save", "cd", "ls"})
_NO_CODE = re.compile(r"[ \t\f]*(?:#.*)?\Z")


def check_text(text: str, table: Table) -> None:
    """Raise SourceError where a text cannot become a file for Python at all."""
    if (place := text.find("\0")) >= 0:
        raise _at(
            text,
            table,
            place,
            "the cell holds a null byte, which Python does not take.",
            "Delete it, or type the line again.",
        )
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise _at(
            text,
            table,
            error.start,
            f"the cell holds half a character (U+{ord(text[error.start]):04X}), "
            "which cannot be written to a file.",
            "Delete it, or type the line again.",
        ) from None
    if size > MAX_BYTES:
        raise SourceError(
            f"the cell has {size:,} bytes; {MAX_BYTES:,} is the limit.",
            "Move data to a file and name it with %files, or code to a module beside the notebook.",
        )


def _at(text: str, table: Table, place: int, message: str, hint: str) -> SourceError:
    line = next(line for line in header.lines(text) if place < line.start + len(line.text) + 1)
    safe, column, _ = shown(line, table, place - line.start)
    # What is wrong with the character also keeps it from being shown.
    safe = "".join("\ufffd" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in safe)
    return SourceError(message, hint, line=line.number, column=column, text=safe)


def names_below(text: str, head: Header) -> list[str]:
    """Names in front of ``=`` in the lines below a header that look like directives."""
    return [match[1] for match in _DIRECTIVE_BELOW.finditer(text, _body_start(head, text))]


def below(text: str, head: Header) -> tuple[Token, ...]:
    """Find directives below the header that stand where a statement would.

    The first ciao took every line that starts with ``%``. Here the same line in a string stays
    what it is: nothing is taken from a text that Python can read, nor from within a statement.
    """
    start = _body_start(head, text)
    if _DIRECTIVE_BELOW.search(text, start) is None:
        return ()
    if syntax_error(header.deliver(text, head.tokens)) is None:
        return ()
    places = set(starts(text))
    found: list[Token] = []
    for line in header.lines(text):
        if line.start > start and line.start in places and line.text.startswith("%"):
            tokens = tuple(header.split(line, 0))
            if any(token.name and token.equals for token in tokens):
                found += tokens
    return tuple(found)


def _body_start(head: Header, text: str) -> int:
    # A cell that starts with another cell magic (%%bash) is that magic's alone.
    if head.body is None or head.body.text.lstrip().startswith("%%"):
        return len(text)
    return head.body.start


def check_header(head: Header, table: Table, style: Style) -> None:
    """Raise SourceError where a line of the header is IPython's."""
    if head.foreign:
        raise _foreign(head.foreign[0], table, style)


def check_body(
    text: str, code: str, head: Header, table: Table, style: Style, *, compiles: bool
) -> None:
    """Raise SourceError where the program cannot run.

    Args:
        text: The cell as written.
        code: The program that would be delivered.
        head: The header of the text.
        table: The directives, to tell a slip of one from a magic.
        style: How directives are marked.
        compiles: Whether this Python is the one that has to read the program.
    """
    if head.body is None:
        raise SourceError(
            "the cell has directives and no code.",
            "Put the training code below them, in the same cell.",
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
        raise _foreign(magic, table, style)
    if error is None:
        return
    line = next((line for line in header.lines(text) if line.number == number), None)
    if line is not None and _MAGIC_WITHIN.match(line.text):
        raise _foreign(line, table, style)
    message = error.msg or "the code is not Python"
    raise SourceError(
        message if message.endswith((".", "?", "!")) else message + ".",
        "Python cannot read the cell, so no replica could.",
        line=number,
        column=max(0, (error.offset or 1) - 1),
        text=line.text if line else "",
    )


def _first_magic(code: str, first: int) -> Line | None:
    """The first line of the body that is IPython's where Python wants a statement."""
    suspects = [
        line for line in header.lines(code) if line.number >= first and _MAGIC.match(line.text)
    ]
    places = set(starts(code)) if suspects else ()
    return next((line for line in suspects if line.start in places), None)


def _foreign(line: Line, table: Table, style: Style) -> SourceError:
    within = None if _MAGIC.match(line.text) else _MAGIC_WITHIN.match(line.text)
    match = within or _MAGIC.match(line.text)
    group = 2 if within and within[2] else 1
    word = match[group] if match else line.text.strip()
    column = match.start(group) if match else header.indent(line.text)
    name = _NAME.match(line.text, column)
    near = table.nearest(name[1]) if name and name[1] not in _TAKEN else None
    message = f"{word} is for IPython, and a job is plain Python."
    if word == "%%ciao":
        message = "%%ciao takes nothing on its line."
        hint = "Write directives on lines of their own below it, as %worker=2."
    elif word == "%":
        message = "the name of a directive is missing behind %."
        hint = f"Did you mean %{near}=…?" if near else "`%ciao magics` lists all directives."
    elif near and style is Style.FILE:
        hint = f"In a file a directive is a comment on top: #%{near}=…"
    elif near and table.find(name[1] if name else ""):
        hint = "Directives stand on top of the cell, each line from its first column."
    elif near:
        hint = f"Did you mean %{near}=…?"
    elif re.match(r"[!%][ \t]*(?:pip|conda|mamba|uv)\b", line.text[column:]):
        hint = "Install packages in a plain cell above; replicas on this machine share them."
    else:
        hint = "Move it to a plain cell of its own."
    safe, column, _ = shown(line, table, column)
    return SourceError(message, hint, line=line.number, column=column, text=safe)


def _check_coding(text: str, code: str, table: Table) -> None:
    """Refuse a coding line that is not UTF-8, for that is what the program is delivered in.

    A directive can become one: ``#%args=--encoding=cp1252`` is one to Python.
    """
    for line, delivered in zip(header.lines(text), header.lines(code), strict=False):
        match = _CODING.match(delivered.text.removeprefix("\ufeff"))
        if match and not _is_utf8(match[1]):
            if line.text == delivered.text:
                message = f"the text says that its encoding is {match[1]}; ciao delivers UTF-8."
                hint = "Delete this line."
            else:
                message = f"Python would take this line for the encoding of the file, {match[1]}."
                hint = "Move it to the third line or below, or write a space instead of the last =."
            raise SourceError(message, hint, line=line.number, text=shown(line, table).text)
        if line.number == 2 or not _NO_CODE.match(delivered.text.removeprefix("\ufeff")):
            return


def _is_utf8(name: str) -> bool:
    try:
        return codecs.lookup(name).name in ("utf-8", "utf-8-sig")
    except LookupError:
        return False


def syntax_error(code: str) -> SyntaxError | None:
    """Compile a program and return what is wrong with it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Python drops the mark when it reads a file, and only then.
            compile(code.removeprefix("\ufeff"), "<cell>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return error
    except (RecursionError, MemoryError, OverflowError):
        return SyntaxError("the code is nested too deeply for Python", ("", 0, 0, ""))
    except ValueError as error:
        return SyntaxError(str(error), ("", 0, 0, ""))
    return None
