"""Writes the status of a local job for its readers, when it has changed.

Standard library only, as in :mod:`.supervisor`.
"""

from __future__ import annotations

import time

from ciao_kernel.backends.local.record import Folder

TYPE_CHECKING = False  # not from typing, whose import takes a tenth of the start
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_HEARTBEAT_INTERVAL = 10.0
"""Seconds between two heartbeats, which show other machines that the supervisor is alive."""


class StatusWriter:
    """The status file of one job.

    Args:
        folder: The job's folder.
        status: Returns the status now.
    """

    def __init__(self, folder: Folder, status: Callable[[], dict[str, Any]]) -> None:
        self._folder = folder
        self._status = status
        self._beats_at = time.monotonic() + _HEARTBEAT_INTERVAL
        self.changed = True
        """Whether the status is another one than that of the file."""

    def write(self, patience: float = 0.0) -> None:
        """Write a changed status.

        Args:
            patience: Seconds for which a failed write is repeated; then a later call repeats it.
        """
        until = time.monotonic() + patience
        while self.changed:
            try:
                self._folder.write_status(self._status())
                self.changed = False
            except FileNotFoundError:
                self.changed = False  # The folder was deleted: there are no readers.
            except OSError:
                if time.monotonic() >= until:
                    return
                # Only now: no process of the job can fill the space any more.
                self._folder.free_reserve()
                time.sleep(0.1)

    def beat(self, now: float) -> None:
        """Show other machines that the supervisor is alive, from time to time."""
        if now >= self._beats_at:
            self._beats_at = now + _HEARTBEAT_INTERVAL
            self._folder.touch_status()
