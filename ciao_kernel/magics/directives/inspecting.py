"""The directive ``%inspect``, which lets `%ciao stacks` and breakpoint() look into replicas."""

from __future__ import annotations

from ciao_kernel.magics import value_types
from ciao_kernel.magics.directive import Directive


def directives() -> list[Directive]:
    """Return the entries of the table, in the order of display."""
    return [
        Directive(
            "inspect",
            "inspect",
            value_types.choice_of(("on", "off")),
            "Whether `%ciao stacks NAME` and breakpoint() can look into the replicas.",
            "%inspect=off",
            default="the setting inspect, which is on",
        ),
    ]
