"""The columns of a job's table, one record each; all renderers derive theirs from them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its content, and where it has too little room."""

    heading: str
    field: str
    """The field of :class:`ciao_kernel.display.table.Row` below the heading."""
    width: int | None = None
    """Width in a page, in digits; None if it depends on the job, or is the rest of the width."""
    hides_at: int = 0
    """Width of a cell, in em, up to which a page hides the column; 0 if it never does."""
    in_narrow_window: bool = True
    """False if a narrow window of a terminal has no room for the column."""
    cluster_only: bool = False
    """True if only jobs on clusters have the column: they fill it with the same field of
    :class:`ciao_kernel.model.ReplicaStatus`."""
    usage: bool = False
    """True if ``%usage=on`` adds the column."""


COLUMNS = (
    Column("replica", "replica"),
    Column("state", "detail", width=16),
    Column("time", "time", width=11, in_narrow_window=False),
    Column("node", "node", width=16, hides_at=76, in_narrow_window=False, cluster_only=True),
    Column("restarts", "restarts", width=7, hides_at=50, in_narrow_window=False, cluster_only=True),
    Column("cpu", "cpu", width=5, usage=True),
    Column("memory", "memory", width=7, usage=True),
    Column("peak", "peak", width=15, in_narrow_window=False, usage=True),
    Column("gpu", "gpu", width=20, usage=True),
    Column("lines/s", "rate", width=6, hides_at=76, in_narrow_window=False),
    Column("log", "log", hides_at=50, in_narrow_window=False),
    Column("last line", "last_line"),
)
"""All columns, in their order. The last line is at the end: it has the width that the other columns
leave, so its changes move none of them."""
LONGEST_NAME = 30
"""Characters of a replica's name that its column shows."""
