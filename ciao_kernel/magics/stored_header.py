"""Reads the stored header of a job that exists: what its cell asked for.

Its lines are those of :func:`ciao_kernel.magics.render.render`: one directive each, or a role with
the directives for its replicas alone. Another version of ciao may have written them. Listings read
the header of each job, so this module imports neither the table of directives nor the parser.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

from ciao_kernel.magics.shell_words import split_at
from ciao_kernel.magics.value_types import Choice

_Value_co = TypeVar("_Value_co", covariant=True)
_Default = TypeVar("_Default")
_ON_OR_OFF = Choice(lambda: ("on", "off"))


class Parser(Protocol[_Value_co]):
    """The part of a directive's kind that reads its value."""

    def parse(self, text: str) -> _Value_co:
        """Return the value; raise ValueError if the text is not valid."""


def text(header: str, name: str) -> str | None:
    """Return a directive's value as it is written, in its quotes; None if there is no such line.

    Args:
        header: The stored header.
        name: The directive, without ``%``.
    """
    for line in _lines(header):
        found, _, written = line.partition("=")
        if found == f"%{name}":
            return written
    return None


def value(
    header: str, name: str, kind: Parser[_Value_co], default: _Default
) -> _Value_co | _Default:
    """Return a directive's value.

    Args:
        header: The stored header.
        name: The directive, without ``%``.
        kind: Its kind in the table.
        default: The value if there is no such line, or one that only another version can read.
    """
    written = text(header, name)
    if written is None:
        return default
    try:
        return kind.parse(written)
    except ValueError:
        return default


def is_on(header: str, name: str, setting: str) -> bool:
    """Return whether a directive that is ``on`` or ``off`` is on.

    Args:
        header: The stored header.
        name: The directive, without ``%``.
        setting: The setting for cells without it.
    """
    return value(header, name, _ON_OR_OFF, setting) == "on"


def of_role(header: str, name: str, role: str) -> str | None:
    """Return a resource as it is written for a role's replicas, or else for those of all roles.

    Args:
        header: The stored header.
        name: The directive, without ``%``.
        role: The role.

    Returns:
        The text; None if the header has neither.
    """
    for line in _lines(header):
        first, *own = _directives(line)
        if first.startswith(f"%{role}=") and (found := text("\n".join(own), name)) is not None:
            return found
    return text(header, name)


def of_all_roles(header: str, name: str) -> list[str]:
    """Return the values of a resource as they are written, of all roles and of single ones.

    Args:
        header: The stored header.
        name: The directive, without ``%``.
    """
    found = (text(one, name) for line in _lines(header) for one in _directives(line))
    return [one for one in found if one is not None]


def names(header: str) -> set[str]:
    """Return the names of all directives, also of those behind a role.

    Args:
        header: The stored header.
    """
    found = (one for line in _lines(header) for one in _directives(line))
    return {one.partition("=")[0].rstrip().removeprefix("%") for one in found}


def _lines(header: str) -> Iterator[str]:
    # Not splitlines(): a value may have a form feed, or another character that ends lines there.
    return filter(None, header.split("\n"))


def _directives(line: str) -> list[str]:
    """Return the directives of a line: one, or a role and what is for its replicas alone."""
    first, *own = map(str.strip, split_at(line, ";"))
    return [first, *(one for one in own if one.startswith("%"))]
