"""The result of a dry run, as ``_job`` in the next cell."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobPreview:
    """The submission that a cell with ``%dryrun`` has shown. There is no job."""

    header: str
    """The directives of the cell, one per line."""
    dryrun: str
    """The text that the cell has shown: processes or manifests."""
    name: str = ""
    """Name in the header, if there is one; a submission would make it unique."""

    def __repr__(self) -> str:
        named = f" of {self.name}" if self.name else ""
        return f"<dry run{named}: no job was started; print(_job.dryrun) shows it>"
