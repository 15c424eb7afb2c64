"""The log of one instance of a container, while it is read."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from ciao_kernel.kube import timestamps
from ciao_kernel.kube.replay import Mode, Replay
from ciao_kernel.kube.resume_position import Gap, Lines, ResumePosition
from ciao_kernel.kube.retry_limits import RetryLimits

_FIRST_WAIT, _LONGEST_WAIT = 0.05, 5.0


@dataclass(slots=True)
class InstanceLog:
    """The place up to which the log of one instance is read, and what its answers told.

    Args:
        id: Container ID.
        number: Number of earlier starts.
    """

    id: str
    number: int
    progress: ResumePosition = field(default_factory=ResumePosition)
    mode: Mode = Mode.COUNT
    complete: bool = False
    replaced: bool = False
    """A newer instance is known."""
    superseded: bool = False
    """The node has a newer instance, which the status need not show yet."""
    next_first: bytes = b""
    """Head of the first line of the next instance, where it was asked for."""
    ended_by: Replay | None = None
    """The last answer, if it ended in order and no later answer contradicts it."""
    unfinished: bytes | None = None
    """Its line without an end; None as long as no answer came to an end."""
    unconfirmed: bool = False
    """Its last lines were asked for since that answer, and are not those that were delivered."""
    over: bool = False
    """Its last answer is of an ended container: only the confirmation is missing."""
    patience: RetryLimits = field(default_factory=RetryLimits)
    asked: bool = False
    """A request was sent for it."""
    wait: float = _FIRST_WAIT
    renewed: bool = False
    """The credentials were renewed since the last new line."""

    def note_new_lines(self) -> None:
        """Begin anew to count and to wait: the log goes on."""
        self.wait, self.renewed = _FIRST_WAIT, False
        self.patience.reset()

    async def pause(self) -> None:
        """Wait before the next request, longer each time."""
        await asyncio.sleep(self.wait * (0.5 + random.random()))
        self.wait = min(_LONGEST_WAIT, self.wait * 2)

    def give_up(self, why: str) -> list[Lines | Gap]:
        """Mark the log as complete; return its last line if it had ended, otherwise a gap.

        Args:
            why: Why nothing more can be read, as the end of a sentence.
        """
        self.complete = True
        if self.ended_by is not None:  # it had ended, although no status confirms it
            return self.ended_by.finish()
        last = self.progress.last
        after = f"after {timestamps.clock(last)} UTC" if last else "of its log"
        return [Gap(f"Lines {after} may be lost: {why}.")]
