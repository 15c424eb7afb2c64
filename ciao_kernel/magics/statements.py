"""Tell the lines of a Python text on which a statement starts from all others.

A ``%worker=2`` or a ``!pip`` in the middle of a string, of brackets or behind a backslash is
the user's text; at the start of a statement it cannot be Python. :mod:`ciao_kernel.magics.body`
asks this module only about texts that do not compile, so it has to cope with any, in one
pass: Python's own tokenizer gives up at the first thing that is not Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_MARK = re.compile(
    r"""
      (?P<comment>\#[^\r\n]*+)
    | \\(?:\r\n|[\r\n])
    | (?P<open>[(\[{])
    | (?P<close>[)\]}])
    | (?P<colon>:)
    | (?:(?<!\w)(?P<format>[fFtT][rR]?|[rR][fFtT]))?(?P<quote>\"{3}|'{3}|["'])
    | (?P<newline>\r\n|[\r\n])
    """,
    re.X,
)
# Behind an opening quote: the rest of the string with its closing quote.
_STRINGS = {
    '"': re.compile(r'(?>(?:[^"\\\r\n]++|\\(?:\r\n|.))*)"', re.S),
    "'": re.compile(r"(?>(?:[^'\\\r\n]++|\\(?:\r\n|.))*)'", re.S),
    '"""': re.compile(r'(?>(?:[^"\\]++|\\.|"(?!""))*)"""', re.S),
    "'''": re.compile(r"(?>(?:[^'\\]++|\\.|'(?!''))*)'''", re.S),
}
# The same for the text of an f-string, up to its closing quote or the brace of a field.
_TEXTS = {
    '"': re.compile(r'(?>(?:[^"\\\r\n{}]++|\\(?:\r\n|[^{}])|\\|\{\{|\}\})*)(?:"|[{}])', re.S),
    "'": re.compile(r"(?>(?:[^'\\\r\n{}]++|\\(?:\r\n|[^{}])|\\|\{\{|\}\})*)(?:'|[{}])", re.S),
    '"""': re.compile(r'(?>(?:[^"\\{}]++|\\[^{}]|\\|\{\{|\}\}|"(?!""))*)(?:"""|[{}])', re.S),
    "'''": re.compile(r"(?>(?:[^'\\{}]++|\\[^{}]|\\|\{\{|\}\}|'(?!''))*)(?:'''|[{}])", re.S),
}
# The same for the format of a field, which ends with the field.
_FORMATS = {
    quote: re.compile(rf"(?>(?:(?!{quote})[^{{}}{newline}])*)[{{}}]")
    for quote, newline in (('"', r"\r\n"), ("'", r"\r\n"), ('"""', ""), ("'''", ""))
}
_NOT_PYTHON = re.compile(r"[ \t\f]*[%!?][^\r\n]*")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_FIELD = "field"


def starts(text: str) -> Iterator[int]:
    """Yield the offset of each line that stands where a statement may start.

    Ends early where nothing more can be told: at a string without an end.
    """
    # What is open, the innermost last: closing brackets; for an f-string its quote; for one of
    # its fields _FIELD, and behind the field's colon ":" and the quote.
    stack: list[str] = []
    position, fresh = 0, True
    while position < len(text):
        if fresh:
            yield position
            # A magic's or a shell's line may hold half a quote.
            foreign = _NOT_PYTHON.match(text, position)
            position = foreign.end() if foreign else position
        mark = _MARK.search(text, position)
        if mark is None:
            return
        position, kind, found = mark.end(), mark.lastgroup, mark[0]
        fresh = kind == "newline" and not stack
        if kind == "open":
            stack.append(_CLOSING[found])
        elif kind == "quote" and mark["format"]:
            stack.append(mark["quote"])
            position = _inside(text, position, stack)
        elif kind == "quote":
            string = _STRINGS[found].match(text, position)
            position = string.end() if string else len(text)
        elif kind == "close" and stack and stack[-1] == found:
            stack.pop()
        elif found in ("}", ":") and stack and stack[-1] == _FIELD:
            stack.pop()
            if found == ":":
                stack.append(":" + stack[-1].lstrip(":"))
            position = _inside(text, position, stack)


def _inside(text: str, position: int, stack: list[str]) -> int:
    """Read an f-string's own text, up to the code of a field or behind the string."""
    while True:
        top = stack[-1]
        part = _FORMATS[top[1:]] if top.startswith(":") else _TEXTS[top]
        match = part.match(text, position)
        if match is None:
            return len(text)
        position = match.end()
        last = text[position - 1]
        if last == "{":
            stack.append(_FIELD)
            return position
        # A brace that closes ends a format. In the text it stands alone, which is wrong, and
        # not for this module to say.
        if last != "}" or top.startswith(":"):
            stack.pop()
        if last != "}":
            return position
