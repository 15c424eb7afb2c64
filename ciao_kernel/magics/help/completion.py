"""Completion of names and values of directives in a header."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ciao_kernel.magics import header
from ciao_kernel.magics.directives.inputs import Variables
from ciao_kernel.magics.directives.on_error import OnError
from ciao_kernel.magics.directives.plots import COMMON_METRICS
from ciao_kernel.magics.header import Header, Line, Style, Token
from ciao_kernel.magics.header_checks import by_line
from ciao_kernel.magics.help import path_completion
from ciao_kernel.magics.help.path_completion import Secret, interpreters, paths
from ciao_kernel.magics.shell_words import quote, unfinished
from ciao_kernel.magics.spelling import key
from ciao_kernel.magics.table import Directive, Scope, Table
from ciao_kernel.magics.value_types import Choice, Flag, Suggestions, Word, Words

_MOST_REPLICAS = 32
_OF_A_ROLE = (Scope.RESOURCE, Scope.JOB_OR_ROLE)
"""Scopes of directives that may follow a role, for its replicas."""
_NAME = re.compile(r"[A-Za-z0-9_-]*")
_SEPARATOR = re.compile(r"[\s,]+")
_TYPED = re.compile(r"(?:^|(?<=[\s,]))\w*$")
"""The start of a variable's name before the cursor."""
_WORD = re.compile(r"""(?>(?:\\.|"(?>(?:\\.|[^"\\])*)"|'[^']*+'|[^\s"'\\])+)""")


@dataclass(frozen=True, slots=True)
class Completion:
    """Completions at the cursor."""

    matches: tuple[str, ...]
    start: int
    """Offset of the first character that a match replaces."""
    end: int
    merge: bool = False
    """True to add IPython's own matches: the cell is not a job yet, and the line may become a
    magic."""


def complete(
    text: str,
    cursor: int,
    table: Table,
    folder: Path,
    style: Style = Style.CELL,
    variables: Iterable[str] = (),
    secret: Secret = lambda file: False,
) -> Completion | None:
    """Complete the text before the cursor; the kernel calls this.

    On the first ``%fr`` of a cell that is not a job yet, the result has ciao's names, and
    ``merge`` is true to add IPython's magics. Never raises.

    Args:
        text: The cell.
        cursor: Offset of the cursor.
        table: The directives.
        folder: Folder for relative file names.
        style: Marker of directives.
        variables: Names for %input; they are iterated only for that directive.
        secret: Returns a true value for a secret file, which no directive accepts.

    Returns:
        None if the cursor is not on a line of directives in the header; Python's own completer is
        then used.
    """
    cursor = max(0, min(cursor, len(text)))
    line = header.line_at(text, cursor)
    if line is None:
        return None
    head = header.scan(text, table, style)
    tokens = header.pieces(line, style) if head.holds(line) else ()
    column = cursor - line.start
    token = next((token for token in reversed(tokens) if token.column < column), None)
    if token is None:
        return None
    here = (line.start, token.column)
    others = [other for other in head.tokens if (other.line.start, other.column) != here]
    name = _NAME.match(line.text, token.name_column)
    name_end = name.end() if name else token.name_column
    if column <= name_end:
        matches = _names(line.text[token.name_column : column], token, others, table)
        end = name_end + line.text.startswith("=", name_end)
        other_lines = any(other.line.start != line.start for other in others)
        merge = style is Style.CELL and token == tokens[0] and len(tokens) == 1 and not other_lines
        merge = merge and not header.is_cell_magic(text)
        return Completion(matches, line.start + token.column, line.start + end, merge)
    entry = table.find(token.name)
    if entry is None or not token.name:
        # "%matplotlib inl" is a magic of IPython, and IPython completes its value.
        return None if not head.tokens and not token.equals else Completion((), cursor, cursor)
    if isinstance(entry.kind, Variables):
        return _variables(line, column, token, others, table, variables)
    start, matches = _values(line.text[:column], token, entry, head, table, folder, secret)
    # The rest of the word after the cursor is replaced too.
    word = _WORD.match(line.text, start)
    end = max(column, min(word.end(), token.end)) if word else column
    return Completion(matches, line.start + start, line.start + end)


# ---------------------------------------------------------------------------------- names


def _names(prefix: str, token: Token, others: list[Token], table: Table) -> tuple[str, ...]:
    """Return the directives that are allowed here, best matches first."""
    framework = _framework(others, table)
    roles = table.offered_roles(framework) if framework else None
    scoped = list(_scoped(others, table))
    given = {(entry.name, role) for entry, role, _ in scoped}
    before = [
        entry.name
        for entry, _, other in scoped
        if entry.scope is Scope.ROLE
        and other.line.start == token.line.start
        and other.column < token.column
    ]
    role = before[-1] if before else ""
    first: list[str] = []
    second: list[str] = []
    for entry in table.entries:
        scope = role if entry.scope in _OF_A_ROLE else ""
        if not key(entry.name).startswith(key(prefix)):
            continue
        if (entry.name, scope) in given and not entry.repeatable:
            continue
        if entry.scope is Scope.ROLE and roles is not None and entry.field not in roles:
            continue
        match = f"%{entry.name}" + ("" if isinstance(entry.kind, Flag) else "=")
        (first if role and scope else second).append(match)
    return (*first, *second)


