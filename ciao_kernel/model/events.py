"""Events that a backend reports while it follows a job."""

from __future__ import annotations

from dataclasses import dataclass

from ciao_kernel.model.replica import Replica
from ciao_kernel.model.status import Status


@dataclass(frozen=True, slots=True)
class Output:
    """Output of one replica since the previous event of this type.

    ``data`` contains whole lines, each with its line feed; a last line without a line feed is
    delivered when the replica has ended. ``tail`` is the unfinished line after them, for a live
    view; it is not counted yet and is delivered again later.
    """

    replica: Replica
    data: bytes
    lines: int
    tail: bytes = b""


@dataclass(frozen=True, slots=True)
class Notice:
    """One sentence for the user that is not part of a log."""

    text: str


Event = Output | Status | Notice
