"""Modules of a package as one text, for a program that runs where ciao is not installed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_INSIDE = re.compile(
    r"^from (?:__future__|ciao_kernel\.[\w.]+) import (?:\([^)]*\)|[^\n(]*)\n", re.MULTILINE
)
"""An import of another part, which is in the same text, or of what is once at its top."""
_QUOTES = '"' * 3


def joined(folder: Path, parts: Sequence[str]) -> str:
    """Return the modules of a package, one behind the other.

    Args:
        folder: The package, whose own words come first.
        parts: Its modules, each behind those that it imports.
    """
    own, *texts = (
        (folder / f"{name}.py").read_text(encoding="utf-8") for name in ("__init__", *parts)
    )
    words = own[: own.index(_QUOTES, len(_QUOTES)) + len(_QUOTES)]
    bodies = (_INSIDE.sub("", text) for text in texts)
    return "\n\n".join([words, "from __future__ import annotations\n", *bodies])
