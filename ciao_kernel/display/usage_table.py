"""Writes what the replicas of a job use as a table of text."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ciao_kernel.display.columns import columns
from ciao_kernel.model import Job
from ciao_kernel.model.usage import Usage, UsageReport, gpu_text, size_text
from ciao_kernel.visible_text import visible

_NONE = "–"
_MOST = 100
"""Replicas that all have a row."""
_CHOSEN = 40
"""Rows of a job with more replicas: those with the most memory."""


def text(job: Job, report: UsageReport) -> str:
    """Return the table, with the time above it and remarks below."""
    rows, left_out = report.replicas, ""
    if len(rows) > _MOST:
        rows = tuple(sorted(rows, key=lambda one: -(one.memory or 0))[:_CHOSEN])
        least = size_text(rows[-1].memory or 0)
        count = len(report.replicas) - _CHOSEN
        left_out = f"{count} more replicas use {least} or less each; --replica chooses."
    at = time.strftime("%H:%M:%S")
    remarks = [one for one in (left_out, report.remark) if one]
    return "\n".join([f"what {job.name} uses at {at}", table(rows), *remarks])


def table(rows: Sequence[Usage]) -> str:
    """Return one row for each replica; columns that nothing is known for are left out."""
    cells = [
        {
            "REPLICA": str(one.replica),
            "CPU": "" if one.cpu is None else f"{one.cpu:.2f}",
            "MEMORY": _size(one.memory),
            "PEAK": _size(one.peak),
            "LIMIT": _size(one.limit),
            "GPU": "; ".join(map(gpu_text, one.gpus)),
            "NOTE": visible(one.fault),
        }
        for one in rows
    ]
    heads = ["REPLICA", "CPU", "MEMORY"]
    heads += [one for one in ("PEAK", "LIMIT", "GPU", "NOTE") if any(row[one] for row in cells)]
    lines = [[row[head] or ("" if head == "NOTE" else _NONE) for head in heads] for row in cells]
    return columns([heads, *lines])


def _size(number: int | None) -> str:
    return "" if number is None else size_text(number)
