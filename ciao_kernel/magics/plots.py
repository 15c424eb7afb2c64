"""The directive that draws numbers of the log: ``%plot``."""

from __future__ import annotations

from dataclasses import dataclass

from ciao_kernel.magics.directive import Directive
from ciao_kernel.magics.value_types import Offer, Words

USUAL = ("loss", "accuracy", "val_loss", "val_accuracy", "learning_rate", "auc", "mae", "mse")
"""Names that programs often write; completion offers them."""
_LONGEST = 64


@dataclass(frozen=True, slots=True)
class MetricNames(Words):
    """Names of metrics, with commas or spaces between."""

    expected: str = "names of numbers in the log, such as loss,accuracy"
    offer: Offer = Offer.METRICS

    def parse(self, text: str) -> tuple[str, ...]:
        """Split at commas too."""
        # Not super(): a dataclass with slots is another class than the one written here.
        parts = (part.strip() for word in Words.parse(self, text) for part in word.split(","))
        found = tuple(part for part in parts if part)
        for name in found:
            if len(name) > _LONGEST or not any(map(str.isalpha, name)):
                raise ValueError(self.expected)
        if not found:
            raise ValueError(self.expected)
        return found


def directives() -> list[Directive]:
    """The table's entries, in the order in which lists show them."""
    return [
        Directive(
            "plot",
            "plot",
            MetricNames(),
            "Draws numbers of the log while the job runs, such as loss 0.31, a curve a replica.",
            "%plot=loss,accuracy",
            adds_up=True,
        ),
    ]


def asked(header: str) -> tuple[str, ...]:
    """The metrics that a job's stored header asks for; displays ask, for it travels with the job.

    Args:
        header: One directive a line, as :func:`ciao_kernel.magics.render.render` writes it.
    """
    for line in header.splitlines():
        name, _, value = line.partition("=")
        if name == "%plot":
            try:
                return MetricNames().parse(value)
            except ValueError:
                return ()  # written by another version
    return ()
