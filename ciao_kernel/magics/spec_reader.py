"""Conversion of directives to values: only this module makes a spec from the user's text."""

from __future__ import annotations

import difflib
import re
from typing import Any

from ciao_kernel.errors import DirectiveError, UsageError
from ciao_kernel.magics import diagnostics, header, header_checks
from ciao_kernel.magics.diagnostics import mark, named, short, shown, wrong
from ciao_kernel.magics.header import Token
from ciao_kernel.magics.header_checks import by_line
from ciao_kernel.magics.shell_words import words
from ciao_kernel.magics.spelling import key
from ciao_kernel.magics.table import Directive, Scope, Table
from ciao_kernel.magics.value_types import Choice, Flag, may_be_bare
from ciao_kernel.model import BuildSpec, ClusterSpec, JobSpec, ReplicaGroup, Resources

_JOINED = re.compile(
    r"(?:(?<![ \t\xa0])[ \t\xa0]+%[ \t\xa0]*|[;,][ \t\xa0]*+(?:%[ \t\xa0]*)?)([A-Za-z][\w-]*)"
)

ADD_A_FRAMEWORK = "To add a framework, see docs/extending.md."


def read(tokens: tuple[Token, ...], table: Table, default_framework: str | None) -> JobSpec:
    """Make a spec from the directives of a header.

    Args:
        tokens: The directives; those of the same line are adjacent.
        table: The directives.
        default_framework: Framework if no directive names a framework.

    Raises:
        DirectiveError: A directive is wrong.
        UsageError: There is no framework, and no line to show.
    """
    seen: dict[tuple[str, str], tuple[Any, Token]] = {}
    values: dict[str, Any] = {}
    several: dict[str, list[Any]] = {}
    counts: dict[str, int] = {}
    resources: dict[str, dict[str, Any]] = {}
    of_roles: dict[str, dict[str, tuple[Any, ...]]] = {}
    for line in by_line(tokens):
        role = ""
        for_all: Token | None = None
        for token in line:
            entry = find(token, table)
            value = value_of(token, entry, table)
            if entry.scope is Scope.JOB_OR_ROLE and role:
                own_values = of_roles.setdefault(role, {})
                own_values[entry.field] = (*own_values.get(entry.field, ()), *value)
            elif entry.repeatable:
                several.setdefault(entry.field, []).extend(value)
            elif entry.scope is Scope.ROLE:
                role, counts[entry.field] = entry.field, value
                if for_all is not None:
                    raise header_checks.misplaced(for_all, token, table)
            elif entry.scope is Scope.RESOURCE:
                for_all = None if role else token
                resources.setdefault(role, {})[entry.field] = value
            else:
                values[entry.field] = value
            scope = role if entry.scope is Scope.RESOURCE else ""
            first, place = seen.setdefault((entry.name, scope), (value, token))
            if first != value and not entry.repeatable:
                raise _twice(token, place, table)
    framework = values.pop("framework", None) or default_framework
    if framework is None:
        raise _no_framework(tokens, table)
    header_checks.check_roles(framework, tokens, table)
    header_checks.check_scopes(tokens, table)
    header_checks.check_pairs(tokens, table)
    header_checks.check_volumes(tokens, table)
    groups = tuple(
        ReplicaGroup(
            role, counts[role], Resources(**resources.get(role, {})), **of_roles.get(role, {})
        )
        for role in table.roles(framework)
        if role in counts
    )
    values |= {field: tuple(items) for field, items in several.items()}
    own = {field: value for field, value in values.items() if "." not in field}
    everywhere = Resources(**resources.get("", {}))
    cluster = ClusterSpec(**_inner("cluster", values))
    build = BuildSpec(**_inner("build", values))
    return JobSpec(framework, groups, everywhere, **own, cluster=cluster, build=build)


