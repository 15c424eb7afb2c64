"""Timers that tell whether somebody may still need the replica."""

from __future__ import annotations

import time
from typing import Any

_GONE, _DEAF = "the kernel is gone", "its input was closed"


class Need:
    """Knows when the kernel was last heard, and since when no run is active.

    Args:
        settings: The times ``idle``, ``lease`` and ``runLease``, in seconds.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._idle: float = settings["idle"]
        self._lease: float = settings["lease"]
        self._run_lease: float = settings["runLease"]
        self._deaf = False
        self._heard = self._quiet_since = time.monotonic()

    def hear(self, ask: dict[str, Any]) -> None:
        """Note that the kernel has sent a command; one that starts a run brings its own time."""
        self._heard = time.monotonic()
        if ask.get("busy"):  # it fetches the files of the last run
            self._quiet_since = self._heard
        self._idle = ask.get("idle", self._idle)

    def rest(self) -> None:
        """Note that a run has just ended."""
        self._quiet_since = time.monotonic()

    def lose_input(self) -> None:
        """Note that no command can come any more."""
        self._deaf = True

    def over_with_run(self) -> str:
        """Return why the replica ends with the run that has just ended; "" if it waits."""
        if self._deaf:
            return _DEAF
        return _GONE if time.monotonic() - self._heard > self._run_lease else ""

    def over(self, now: float) -> str:
        """Return why nobody needs this replica any more; "" if somebody may."""
        if self._deaf:
            return _DEAF
        if now - self._quiet_since > self._idle:
            return "idle"
        return _GONE if now - self._heard > self._lease else ""
