"""Progress of a training, by its lines, or by its own report to the API of its job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Done:
    """Progress of a training."""

    share: float
    """Part of the work, from 0 to 1."""
    left: float | None = None
    """Seconds until its end, in proportion to the work so far; None if they cannot be told yet."""
    step: int | None = None
    steps: int | None = None
    """Steps of an epoch, or of a training without epochs."""
    epoch: int | None = None
    epochs: int | None = None
    of_epoch: bool = False
    """The lines do not tell how many epochs there are: share and time are those of this one."""


def best_known(lines: Done | None, told: Done | None) -> Done | None:
    """Return how far a training is; None if that is unknown.

    Args:
        lines: As its lines tell it, with steps and epochs.
        told: As it has told the API of its job.
    """
    return told if told is not None and (lines is None or lines.of_epoch) else lines