def _inner(part: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of fields such as ``cluster.image`` by the last part of their name."""
    pairs = ((field.partition("."), value) for field, value in values.items())
    return {name: value for (first, dot, name), value in pairs if dot and first == part}


def find(token: Token, table: Table) -> Directive:
    """Look up a directive; raise a DirectiveError that suggests the nearest name."""
    entry = table.find(token.name) if token.name else None
    if entry is not None:
        return entry
    name = token.name or header.name_apart(token)
    near = " or ".join(mark(token) + one for one in table.suggestions(name))
    text, column, width = shown(token.line, table, token.column, token.name_end)
    raise DirectiveError(
        f"unknown directive {named(token)}." if token.name else "a directive has no name.",
        (f"Did you mean {near}? " if near else "") + "`%ciao magics` lists all directives.",
        line=token.line.number,
        column=column,
        width=width,
        text=text,
    )


def value_of(token: Token, entry: Directive, table: Table) -> Any:
    """Parse the value of a directive; raise a DirectiveError that names the expected form."""
    text = token.value or ""
    if header.has_colon(token):
        hint = f"Write = instead of the colon: {named(token)}=…"
        raise wrong(token, table, f"a colon follows {named(token)}.", hint, whole=True)
    whole = isinstance(entry.kind, Flag) or (may_be_bare(entry.kind) and not token.equals)
    if not text and not whole:
        raise wrong(
            token,
            table,
            f"{named(token)} has no value: expected {entry.kind.expected}.",
            f"For example: {_example(token, entry)}",
            whole=True,
        )
    try:
        return entry.kind.parse(text)
    except ValueError as error:
        if (written := token.as_written) is not None:  # the notebook's value may be a password
            message = f"{named(token)} cannot be the value of {written!r}: expected {error}."
        elif not diagnostics.may_be_secret(entry):
            shown_value = diagnostics.value(text, table)
            message = f"{named(token)} cannot be {shown_value!r}: expected {error}."
        elif str(error) == entry.kind.expected:
            message = f"{named(token)} takes {error}."
        else:
            message = f"{named(token)} cannot be read: expected {error}."
        raise wrong(token, table, message, _hint(token, entry, table)) from None


def _hint(token: Token, entry: Directive, table: Table) -> str:
    text = token.value or ""
    joined = _JOINED.search(text)
    if joined and (other := table.find(joined[1])):
        secret = diagnostics.may_be_secret(entry)
        first = "…" if secret else diagnostics.value(text[: joined.start()], table)
        return f"Write ;% between two directives: {named(token)}={first};%{other.name}=…"
    if token.missing and not diagnostics.may_be_secret(entry):
        return f"The notebook has no variable {token.missing}: first run the cell that creates it."
    if isinstance(entry.kind, Choice) and (near := entry.kind.nearest(short(text))):
        return f"Did you mean {named(token)}={near}?"
    example = f"For example: {_example(token, entry)}"
    return f"{example}. {ADD_A_FRAMEWORK}" if entry.name == "framework" else example


def _example(token: Token, entry: Directive) -> str:
    if token.line.number:
        return entry.example
    value = entry.example.rpartition(f"%{entry.name}")[2].removeprefix("=")
    value = f'"{value}"' if " " in value else value
    return f"{entry.option}={value}" if value else entry.option


def _no_framework(tokens: tuple[Token, ...], table: Table) -> UsageError:
    names = ", ".join(table.names.frameworks)
    if tokens and tokens[0].line.number:
        return wrong(
            tokens[0],
            table,
            "the header has no %framework.",
            f"Add a line %framework=NAME at the top. Frameworks: {names}.",
            whole=True,
        )
    return UsageError("no framework is given.", f"Choose a framework: {names}.")


def _twice(token: Token, first: Token, table: Table) -> DirectiveError:
    where = f" in line {first.line.number}" if first.line.number else ""
    entry = table.find(token.name)
    secret = entry is not None and diagnostics.may_be_secret(entry)
    return wrong(
        token,
        table,
        f"{named(token)} is given twice: {diagnostics.value(first.value, table)}{where}, "
        f"{diagnostics.value(token.value, table)} here."
        if first.value and token.value and not secret
        else f"{named(token)} is given twice, with different values.",
        "Keep one of them.",
        whole=True,
    )


def check_follow(spec: JobSpec, tokens: tuple[Token, ...], table: Table) -> None:
    """Check the names in ``%follow``: without a match, the cell would silently show nothing.

    Args:
        spec: The job with the roles that its framework adds, and without empty roles.
        tokens: The directives of the header and of the command line.
        table: The directives.

    Raises:
        DirectiveError: The job lacks a named role or replica.
    """
    known = {group.role for group in spec.groups} | {str(replica) for replica in spec.replicas()}
    missing = next((name for name in spec.follow if name not in known), None)
    if missing is None:
        return
    # An option overrides the header, so the error is shown for the option; its line is 0.
    for token in sorted(_of_field("follow", tokens, table), key=lambda one: one.line.number):
        if missing in words(token.value or ""):
            near = difflib.get_close_matches(missing, sorted(known), n=1)
            has = " and ".join(
                f"{group.role} ({group.role}-0"
                + (f" to {group.role}-{group.count - 1})" if group.count > 1 else ")")
                for group in spec.groups
            )
            raise wrong(
                token,
                table,
                f"this job has no role or replica {diagnostics.value(missing, table)!r}.",
                (f"Did you mean {near[0]}? " if near else "") + f"It has {has}.",
            )


def _of_field(field: str, tokens: tuple[Token, ...], table: Table) -> list[Token]:
    names = {key(entry.name) for entry in table.entries if entry.field == field}
    return [token for token in tokens if key(token.name) in names]
