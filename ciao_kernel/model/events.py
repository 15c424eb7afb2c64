"""What a backend tells of a job that it follows."""

from __future__ import annotations

from dataclasses import dataclass

from ciao_kernel.model.replica import Replica
from ciao_kernel.model.status import Status


@dataclass(frozen=True, slots=True)
class Output:
    """What one replica wrote since the last such event.

    ``data`` holds whole lines, each with its line feed (a last line without one comes when the
    replica is over). ``tail`` is the unfinished line that follows them, for a live view;
    it is not yet counted and comes again.
    """

    replica: Replica
    data: bytes
    lines: int
    tail: bytes = b""


@dataclass(frozen=True, slots=True)
class Notice:
    """One sentence for the user that is no log line."""

    text: str


Event = Output | Status | Notice
