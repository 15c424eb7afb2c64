"""Words with shell quoting: the values of ``%args``, ``%files`` and others.

shlex is not used: it needs minutes for a value of one megabyte, and it cannot return the word that
is being typed.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable
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
class PartialWord:
    """The last word of a text that is being typed, for completion."""

    start: int
    """Offset of the word in the text."""
    typed: str
    """The word so far, without quotes."""
    mark: str
    """Its quoting: ``'``, ``"``, ``\\`` or nothing."""


def words(text: str) -> tuple[str, ...]:
    """Split a text as a POSIX shell does, including quotes and backslashes.

    Raises:
        ValueError: A quote is not closed, or a word contains a line end or a null byte.
    """
    found, last, rest = _split(text)
    if rest:
        raise ValueError("a character after \\" if rest == "\\" else "a closing quote")
    if last is not None:
        found.append(last.typed)
    if any(character in word for word in found for character in "\r\n\0"):
        raise ValueError("one line of text")
    return tuple(found)


def pairs(text: str) -> tuple[str, ...]:
    """Split a text like :func:`words` into words of ``key=value``.

    Raises:
        ValueError: As for :func:`words`; or an unquoted comma separates two words, which would
            become the end of a value.
    """
    parts = [part for part in _PART.finditer(text) if part.lastgroup in ("blank", "plain")]
    if any(
        blank.lastgroup == "blank" and blank.start() == part.end() and part[0].endswith(",")
        for part, blank in itertools.pairwise(parts)
        if blank.end() < len(text)
    ):
        raise ValueError(
            "pairs that are separated by spaces, without a comma (or in quotes: 'A=1,')"
        )
    return words(text)


def quote_pairs(found: Iterable[tuple[str, str]]) -> str:
    """Quote keys and values for :func:`pairs`, each pair as one word."""
    return " ".join(_quote_pair(f"{key}={value}") for key, value in found)


def _quote_pair(word: str) -> str:
    """Quote a word; one with a comma at its end is always between quotes."""
    text = quote(word)
    return f"'{text}'" if text == word and word.endswith(",") else text


def listed(text: str) -> tuple[str, ...]:
    """Split a text like :func:`words`, and also at commas that are not quoted."""
    return words(_PART.sub(_without_commas, text))


def _without_commas(part: re.Match[str]) -> str:
    return part[0].replace(",", " ") if part.lastgroup == "plain" else part[0]


def has_unquoted(text: str, sign: str) -> bool:
    """Return whether a character stands in a text outside of quotes and without a backslash."""
    return any(sign in part[0] for part in _PART.finditer(text) if part.lastgroup == "plain")


def split_at(text: str, sign: str) -> list[str]:
    """Split a text at a character outside of quotes; the parts keep their quotes."""
    found, start = [], 0
    for part in _PART.finditer(text) if sign in text else ():
        if part.lastgroup == "plain":
            *ended, _ = part[0].split(sign)
            for one in ended:
                end = max(start, part.start()) + len(one)
                found.append(text[start:end])
                start = end + len(sign)
    return [*found, text[start:]]


def one_word(text: str, expected: str) -> str:
    """Return the only word of a text, without quotes; otherwise raise ValueError(expected)."""
    found = words(text)
    if len(found) != 1:
        raise ValueError(expected)
    return found[0]


def unfinished(text: str) -> PartialWord:
    """Return the last word of a text; it is empty after a blank."""
    _, last, rest = _split(text)
    if last is None:
        last = PartialWord(len(text) - len(rest), "", "")
    if not rest:
        return last
    typed = _ESCAPE.sub(r"\1", rest[1:]) if rest[0] == '"' else rest[1:]
    return PartialWord(last.start, last.typed + typed, last.mark or rest[0])


def _split(text: str) -> tuple[list[str], PartialWord | None, str]:
    """Return the complete words, the last word if no blank follows, and the unparsable rest."""
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
    last = PartialWord(start, "".join(parts), mark) if start >= 0 else None
    return found, last, text[position:]


def quote(word: str, mark: str = "'") -> str:
    """Quote a word, also one with ``;%`` or ``#``, for :func:`words` to return it unchanged.

    Args:
        word: The word without quotes.
        mark: Quoting to use if necessary: a quote, or a backslash.
    """
    if _PLAIN.fullmatch(word) and not word.startswith("%"):
        return word
    if mark == "\\" and word:
        return re.sub(r"([^A-Za-z0-9@%+=:,./_-]|^%)", r"\\\1", word)
    if mark == '"':
        return '"' + re.sub(r'(["\\])', r"\\\1", word) + '"'
    return shlex.quote(word)
