"""The directive ``%dryrun``, which shows what would run."""

from __future__ import annotations

from ciao_kernel.magics import value_types
from ciao_kernel.magics.directive import Directive
from ciao_kernel.model import DryRun


def directives() -> list[Directive]:
    """Return the entries of the table, in the order of display."""
    return [
        Directive(
            "dryrun",
            "dryrun",
            value_types.Flag((DryRun.SERVER.value,), DryRun),
            "Show what would run or be created, and run nothing; =server asks the cluster too.",
            "%dryrun",
        ),
    ]
