r"""Visible text: values of users, pods and files, in messages and tables.

Some characters are not drawn but change what a reader sees: U+202E reverses the text after it, a
carriage return overwrites the line, and an escape sequence of a terminal can do anything. A value
that contains them must not make a message look like another one. This module writes them as in a
string of Python: ``\u202e``, ``\r``, ``\x1b``.

Lines of a log are not values: ``display.lines`` has the rules for them.
"""

from __future__ import annotations

from collections.abc import Sequence

_BYTES = range(0xDC80, 0xDD00)
"""Surrogates that stand for bytes of a file name that are not UTF-8 (PEP 383)."""
_LISTED = 3
_QUOTED = 120


def visible(text: str) -> str:
    """Return a text of one line in which each character is drawn, and none is a command.

    Args:
        text: Any text, such as a file name; also a line end is written as an escape.
    """
    return text if text.isprintable() else "".join(map(_drawn, text))


def visible_lines(text: str) -> str:
    """Return a text of several lines in the same way; line feeds and tabs stay."""
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" else _drawn(c) for c in text)


def one_line(value: object) -> str:
    """Return a value's text as :func:`visible` does, with spaces in place of line feeds."""
    return visible(" ".join(str(value).split("\n")))


def short(text: str, most: int = _QUOTED) -> str:
    """Return a text that is not too long for a message.

    Args:
        text: The text.
        most: Characters of the result.
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def listed(names: Sequence[str], most: int = _LISTED) -> str:
    """Return the first few names as text, and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(visible, names[:most])) + more


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, whose plural is formed with s: ``1,200 lines``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _drawn(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if code in _BYTES:
        return f"\\x{code - 0xDC00:02x}"
    # unicode_escape writes U+00AD as \xad, and all others as Python's repr does.
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
