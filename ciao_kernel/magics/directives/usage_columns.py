"""The directive ``%usage``, which adds what replicas use to the live table as columns."""

from __future__ import annotations

from ciao_kernel.magics import stored_header
from ciao_kernel.magics.directive import Directive
from ciao_kernel.magics.value_types import Choice

_CHOICES = ("on", "off")


def directives() -> list[Directive]:
    """Return the entries of the table, in the order of display."""
    return [
        Directive(
            "usage",
            "usage",
            Choice(lambda: _CHOICES),
            "Whether the table has columns for the processors, the memory and the GPUs that each "
            "replica uses, as `%ciao top NAME` shows them.",
            "%usage=on",
            default="the setting usage, which is off",
        ),
    ]


def has_usage_columns(header: str, setting: str) -> bool:
    """Return whether the table of a job has these columns.

    Displays call it, and the session, which asks for the numbers.

    Args:
        header: The job's stored header.
        setting: The setting ``usage``.
    """
    return stored_header.is_on(header, "usage", setting)


def has_gpus(header: str) -> bool:
    """Return whether a replica of a job has asked for a GPU.

    Args:
        header: The job's stored header.
    """
    return any(one != "0" for one in stored_header.of_all_roles(header, "gpu"))