def _scoped(tokens: Iterable[Token], table: Table) -> Iterator[tuple[Directive, str, Token]]:
    """Yield the known directives, each resource with its role."""
    for line in by_line(tokens):
        role = ""
        for token in line:
            entry = table.find(token.name)
            if entry is None:
                continue
            role = entry.name if entry.scope is Scope.ROLE else role
            yield entry, role if entry.scope in _OF_A_ROLE else "", token


def _framework(tokens: Iterable[Token], table: Table) -> str | None:
    for entry, _, token in _scoped(tokens, table):
        if entry.field == "framework":
            try:
                return str(entry.kind.parse(token.value or ""))
            except ValueError:
                return None
    return None


# --------------------------------------------------------------------------------- values


def _values(
    before: str,
    token: Token,
    entry: Directive,
    head: Header,
    table: Table,
    folder: Path,
    secret: Secret,
) -> tuple[int, tuple[str, ...]]:
    """Return the start of the word at the cursor, and its completions.

    Args:
        before: The line up to the cursor.
        token: The directive.
        entry: Its entry in the table.
        head: The header, which determines the roles.
        table: The directives.
        folder: Folder for relative file names.
        secret: Returns a true value for a secret file, which no directive accepts.
    """
    value = min(token.value_column, len(before))
    word = unfinished(before[value:])
    start = value + word.start
    if "#" in before[token.end :]:
        return len(before), ()  # A comment after the directive.
    if isinstance(entry.kind, Choice | Flag | OnError):
        names = entry.kind.names()
        if before[value:start].strip():
            return start, ()  # A second word; only one word is allowed.
        return start, tuple(name for name in names if name.lower().startswith(word.typed.lower()))
    offer = entry.kind.offer if isinstance(entry.kind, Word | Words) else Suggestions.NOTHING
    found: Iterable[str] = ()
    if offer is Suggestions.REPLICAS:
        found = (name for name in _replicas(head, table) if name.startswith(word.typed))
    elif offer is Suggestions.ROLES:
        others, comma, typed = word.typed.rpartition(",")
        roles = (name for name in _replicas(head, table) if "-" not in name)
        found = (others + comma + name for name in roles if name.startswith(typed))
    elif offer is Suggestions.FILES:
        found = paths(word.typed, folder, secret)
    elif offer is Suggestions.INTERPRETERS:
        found = interpreters(word.typed, folder)
    elif offer is Suggestions.METRICS:
        others, comma, typed = word.typed.rpartition(",")
        found = (others + comma + name for name in COMMON_METRICS if name.startswith(typed))
    return start, tuple(quote(name, word.mark or "'") for name in found)


def _variables(
    line: Line,
    column: int,
    token: Token,
    others: list[Token],
    table: Table,
    variables: Iterable[str],
) -> Completion:
    """Return names of variables that no %input of the header contains yet."""
    before = line.text[min(token.value_column, column) : column]
    after_cursor = line.text[column : max(column, token.end)]
    typed = _TYPED.search(before)
    if typed is None or "#" in line.text[token.end : column]:
        return Completion((), line.start + column, line.start + column)
    rest = re.sub(r"^\w+", "", after_cursor)
    taken = {*_SEPARATOR.split(before[: typed.start()]), *_SEPARATOR.split(rest)}
    for other in others:
        entry = table.find(other.name)
        if entry and isinstance(entry.kind, Variables):
            taken.update(_SEPARATOR.split(other.value or ""))
    found = {
        name
        for name in variables
        if name.startswith(typed[0]) and name.isidentifier() and name not in taken
        # Names with a leading "_" are mostly IPython's.
        if typed[0] or not name.startswith("_")
    }
    start, end = column - len(typed[0]), column + len(after_cursor) - len(rest)
    matches = tuple(sorted(found))[: path_completion.MOST_MATCHES]
    return Completion(matches, line.start + start, line.start + end)


def _replicas(head: Header, table: Table) -> Iterator[str]:
    """Yield roles and replicas of the job, as far as its header is written."""
    framework = _framework(head.tokens, table)
    counts: dict[str, int] = {}
    for entry, _, token in _scoped(head.tokens, table):
        if entry.scope is Scope.ROLE:
            try:
                counts[entry.field] = entry.kind.parse(token.value or "")
            except ValueError:
                continue
    roles = table.offered_roles(framework or "")
    yield from (role for role in roles if counts.get(role, not counts))
    for role in roles:
        for index in range(min(counts.get(role, 0), _MOST_REPLICAS)):
            yield f"{role}-{index}"
