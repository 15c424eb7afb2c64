"""Files that say what stays at home: ``.dockerignore`` and ``.s2iignore``.

Docker's patterns know ``**`` and count for what lies below them; those of source-to-image are
Go's ``filepath.Match`` on whole paths: https://pkg.go.dev/path/filepath#Match
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

Ignored = Callable[[str], bool]
"""Tells of a file's path, relative and with ``/``, whether it stays at home."""


def docker(text: str) -> Ignored:
    """Read a ``.dockerignore``."""
    return _ignored(text, deep=True)


def s2i(text: str) -> Ignored:
    """Read a ``.s2iignore``; the file itself goes along."""
    own = _ignored(text, deep=False)
    return lambda path: path != ".s2iignore" and own(path)


def _ignored(text: str, *, deep: bool) -> Ignored:
    rules: list[tuple[bool, re.Pattern[str]]] = []
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        back = line.startswith("!")
        parts = PurePosixPath(line.lstrip("!").strip().lstrip("/")).parts
        if parts := tuple(part for part in parts if part != "."):
            rules.append((not back, _pattern(parts, deep)))

    def ignored(path: str) -> bool:
        found = False
        for stays, pattern in rules:  # the last one that matches counts
            if pattern.fullmatch(path):
                found = stays
        return found

    return ignored


def _pattern(parts: Sequence[str], deep: bool) -> re.Pattern[str]:
    """One line as an expression that matches the path, and all that lies below it."""
    found = ""
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if deep and part == "**":
            found += ".*" if last else "(?:.*/)?"
            continue
        found += _part(part) + ("" if last else "/")
    return re.compile(f"{found}(?:/.*)?", re.DOTALL)


def _part(text: str) -> str:
    """One name: ``*``, ``?``, ``[a-z]``, ``[^a-z]`` and a backslash before what means itself."""
    found, at = "", 0
    while at < len(text):
        character = text[at]
        end = text.find("]", at + 2)
        if character == "*":
            found += "[^/]*"
        elif character == "?":
            found += "[^/]"
        elif character == "[" and end > 0:
            inner = text[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            found += f"[{inner}]"
            at = end
        elif character == "\\" and at + 1 < len(text):
            at += 1
            found += re.escape(text[at])
        else:
            found += re.escape(character)
        at += 1
    return found
