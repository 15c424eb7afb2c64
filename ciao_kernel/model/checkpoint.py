"""The place of a job's checkpoints (``%checkpoint``)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One value of ``%checkpoint``; without a claim it is that of the setting ``checkpoint``.

    Args:
        claim: Name of a PersistentVolumeClaim; "" means the setting.
        path: Folder inside the claim, without a leading slash.
    """

    claim: str = ""
    path: str = ""

    def __str__(self) -> str:
        """Return the value as a header has it."""
        return f"{self.claim}/{self.path}" if self.path else self.claim
