"""The directive ``%plot``, which draws metrics from the log."""

from __future__ import annotations

from dataclasses import dataclass

from ciao_kernel.magics import stored_header
from ciao_kernel.magics.directive import Directive
from ciao_kernel.magics.value_types import Suggestions, Words

COMMON_METRICS = (
    "loss",
    "accuracy",
    "val_loss",
    "val_accuracy",
    "learning_rate",
    "auc",
    "mae",
    "mse",
)
"""Common names of metrics; completion offers them."""
_LONGEST = 64


@dataclass(frozen=True, slots=True)
class MetricNames(Words):
    """Names of metrics, separated by commas or spaces."""

    expected: str = "names of metrics in the log, such as loss,accuracy"
    offer: Suggestions = Suggestions.METRICS

    def parse(self, text: str) -> tuple[str, ...]:
        """Split at spaces and commas."""
        # super() fails here: for slots=True, dataclass() creates a new class.
        parts = (part.strip() for word in Words.parse(self, text) for part in word.split(","))
        found = tuple(part for part in parts if part)
        for name in found:
            if len(name) > _LONGEST or not any(map(str.isalpha, name)):
                raise ValueError(self.expected)
        if not found:
            raise ValueError(self.expected)
        return found


def directives() -> list[Directive]:
    """Return the entries of the table, in the order of display."""
    return [
        Directive(
            "plot",
            "plot",
            MetricNames(),
            "Draw metrics of the log, such as loss 0.31, while the job runs; a curve per replica.",
            "%plot=loss,accuracy",
            repeatable=True,
        ),
    ]


def metrics_in(header: str) -> tuple[str, ...]:
    """Return the metrics in a job's stored header; backends call it when they find the job.

    Args:
        header: See :mod:`ciao_kernel.magics.stored_header`.
    """
    return stored_header.value(header, "plot", MetricNames(), ())
