"""From directives to values: the only place that makes a spec out of what a user wrote."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from ciao_kernel.errors import DirectiveError, UsageError
from ciao_kernel.magics.header import Token
from ciao_kernel.magics.kinds import Choice, Flag, Pairs
from ciao_kernel.magics.table import Directive, Scope, Table, key
from ciao_kernel.magics.words import words
from ciao_kernel.model import JobSpec, ReplicaGroup, Resources

_SHOWN = 500
"""How much of a line an error keeps: a cell may be one line of a megabyte."""

_JOINED = re.compile(r"(?:[ \t]+%|[;,][ \t]*%?)[ \t]*([A-Za-z][\w-]*)")


def read(tokens: tuple[Token, ...], table: Table, default_framework: str | None) -> JobSpec:
    """Make a spec of a header's directives.

    Args:
        tokens: The directives; those of one line follow each other.
        table: What directives there are.
        default_framework: Framework where no directive names one.

    Raises:
        DirectiveError: A directive is wrong.
        UsageError: There is no framework, and no line to blame.
    """
    seen: dict[tuple[str, str], tuple[Any, Token]] = {}
    values: dict[str, Any] = {}
    several: dict[str, list[Any]] = {}
    counts: dict[str, int] = {}
    resources: dict[str, dict[str, Any]] = {}
    for line in by_line(tokens):
        role = ""
        for_all: Token | None = None
        for token in line:
            entry = find(token, table)
            value = value_of(token, entry, table)
            if entry.adds_up:
                several.setdefault(entry.field, []).extend(value)
            elif entry.scope is Scope.ROLE:
                role, counts[entry.field] = entry.field, value
                if for_all is not None:
                    raise _misplaced(for_all, token)
            elif entry.scope is Scope.RESOURCE:
                for_all = None if role else token
                resources.setdefault(role, {})[entry.field] = value
            else:
                values[entry.field] = value
            scope = role if entry.scope is Scope.RESOURCE else ""
            first, place = seen.setdefault((entry.name, scope), (value, token))
            if first != value and not entry.adds_up:
                raise _twice(token, place)
    framework = values.pop("framework", None) or default_framework
    if framework is None:
        raise _no_framework(tokens, table)
    _check_roles(framework, tokens, table)
    _check_variables(tokens, table)
    groups = tuple(
        ReplicaGroup(role, counts[role], Resources(**resources.get(role, {})))
        for role in table.roles(framework)
        if role in counts
    )
    values |= {field: tuple(items) for field, items in several.items()}
    spec = JobSpec(framework, groups, Resources(**resources.get("", {})), **values)
    _check_follow(spec, tokens, table)
    return spec


def by_line(tokens: Iterable[Token]) -> Iterator[Iterator[Token]]:
    """Group directives that stand in one line."""
    return (line for _, line in itertools.groupby(tokens, lambda token: token.line.start))


def find(token: Token, table: Table) -> Directive:
    """Look a directive up; raises DirectiveError that offers the nearest name."""
    entry = table.find(token.name) if token.name else None
    if entry is not None:
        return entry
    near = table.nearest(token.name)
    raise DirectiveError(
        f"unknown directive {_named(token)}." if token.name else "a directive has no name here.",
        (f"Did you mean {_mark(token)}{near}? " if near else "")
        + "`%ciao magics` lists all directives.",
        line=token.line.number,
        column=token.column,
        width=len(token.name) + 1,
        text=token.line.text[:_SHOWN],
    )


def value_of(token: Token, entry: Directive, table: Table) -> Any:
    """Read the value of a directive; raises DirectiveError that says what was expected."""
    text = token.value or ""
    if not text and not isinstance(entry.kind, Flag):
        raise wrong(
            token,
            f"{_named(token)} has no value: {entry.kind.expected} was expected.",
            f"For example: {entry.example}",
            whole=True,
        )
    try:
        return entry.kind.parse(text)
    except ValueError as error:
        # A variable may hold a password, and messages go to logs.
        shown = "that" if isinstance(entry.kind, Pairs) else repr(_short(text))
        message = f"{_named(token)} cannot be {shown}: {error} was expected."
        raise wrong(token, message, _hint(token, entry, table)) from None


def _hint(token: Token, entry: Directive, table: Table) -> str:
    text = token.value or ""
    joined = _JOINED.search(text)
    if joined and (other := table.find(joined[1])):
        return f"Write ;% between two directives: {_named(token)}={text[: joined.start()]};" + (
            f"%{other.name}=…"
        )
    if isinstance(entry.kind, Choice):
        near = difflib.get_close_matches(_short(text).lower(), entry.kind.names(), n=1)
        if near:
            return f"Did you mean {_named(token)}={near[0]}?"
    return f"For example: {entry.example}"


def _no_framework(tokens: tuple[Token, ...], table: Table) -> UsageError:
    names = ", ".join(table.names.frameworks)
    if tokens and tokens[0].line.number:
        return wrong(
            tokens[0],
            "the header names no framework.",
            f"Put a line %framework=NAME on top, with one of: {names}.",
            whole=True,
        )
    return UsageError("no framework is named.", f"Name one: {names}.")


def _misplaced(resource: Token, role: Token) -> DirectiveError:
    return wrong(
        resource,
        f"{_named(resource)} stands in front of {_named(role)}, and not behind it.",
        "Behind it, it belongs to that role; in a line of its own, to all roles.",
        whole=True,
    )


def _twice(token: Token, first: Token) -> DirectiveError:
    where = f" in line {first.line.number}" if first.line.number else ""
    return wrong(
        token,
        f"{_named(token)} is given twice: {_short(first.value or '')}{where}, "
        f"{_short(token.value or '')} here."
        if first.value and token.value
        else f"{_named(token)} is given twice, with different values.",
        "Keep one of them.",
        whole=True,
    )


def _check_roles(framework: str, tokens: tuple[Token, ...], table: Table) -> None:
    roles = table.roles(framework)
    for token in tokens:
        entry = table.find(token.name)
        if entry and entry.scope is Scope.ROLE and entry.field not in roles:
            raise wrong(
                token,
                f"{framework} has no role {entry.field}.",
                f"Its roles are {', '.join(roles)}.",
                whole=True,
            )


def _check_variables(tokens: tuple[Token, ...], table: Table) -> None:
    seen: dict[str, tuple[str, Token]] = {}
    for token in _of_field("env", tokens, table):
        for name, value in Pairs().parse(token.value or ""):
            first, place = seen.setdefault(name, (value, token))
            if first != value:
                where = "" if place is token else f", first in line {place.line.number}"
                raise wrong(
                    token,
                    f"{name} is given two values{where if place.line.number else ''}.",
                    "Keep one of them.",
                )


def _check_follow(spec: JobSpec, tokens: tuple[Token, ...], table: Table) -> None:
    roles = table.roles(spec.framework)
    said = {group.role: group.count for group in spec.groups}
    for token in _of_field("follow", tokens, table):
        for wanted in words(token.value or ""):
            role, _, index = wanted.rpartition("-")
            number = int(index) if re.fullmatch("[0-9]{1,4}", index) else None
            if wanted not in roles and (role not in roles or number is None):
                raise wrong(
                    token,
                    f"{_named(token)} cannot be {_short(wanted)!r}: a role or a replica of "
                    f"{spec.framework} was expected ({', '.join(roles)}, or {roles[0]}-0).",
                    "For example: %follow=worker-0",
                )
            if number is not None and number >= said.get(role, number + 1):
                raise wrong(
                    token,
                    f"this job has no {wanted}: it has {said[role]} × {role}.",
                    "The first replica of a role has the number 0.",
                )


def _of_field(field: str, tokens: tuple[Token, ...], table: Table) -> list[Token]:
    names = {key(entry.name) for entry in table.entries if entry.field == field}
    return [token for token in tokens if key(token.name) in names]


def wrong(token: Token, message: str, hint: str, *, whole: bool = False) -> DirectiveError:
    """Make the error for a directive; the caret stands under its value, or under all of it."""
    column = token.column if whole or not token.value else token.value_column
    return DirectiveError(
        message,
        hint,
        line=token.line.number,
        column=column,
        width=min(token.end, _SHOWN) - column,
        text=token.line.text[:_SHOWN],
    )


def _mark(token: Token) -> str:
    return "%" if token.line.number else "--"


def _named(token: Token) -> str:
    """The directive as the user knows it: ``%worker``, or ``--worker`` on a command line."""
    return _mark(token) + token.name


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"
