"""When a local job is started again as a whole: after another process has killed a replica.

On a cluster the loss of a pod does that. A replica that its restart policy restarts alone is none.
The failure of another one belongs to the loss, also if it comes first.
Standard library only, as in :mod:`.supervisor`.
"""

from __future__ import annotations

import signal

TYPE_CHECKING = False  # not from typing, whose import takes a tenth of the start
if TYPE_CHECKING:
    from typing import Any

PREFIX = "ciao: "
"""Begins the line that is written into each log before the next try (:mod:`.try_lines`)."""
_KILLS = (signal.SIGKILL, signal.SIGTERM)
_SAVED = 128 + signal.SIGTERM
"""Exit code by which a program tells that it ended because of SIGTERM; it may have saved first."""


class Retries:
    """Counts the tries of a job.

    Args:
        limit: How often the job is started again.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.tries = 1
        self.why = ""
        """The loss after which the replicas are being ended, as a sentence; "" if there is none."""
        self.kill_at = 0.0
        """The time at which those that still run then are killed."""

    @classmethod
    def of(cls, job: dict[str, Any]) -> Retries:
        """Return the tries that a job's record asks for; an old record asks for one."""
        return cls(job.get("retries", 0))

    @property
    def left(self) -> bool:
        """Return whether a loss now starts the job again."""
        return not self.why and self.tries <= self.limit

    def plan(self, name: str, exit_code: int, kill_at: float) -> None:
        """Note a loss."""
        how = "ended by SIGTERM" if exit_code == _SAVED else f"killed by {_name(exit_code)}"
        self.why = f"{name} was {how}"
        self.kill_at = kill_at

    def drop(self) -> None:
        """Forget a loss: the job is decided."""
        self.why = ""

    def begin(self) -> str:
        """Begin the next try; return a line for the logs."""
        self.tries += 1
        text = f"{PREFIX}{self.why}; try {self.tries} of {self.limit + 1}"
        self.why = ""
        return text


def is_kill(exit_code: int) -> bool:
    """Return whether a replica was ended by a signal with which others end processes."""
    return -exit_code in _KILLS or exit_code == _SAVED


def is_sigkill(exit_code: int) -> bool:
    """Return whether a replica was killed, and not only asked to end."""
    return -exit_code == signal.SIGKILL


def _name(exit_code: int) -> str:
    return signal.Signals(-exit_code).name
