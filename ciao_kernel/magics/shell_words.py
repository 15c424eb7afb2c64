"""Words as a shell writes them: the values of ``%args``, ``%files`` and others.

Not shlex, which needs minutes for a value of a megabyte, and which cannot say what word is
being typed.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

_PART = re.compile(
    r"""
      (?P<blank>[ \t\r\n]+)
    | (?P<plain>[^ \t\r\n'"\\]+)
    | \\(?P<escaped>.)
    | '(?P<single>[^']*+)'
    | "(?P<double>(?>(?:[^"\\]++|\\.)*))"
    """,
    re.X | re.S,
)
_ESCAPE = re.compile(r'\\(["\\])')
_PLAIN = re.compile(r"[A-Za-z0-9@%+=:,./_-]+")


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The last word of a text that is being typed; completion asks for it."""

    start: int
    """Where it starts in the text."""
    typed: str
    """What it says so far, without quotes."""
    mark: str
    """How it is quoted: ``'``, ``"``, ``\\`` or nothing."""


def words(text: str) -> tuple[str, ...]:
    """Split as a POSIX shell does, quotes and backslashes included.

    Raises:
        ValueError: A quote is not closed, or a word holds what no directive may.
    """
    found, last, rest = _split(text)
    if rest:
        raise ValueError("a character behind \\" if rest == "\\" else "a closing quote")
    if last is not None:
        found.append(last.typed)
    if any(character in word for word in found for character in "\r\n\0"):
        raise ValueError("one line of text")
    return tuple(found)


def one_word(text: str, expected: str) -> str:
    """Return the single word of a text, without its quotes; raise ValueError(expected) if not."""
    found = words(text)
    if len(found) != 1:
        raise ValueError(expected)
    return found[0]


def unfinished(text: str) -> Unfinished:
    """The word that ends a text; an empty one behind a blank."""
    _, last, rest = _split(text)
    if last is None:
        last = Unfinished(len(text) - len(rest), "", "")
    if not rest:
        return last
    typed = _ESCAPE.sub(r"\1", rest[1:]) if rest[0] == '"' else rest[1:]
    return Unfinished(last.start, last.typed + typed, last.mark or rest[0])


def _split(text: str) -> tuple[list[str], Unfinished | None, str]:
    """The words before the last, the last if no blank follows, and what cannot be read."""
    found: list[str] = []
    parts: list[str] = []
    position, start, mark = 0, -1, ""
    while position < len(text) and (part := _PART.match(text, position)):
        kind = part.lastgroup or ""
        if kind == "blank":
            if start >= 0:
                found.append("".join(parts))
            parts, start, mark = [], -1, ""
        else:
            start = position if start < 0 else start
            mark = mark or {"escaped": "\\", "single": "'", "double": '"'}.get(kind, "")
            parts.append(_ESCAPE.sub(r"\1", part[kind]) if kind == "double" else part[kind])
        position = part.end()
    last = Unfinished(start, "".join(parts), mark) if start >= 0 else None
    return found, last, text[position:]


def quote(word: str, mark: str = "'") -> str:
    """Quote a word so that :func:`words` gives it back, ``;%`` and ``#`` included.

    Args:
        word: What it has to say.
        mark: How to quote it if it needs that: a quote, or a backslash.
    """
    if _PLAIN.fullmatch(word) and not word.startswith("%"):
        return word
    if mark == "\\" and word:
        return re.sub(r"([^A-Za-z0-9@%+=:,./_-]|^%)", r"\\\1", word)
    if mark == '"':
        return '"' + re.sub(r'(["\\])', r"\\\1", word) + '"'
    return shlex.quote(word)
