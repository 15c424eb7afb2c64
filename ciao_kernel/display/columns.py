"""Texts in columns: the plain table for pipes and for ``text/plain``."""

from __future__ import annotations

from collections.abc import Iterable


def columns(rows: Iterable[Iterable[str]], gap: str = "  ") -> str:
    """Align texts in columns: the plain table for pipes and for ``text/plain``."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        gap.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )
