"""Reads from a stored header what a backend sets in a job that it finds.

:mod:`ciao_kernel.magics.stored_header` describes such a header. Listings read the header of each
job, so this module imports neither the table of directives nor the parser.
"""

from __future__ import annotations

from typing import TypedDict

from ciao_kernel.magics.directives import cell_lines, plots, surviving


class JobFields(TypedDict):
    """Fields of a :class:`~ciao_kernel.model.Job` that its header gives."""

    header: str
    plot: tuple[str, ...]
    lines: int | None
    grace: int | None
    retries: int


def job_fields(header: str) -> JobFields:
    """Return what a backend sets in a job that it finds.

    Args:
        header: The stored header.
    """
    return {
        "header": header,
        "plot": plots.metrics_in(header),
        "lines": cell_lines.line_count_in(header),
        "grace": surviving.grace_of(header),
        "retries": surviving.retries_of(header),
    }
