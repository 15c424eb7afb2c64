"""Directives for where a job runs, and for what brings its code there."""

from __future__ import annotations

from collections.abc import Iterable

from ciao_kernel.magics import value_types
from ciao_kernel.magics.directive import Directive


def directives(backends: Iterable[str], builders: Iterable[str]) -> list[Directive]:
    """Return the entries of the table, in the order of display.

    Args:
        backends: Names of the backends.
        builders: Names of the builders.
    """
    return [
        Directive(
            "backend",
            "backend",
            value_types.choice_of(("auto", *backends)),
            "Backend that runs the job.",
            "%backend=local",
            default="auto",
        ),
        Directive(
            "builder",
            "builder",
            value_types.choice_of(("auto", *builders)),
            "Builder that delivers the code to the replicas.",
            "%builder=folder",
            default="auto",
        ),
    ]
