"""Texts of the columns that %usage adds to the live table: processors, memory, GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ciao_kernel.display.table_columns import COLUMNS
from ciao_kernel.magics.directives import usage_columns
from ciao_kernel.model import Job, Replica, ReplicaStatus, State
from ciao_kernel.model.usage import Usage, UsageReport, gpu_text, size_text, together

_HEADINGS = tuple(column.heading for column in COLUMNS if column.usage)
_ONLY_WITH_GPUS = "gpu"
_EMPTY = "–"


class UsageCells:
    """Collects what the replicas of a job use (called by :class:`ciao_kernel.display.table.Table`).

    Args:
        job: The job.
        wanted: Whether its table has these columns.
    """

    def __init__(self, job: Job, *, wanted: bool) -> None:
        self._wanted = wanted
        self._has_gpus = usage_columns.has_gpus(job.header)
        self._known: dict[Replica, Usage] = {}

    def note(self, report: UsageReport) -> None:
        """Note what some replicas use; a peak stays: processes that have ended are not measured."""
        for one in report.replicas:
            old = self._known.get(one.replica, one)
            peak = max(one.peak or 0, old.peak or 0) or None
            limit = one.limit or old.limit
            self._known[one.replica] = replace(one, peak=peak, limit=limit)
            self._has_gpus |= bool(one.gpus)

    def headings(self) -> Sequence[str]:
        """Return the columns; ``gpu`` only if a replica has one."""
        if not self._wanted:
            return ()
        return [one for one in _HEADINGS if self._has_gpus or one != _ONLY_WITH_GPUS]

    def of(self, one: ReplicaStatus) -> Mapping[str, str]:
        """Return the texts of a replica; of one that does not run, its peak alone."""
        if not self._wanted:
            return {}
        usage = self._known.get(one.replica, Usage(one.replica))
        of = f" of {size_text(usage.limit)}" if usage.limit else ""
        peak = f"{size_text(usage.peak)}{of}" if usage.peak else ""
        cpu = memory = gpu = ""
        if one.state is State.RUNNING:
            cpu = "" if usage.cpu is None else f"{usage.cpu:.2f}"
            memory = "" if usage.memory is None else size_text(usage.memory)
            memory += of if memory and not peak else ""
            gpu = gpu_text(together(usage.gpus))
        texts = {"cpu": cpu, "memory": memory, "peak": peak, "gpu": gpu}
        return {name: text or _EMPTY for name, text in texts.items()}
