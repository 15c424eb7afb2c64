"""The program of a cell: its text with each line of the header turned into a comment in place."""

from __future__ import annotations

import re

from ciao_kernel.magics.header import CIAO, Line, Style, Token, indent

_PYTHON_INDENT = re.compile(r"[ \t\f]*")


def deliver(text: str, tokens: tuple[Token, ...], style: Style = Style.CELL) -> str:
    """Return the program: the text with each directive line turned into a comment."""
    if style is Style.FILE:
        return text
    places = {_comment_place(token.line) for token in tokens}
    if opening := CIAO.match(text):
        places.add(opening.start(1))
    parts, last = [], 0
    for place in sorted(places):
        parts += [text[last:place], "#"]
        last = place
    return "".join((*parts, text[last:]))


def _comment_place(line: Line) -> int:
    """Return the offset for the ``#``: before the ``%``, or before blanks that Python rejects."""
    mark = int(line.start == 0 and line.text.startswith("\ufeff"))
    blank = _PYTHON_INDENT.match(line.text, mark)
    end = blank.end() if blank else mark
    return line.start + (end if end == indent(line.text) else mark)
