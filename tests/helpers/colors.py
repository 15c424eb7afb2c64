"""Texts of cells, pages and terminals without their colours."""

from __future__ import annotations

import re

COLOR = re.compile(r"\x1b\[[0-9;:]*m")
"""What sets a colour or a weight. Nothing else: a test sees it where a text moves the cursor."""


def uncolored(text: str) -> str:
    """A text without its colours."""
    return COLOR.sub("", text)
