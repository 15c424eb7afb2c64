"""Find the lines of a Python text on which a statement starts.

A ``%worker=2`` or a ``!pip`` inside a string, inside brackets or after a backslash is the user's
text; at the start of a statement it cannot be Python. :mod:`ciao_kernel.magics.body` uses this
module only for texts that do not compile. It therefore accepts any text, in one pass: Python's
own tokenizer stops at the first character that is not Python.
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
# After an opening quote: the rest of the string with its closing quote.
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
    """Yield the offset of each line on which a statement may start.

    The result is cut off at a string without an end, because the rest is ambiguous.
    """
    # Open constructs, innermost last: a closing bracket for each bracket; the quote of an f-string;
    # _FIELD for a field of an f-string, and ":" with the quote after the field's colon.
    stack: list[str] = []
    position, fresh = 0, True
    while position < len(text):
        if fresh:
            yield position
            # A line with a magic or a shell command may contain an unpaired quote.
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
    """Return the end of an f-string's literal text: the code of a field, or after the string."""
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
        # A closing brace ends a format. In the literal text a single brace is an error, but this
        # module does not report errors.
        if last != "}" or top.startswith(":"):
            stack.pop()
        if last != "}":
            return position
