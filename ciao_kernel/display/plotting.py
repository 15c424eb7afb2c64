"""All that other modules know of ``%plot``: a protocol, and functions that return its results.

The package ``plot`` implements it. Nothing else imports that package, and it imports nothing of the
displays: it could become a package of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ciao_kernel.model import Job, Output, Replica
from ciao_kernel.model.progress import Done

_OF_MANY = re.compile(rb"\d[ \t]{0,2}/[ \t]{0,2}\d")
"""A number of a known amount: ``Epoch 2/5``, ``step 20/100``, ``3/40 ━━━``."""


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


class TrainingProgress(Protocol):
    """Reads the output of a followed job, to tell how far it is."""

    def output(self, event: Output) -> None:
        """Read the output of a replica."""

    def done(self) -> Done | None:
        """Return how far the slowest replica is; None if the lines do not tell."""


def progress_of(job: Job, clock: Callable[[], float]) -> TrainingProgress:
    """Return the progress of a followed job.

    Args:
        job: The job.
        clock: Seconds, monotonic.
    """
    return _LateProgress(job, clock)


class _LateProgress:
    """Progress that imports its reader with the first line that may tell something."""

    def __init__(self, job: Job, clock: Callable[[], float]) -> None:
        self._job, self._clock = job, clock
        self._reader: Any = None

    def output(self, event: Output) -> None:
        if self._reader is None:
            if not (_tells(event.data) or _tells(event.tail)):
                return
            from ciao_kernel.display.plot import training_progress

            self._reader = training_progress.TrainingProgress(self._job, self._clock)
        self._reader.output(event)

    def done(self) -> Done | None:
        return self._reader.done() if self._reader else None


def _tells(data: bytes) -> bool:
    # The search costs as much as all else that happens to a line; most logs have no slash.
    return b"/" in data and _OF_MANY.search(data) is not None


def tells_progress(replica: Replica) -> bool:
    """Return whether the lines of a replica tell how far the training is."""
    from ciao_kernel.display.plot import training_progress

    return training_progress.tells(replica)


def read_progress(logs: Iterable[bytes], seconds: float) -> Done | None:
    """Return how far a job is, by the ends of its logs.

    Args:
        logs: The end of the output of each replica.
        seconds: Age of the job, from which the time left is estimated.
    """
    from ciao_kernel.display.plot import training_progress

    return training_progress.of_logs(logs, seconds)


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of one metric of one replica; iteration yields pairs of step and value."""

    axis: str
    """What the steps count: ``step``, ``epoch`` or ``line``."""
    steps: tuple[float, ...]
    """In ascending order."""
    values: tuple[float, ...]
    """As many as :attr:`steps`; they may be NaN or infinite."""

    @property
    def last(self) -> float:
        """The newest value."""
        return self.values[-1]

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return zip(self.steps, self.values, strict=True)

    def __len__(self) -> int:
        return len(self.steps)


def read_curves(data: bytes, *, over: bool = False) -> dict[str, Curve]:
    """Return a curve for each number in the log of one replica, by its name.

    Args:
        data: The whole output of the replica so far.
        over: Nothing more is written: the last line counts, even without a line feed.
    """
    from ciao_kernel.display.plot import log_curves

    return {
        name: Curve(series.axis, tuple(series.x), tuple(series.y))
        for name, series in log_curves.read_all(data, over=over).items()
    }


def metric_name(name: str) -> str:
    """Return the name of :func:`read_curves` for a name as users write it: ``val_loss``."""
    from ciao_kernel.display.plot import log_curves

    return log_curves.normalize(name)


def newest_metric(data: bytes, wishes: tuple[str, ...] = ()) -> str:
    """Return the newest metric in the end of a log with its name, the loss if possible, or "".

    Args:
        data: The last lines of a log; the first of them may be cut.
        wishes: Metrics that the user asked for, which come before the loss.
    """
    from ciao_kernel.display.plot import log_curves

    return log_curves.newest(data, wishes)
