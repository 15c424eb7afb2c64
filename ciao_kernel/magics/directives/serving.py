"""The directive ``%serve``, for replicas that run the framework's server instead of the cell."""

from __future__ import annotations

from dataclasses import dataclass

from ciao_kernel.magics import stored_header
from ciao_kernel.magics.directive import Directive
from ciao_kernel.magics.value_types import Suggestions, Words

_NAME = "serve"


@dataclass(frozen=True, slots=True)
class Roles(Words):
    """Names of roles, separated by commas or spaces; whether they exist is checked later."""

    expected: str = "roles, such as ps,worker"
    offer: Suggestions = Suggestions.ROLES

    def parse(self, text: str) -> tuple[str, ...]:
        """Split at spaces and commas; the same role twice counts once."""
        # super() fails here: for slots=True, dataclass() creates a new class.
        found = Words.parse(self, text.replace(",", " "))
        return tuple(dict.fromkeys(role.lower() for role in found))

    def render(self, value: tuple[str, ...]) -> str:
        """Join the roles with commas."""
        return ",".join(value)


def directives() -> list[Directive]:
    """Return the entries of the table, in the order of display."""
    return [
        Directive(
            _NAME,
            "serve",
            Roles(),
            "Roles that only serve: they run TensorFlow's server, and the others run the program.",
            "%serve=ps,worker",
        ),
    ]


def roles_in(header: str) -> tuple[str, ...]:
    """Return the roles in a job's stored header.

    Args:
        header: See :mod:`ciao_kernel.magics.stored_header`.
    """
    return stored_header.value(header, _NAME, Roles(), ())
