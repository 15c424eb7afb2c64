"""Directives in a loop, as a sweep is written at first: the notice, and the error behind blanks.

Directives hold for the whole cell, so a loop around them makes no more jobs: it runs in the
replicas of one.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence

from ciao_kernel.errors import SourceError
from ciao_kernel.magics import header
from ciao_kernel.magics.diagnostics import shown
from ciao_kernel.magics.header import Header, Line, Token
from ciao_kernel.magics.statements import starts
from ciao_kernel.magics.table import Table
from ciao_kernel.visible_text import visible

# IPython, too, takes the sign for a part of a magic's name, and has none of that name.
_BEHIND_BLANKS = re.compile(r"[\r\n][ \t]+%([A-Za-z][\w-]*)=(?!=)")
_LOOP = re.compile(r"(?:async[ \t]+)?for\b(?:[ \t]+(\w+)[ \t]+in\b)?|while\b")
_UNNAMED = "value"
"""Stands in a hint for the variable of a loop that has none, or several."""
_SHOWN = 60
"""Maximum number of characters that are shown of a statement."""


def notices(code: str, below: Sequence[Token]) -> Iterator[str]:
    """Yield a sentence if directives are inside of a loop.

    Args:
        code: The program, with directives turned into comments in place.
        below: Directives below its first line.
    """
    loop = _loop_around(code, {token.line.number for token in below}) if below else None
    if loop is None:
        return
    # Python ends lines as this does, and str.splitlines() at other characters too.
    line = visible(list(header.lines(code))[loop.lineno - 1].text.strip())
    text = line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
    yield (
        f"the loop of line {loop.lineno} (`{text}`) runs in the replicas of one job: the "
        f"directives in it hold for the whole cell. {_several(_variable(loop))}"
    )


def _variable(loop: ast.For | ast.While) -> str:
    target = loop.target if isinstance(loop, ast.For) else None
    return target.id if isinstance(target, ast.Name) else _UNNAMED


def _several(name: str) -> str:
    """Return how several jobs are started; ``name`` is the loop's variable."""
    return (
        "For a job each, write the program to a file, and in a loop "
        f"`%ciao run FILE --detach --args {{{name}}}`."
    )


def _loop_around(code: str, lines: set[int]) -> ast.For | ast.While | None:
    """Return the outermost loop around one of some lines; None if this Python finds none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code.removeprefix("\ufeff"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # told elsewhere, if it is an error
    loops = (one for one in ast.walk(tree) if isinstance(one, ast.For | ast.While))
    around = (
        one
        for one in loops
        if any(one.lineno < line <= (one.end_lineno or one.lineno) for line in lines)
    )
    return next(around, None)


def behind_blanks(text: str, head: Header, table: Table) -> Line | None:
    """Return the first line of a cell that is a directive behind blanks, in place of a statement.

    Args:
        text: A cell without any other directive.
        head: Its header.
        table: The directives.
    """
    if head.body is None or head.body.text.lstrip().startswith("%%"):
        return None  # the text of another cell magic
    found = [
        match
        for match in _BEHIND_BLANKS.finditer(text)
        # IPython joins a line of a shell or a magic that ends in a backslash with the next one.
        if table.find(match[1]) and not text.endswith("\\", 0, match.start())
    ]
    places = set(starts(text)) if found else ()
    at = next((match.start() + 1 for match in found if match.start() + 1 in places), None)
    return next((line for line in header.lines(text) if line.start == at), None)


def error(text: str, line: Line, table: Table) -> SourceError:
    """Return the error for a directive behind blanks.

    Args:
        text: The cell.
        line: The directive's line.
        table: The directives.
    """
    safe, column, _ = shown(line, table, header.indent(line.text))
    loop = _loop_above(text, line)
    return SourceError(
        "directives begin in the first column, and hold for the whole cell.",
        "Remove the blanks before it, or write it at the top." if loop is None else _several(loop),
        line=line.number,
        column=column,
        text=safe,
    )


def _loop_above(text: str, line: Line) -> str | None:
    """Return the variable of a loop around a line; None if the line is in no loop.

    Blanks alone tell it: such a cell is no Python, so that nothing else knows its blocks.
    """
    places = set(starts(text))
    above = [one for one in header.lines(text) if one.start < line.start and one.start in places]
    inner = _width(line.text)
    for one in reversed(above):
        statement, width = one.text.lstrip(), _width(one.text)
        if width >= inner or not statement or statement.startswith("#"):
            continue
        if match := _LOOP.match(statement):
            return match[1] or _UNNAMED
        inner = width
    return None


def _width(text: str) -> int:
    """Return the indentation of a line in columns, with tabs as Python takes them."""
    return len(text[: header.indent(text)].expandtabs(8))
