"""The values of ``%output`` of a run: its program writes them, the marker of its end has them."""

from __future__ import annotations

import os

from ciao_kernel.delivery.warm.agent.run import Run

_MOST_VALUES = 4096
"""Bytes of values of ``%output``: those of a termination message, which other jobs have."""


class RunValues:
    """The values of the runs in this replica.

    Args:
        own: Folder of the agent's own files.
    """

    def __init__(self, own: str) -> None:
        self._own = own

    def variables(self, run: Run) -> dict[str, str]:
        """Return the variables of the writer of ``%output``; empty without it."""
        asked = run.ask.get("results")
        if not asked:
            return {}
        if asked["folder"]:
            os.makedirs(asked["folder"], exist_ok=True)
        target = asked["folder"] or self._message(run)
        return {"CIAO_RESULT_NAMES": asked["names"], "CIAO_RESULT_TARGET": target}

    def take(self, run: Run) -> dict[str, str]:
        """Return what the program has written, for the end marker, and remove it."""
        try:
            with open(self._message(run), encoding="utf-8", errors="replace") as file:
                text = file.read(_MOST_VALUES)
            os.unlink(self._message(run))
        except OSError:
            return {}
        return {"values": text}

    def _message(self, run: Run) -> str:
        """Return the file for values that the end marker of a run brings to the kernel."""
        return os.path.join(self._own, f"values-{run.id}")
