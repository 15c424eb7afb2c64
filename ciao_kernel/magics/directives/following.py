"""Directives for how a cell follows its job: not at all, or only some replicas."""

from __future__ import annotations

from ciao_kernel.magics import value_types
from ciao_kernel.magics.directive import Directive


def directives() -> list[Directive]:
    """Return the entries of the table, in the order of display."""
    return [
        Directive(
            "detach",
            "detach",
            value_types.Flag(),
            "Start the job and return at once; `%ciao attach NAME` follows it.",
            "%detach",
        ),
        Directive(
            "follow",
            "follow",
            value_types.Words("roles or replicas", value_types.Suggestions.REPLICAS),
            "Show only the lines of these roles or replicas.",
            "%follow=worker-0 chief",
            default="all replicas",
            repeatable=True,
        ),
    ]
