"""Tells mistakes of every Python from syntax that a newer one may have than the kernel's."""

from __future__ import annotations

import re

_MISTAKES = re.compile(
    r"expected ':'|was never closed|unterminated (?:triple-quoted )?(?:[ft]-)?string literal"
    r"|^invalid syntax\. (?:Perhaps|Maybe|Did)|(?<!f-string: )\bunmatched '|"
    r"^closing parenthesis|unexpected indent|expected an indented block|unindent does not match"
    r"|inconsistent use of tabs|^cannot (?:assign to|delete) |^Missing parentheses in call"
    r"|^invalid (?:non-printable )?character|^invalid (?:decimal|hexadecimal|octal|binary) literal"
    r"|unexpected character after line continuation|^expected 'except' or 'finally'"
    r"|^positional argument follows|^leading zeros in decimal|outside loop$|not properly in loop$"
)
"""Messages of CPython about what no version accepts, in any position."""
_NEWER_STRINGS = re.compile(
    r"""
      \b[tT][rR]?["'] | \b[rR][tT]["']                              # t"…", of Python 3.14
    | \b(?:[fF][rR]?|[rR][fF])(["'])(?:(?!\1).)*\{[^}]*(?:\1|$)     # f"{d["x"]}", of Python 3.12
    """,
    re.X,
)
"""Strings that an older Python ends too early: its message is then about the rest of the line."""


def may_be_newer(message: str, line: str) -> bool:
    """Return whether a newer Python might compile what this one cannot.

    Args:
        message: This Python's error.
        line: The line that it is about.
    """
    return not _MISTAKES.search(message) or bool(_NEWER_STRINGS.search(line))
