"""Directives for how long a job runs, and for what remains of it."""

from __future__ import annotations

from ciao_kernel.magics import numeric_types, value_types
from ciao_kernel.magics.directive import Directive
from ciao_kernel.model import CleanPolicy


def directives() -> list[Directive]:
    """Return the entries of the table, in the order of display."""
    return [
        Directive(
            "cleanPolicy",
            "clean_policy",
            value_types.choice_of((p.value for p in CleanPolicy), CleanPolicy),
            "Cleanup after the job: replicas that still run, all (also its folder), or nothing.",
            "%cleanPolicy=all",
            default="running",
        ),
        Directive(
            "deadline",
            "deadline",
            numeric_types.Duration(),
            "Maximum run time; a job that runs longer fails.",
            "%deadline=2h30m",
        ),
    ]
