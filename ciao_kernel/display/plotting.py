"""All that displays know of ``%plot``: a protocol, and the function that returns an implementation.

The package ``plot`` implements it. Nothing else imports that package, and it imports nothing of the
displays: it could become a package of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ciao_kernel.model import Job, Output


class Plot(Protocol):
    """Curves of a followed job: reads its output, and draws what it has read so far."""

    def output(self, event: Output) -> None:
        """Read the output of a replica."""

    def lines(self) -> Sequence[str]:
        """Return the curves as text, one line each, for terminals."""

    def draw(self) -> dict[str, str] | None:
        """Return the curves by MIME type for a live cell, or None if the last call's are current.

        The first call returns a text that announces the curves.
        """

    def keep(self) -> tuple[dict[str, str], Mapping[str, Any]]:
        """Return the final curves for the saved notebook, and their metadata, by MIME type.

        It may take seconds: call it in a thread, after the last :meth:`output`.
        """

    def summary(self) -> str:
        """Return a short text with line feeds for cells that never replace what they show."""

    def closing_text(self) -> str:
        """Return remarks with line feeds about lines and metrics that are missing, or ""."""


def plot_of(job: Job) -> Plot | None:
    """Return the curves of a job, or None if its cell has no ``%plot``."""
    if not job.plot:
        return None
    from ciao_kernel.display.plot import Curves  # Only jobs with %plot spend time on its import.

    return Curves(job, job.plot)
