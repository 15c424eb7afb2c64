"""Checks of directives that are right each by itself, and wrong together.

Each raises a DirectiveError with the line. The names of all directives are known to be right.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from ciao_kernel.errors import DirectiveError
from ciao_kernel.magics.diagnostics import named, wrong
from ciao_kernel.magics.directives.cluster import KeyValues
from ciao_kernel.magics.directives.volumes import Volumes, check_apart
from ciao_kernel.magics.header import Token
from ciao_kernel.magics.table import Directive, Scope, Table
from ciao_kernel.magics.value_types import Pairs
from ciao_kernel.model import Volume


def by_line(tokens: Iterable[Token]) -> Iterator[Iterator[Token]]:
    """Group directives by line."""
    return (line for _, line in itertools.groupby(tokens, lambda token: token.line.start))


def _entry(token: Token, table: Table) -> Directive:
    entry = table.find(token.name)
    assert entry is not None
    return entry


def misplaced(resource: Token, role: Token, table: Table) -> DirectiveError:
    """Return the error for a resource before the role that it seems to apply to."""
    return wrong(
        resource,
        table,
        f"{named(resource)} must follow the role it applies to, {named(role)}.",
        "Write it after the role, or on a separate line to apply it to all roles.",
        whole=True,
    )


def check_roles(framework: str, tokens: tuple[Token, ...], table: Table) -> None:
    """Check that the framework has the roles."""
    roles = table.roles(framework)
    for token in tokens:
        entry = _entry(token, table)
        if entry.scope is Scope.ROLE and entry.field not in roles:
            raise wrong(
                token,
                table,
                f"{framework} has no role {entry.field}.",
                f"Its roles are {', '.join(table.offered_roles(framework))}.",
                whole=True,
            )


def check_pairs(tokens: tuple[Token, ...], table: Table) -> None:
    """Check that no variable, label or other key of one directive has two values."""
    seen: dict[tuple[str, str], tuple[str, Token]] = {}
    for token in tokens:
        entry = _entry(token, table)
        if not isinstance(entry.kind, Pairs | KeyValues):
            continue
        for name, value in entry.kind.parse(token.value or ""):
            first, place = seen.setdefault((entry.field, name), (value, token))
            if first != value:
                where = "" if place is token else f", first in line {place.line.number}"
                raise wrong(
                    token,
                    table,
                    f"{name} is given two values{where if place.line.number else ''}.",
                    "Keep one of them.",
                )


def check_volumes(tokens: tuple[Token, ...], table: Table) -> None:
    """Check that no two volumes of a replica are in one folder."""
    seen: list[tuple[str, Volume]] = []
    for line in by_line(tokens):
        role = ""
        for token in line:
            entry = _entry(token, table)
            role = entry.field if entry.scope is Scope.ROLE else role
            if entry.field != "volumes":
                continue
            for one in Volumes().parse(token.value or ""):
                near = [other for of, other in seen if not role or of in ("", role)]
                try:
                    check_apart(one, near)
                except ValueError as error:
                    message = f"{named(token)} cannot be {str(one)!r}: expected {error}."
                    raise wrong(token, table, message, "Name another folder.") from None
                seen.append((role, one))


def check_scopes(tokens: tuple[Token, ...], table: Table) -> None:
    """Check that nothing for the pods of all roles is behind one of them, as if it were its own.

    Behind all roles of the header, as in a header of one line, it cannot be misread. A role without
    replicas, as in ``%ps=0``, is no other role.
    """
    counts = (
        (entry, token) for token in tokens if (entry := _entry(token, table)).scope is Scope.ROLE
    )
    roles = {entry.field for entry, token in counts if entry.kind.parse(token.value or "")}
    for line in by_line(tokens):
        before: dict[str, Token] = {}
        for token in line:
            entry = _entry(token, table)
            if entry.scope is Scope.ROLE:
                before[entry.field] = token
            elif entry.of_pods and before and not roles <= before.keys():
                *_, role = before.values()
                raise wrong(
                    token,
                    table,
                    f"{named(token)} applies to all roles, not to {named(role)} alone.",
                    f"Write it {'on a line' if token.line.number else 'as an option'} of its own.",
                    whole=True,
                )
