"""Completion in a header: names of directives, and their values."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ciao_kernel.magics import header
from ciao_kernel.magics.build_spec import by_line
from ciao_kernel.magics.header import Header, Line, Style, Token
from ciao_kernel.magics.inputs import Variables
from ciao_kernel.magics.plots import USUAL
from ciao_kernel.magics.shell_words import quote, unfinished
from ciao_kernel.magics.table import Directive, Scope, Table, key
from ciao_kernel.magics.value_types import Choice, Flag, Offer, Word, Words

_MOST_ENTRIES = 20_000
"""Entries of a folder that are looked at; Tab must not hang on a folder of a million files."""
_MOST_MATCHES = 500
_MOST_REPLICAS = 32
_NAME = re.compile(r"[A-Za-z0-9_-]*")
_SEPARATOR = re.compile(r"[\s,]+")
_TYPED = re.compile(r"(?:^|(?<=[\s,]))\w*$")
"""The beginning of a variable's name in front of the cursor."""
_Secret = Callable[[Path], object]
_WORD = re.compile(r"""(?>(?:\\.|"(?>(?:\\.|[^"\\])*)"|'[^']*+'|[^\s"'\\])+)""")


@dataclass(frozen=True, slots=True)
class Completion:
    """What may stand at the cursor."""

    matches: tuple[str, ...]
    start: int
    """Offset of the first character that a match replaces."""
    end: int
    merge: bool = False
    """Whether IPython's own matches belong too: the cell is not yet a job, and the line may
    become one of its magics."""


def complete(
    text: str,
    cursor: int,
    table: Table,
    folder: Path,
    style: Style = Style.CELL,
    variables: Iterable[str] = (),
    secret: _Secret = lambda file: False,
) -> Completion | None:
    """Complete what stands in front of the cursor; the kernel asks.

    On the first ``%fr`` of a cell that is not yet a job our names are offered, and ``merge``
    says that IPython's magics belong with them. Never raises.

    Args:
        text: The cell.
        cursor: Offset of the cursor.
        table: The directives.
        folder: What relative file names are relative to.
        style: How directives are marked.
        variables: Names that %input takes; they are asked for only there.
        secret: Whether a file that lies there is a secret one, which no directive takes.

    Returns:
        None where the cursor is not on a line of directives in the header: there the completer
        of Python takes over.
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
        elsewhere = any(other.line.start != line.start for other in others)
        merge = style is Style.CELL and token == tokens[0] and len(tokens) == 1 and not elsewhere
        merge = merge and not header.is_cell_magic(text)
        return Completion(matches, line.start + token.column, line.start + end, merge)
    entry = table.find(token.name)
    if entry is None or not token.name:
        # "%matplotlib inl": IPython's magic, whose value is IPython's to complete.
        return None if not head.tokens and not token.equals else Completion((), cursor, cursor)
    if isinstance(entry.kind, Variables):
        return _variables(line, column, token, others, table, variables)
    start, matches = _values(line.text[:column], token, entry, head, table, folder, secret)
    # The rest of the word behind the cursor is replaced too.
    word = _WORD.match(line.text, start)
    end = max(column, min(word.end(), token.end)) if word else column
    return Completion(matches, line.start + start, line.start + end)


# ---------------------------------------------------------------------------------- names


def _names(prefix: str, token: Token, others: list[Token], table: Table) -> tuple[str, ...]:
    """Directives that may stand here, those that fit this place best first."""
    framework = _framework(others, table)
    roles = table.roles(framework) if framework else None
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
        scope = role if entry.scope is Scope.RESOURCE else ""
        if not key(entry.name).startswith(key(prefix)):
            continue
        if (entry.name, scope) in given and not entry.adds_up:
            continue
        if entry.scope is Scope.ROLE and roles is not None and entry.field not in roles:
            continue
        match = f"%{entry.name}" + ("" if isinstance(entry.kind, Flag) else "=")
        (first if role and scope else second).append(match)
    return (*first, *second)


def _scoped(tokens: Iterable[Token], table: Table) -> Iterator[tuple[Directive, str, Token]]:
    """The known directives, each resource with the role it belongs to."""
    for line in by_line(tokens):
        role = ""
        for token in line:
            entry = table.find(token.name)
            if entry is None:
                continue
            role = entry.name if entry.scope is Scope.ROLE else role
            yield entry, role if entry.scope is Scope.RESOURCE else "", token


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
    secret: _Secret,
) -> tuple[int, tuple[str, ...]]:
    """Where the word at the cursor starts, and what it may be.

    Args:
        before: The line up to the cursor.
        token: The directive.
        entry: Its entry in the table.
        head: The header, which tells the roles.
        table: The directives.
        folder: What relative file names are relative to.
        secret: Whether a file that lies there is a secret one, which no directive takes.
    """
    value = min(token.value_column, len(before))
    word = unfinished(before[value:])
    start = value + word.start
    if "#" in before[token.end :]:
        return len(before), ()  # A comment behind the directive.
    if isinstance(entry.kind, Choice | Flag):
        names = entry.kind.names()
        if before[value:start].strip():
            return start, ()  # A second word, and only one is allowed.
        return start, tuple(name for name in names if name.startswith(word.typed.lower()))
    offer = entry.kind.offer if isinstance(entry.kind, Word | Words) else Offer.NOTHING
    found: Iterable[str] = ()
    if offer is Offer.REPLICAS:
        found = (name for name in _replicas(head, table) if name.startswith(word.typed))
    elif offer is Offer.FILES:
        found = _paths(word.typed, folder, secret)
    elif offer is Offer.INTERPRETERS:
        found = _interpreters(word.typed, folder)
    elif offer is Offer.METRICS:
        others, comma, typed = word.typed.rpartition(",")
        found = (others + comma + name for name in USUAL if name.startswith(typed))
    return start, tuple(quote(name, word.mark or "'") for name in found)


def _variables(
    line: Line,
    column: int,
    token: Token,
    others: list[Token],
    table: Table,
    variables: Iterable[str],
) -> Completion:
    """Names of variables that no %input of the header takes yet."""
    before = line.text[min(token.value_column, column) : column]
    behind = line.text[column : max(column, token.end)]
    typed = _TYPED.search(before)
    if typed is None or "#" in line.text[token.end : column]:
        return Completion((), line.start + column, line.start + column)
    rest = re.sub(r"^\w+", "", behind)
    taken = {*_SEPARATOR.split(before[: typed.start()]), *_SEPARATOR.split(rest)}
    for other in others:
        entry = table.find(other.name)
        if entry and isinstance(entry.kind, Variables):
            taken.update(_SEPARATOR.split(other.value or ""))
    found = {
        name
        for name in variables
        if name.startswith(typed[0]) and name.isidentifier() and name not in taken
        # What starts with "_" is mostly IPython's.
        if typed[0] or not name.startswith("_")
    }
    start, end = column - len(typed[0]), column + len(behind) - len(rest)
    matches = tuple(sorted(found))[:_MOST_MATCHES]
    return Completion(matches, line.start + start, line.start + end)


def _replicas(head: Header, table: Table) -> Iterator[str]:
    """Roles and replicas of the job as far as it is written."""
    framework = _framework(head.tokens, table)
    counts: dict[str, int] = {}
    for entry, _, token in _scoped(head.tokens, table):
        if entry.scope is Scope.ROLE:
            try:
                counts[entry.field] = entry.kind.parse(token.value or "")
            except ValueError:
                continue
    roles = table.roles(framework or "")
    yield from (role for role in roles if counts.get(role, not counts))
    for role in roles:
        for index in range(min(counts.get(role, 0), _MOST_REPLICAS)):
            yield f"{role}-{index}"


def _interpreters(typed: str, folder: Path) -> Iterator[str]:
    if "/" in typed or typed.startswith("~"):
        return iter(_paths(typed, folder))
    minor = range(sys.version_info.minor + 2, 9, -1)
    names = ("python3", "python", *(f"python3.{number}" for number in minor))
    found = [name for name in names if shutil.which(name)]
    return (name for name in (*found, sys.executable) if name.startswith(typed))


def _paths(typed: str, folder: Path, secret: _Secret | None = None) -> list[str]:
    """Files and folders that start with what is typed; folders end in ``/``.

    Args:
        typed: A path, relative or not.
        folder: What it is relative to.
        secret: Given where a file is to be delivered: only what lies in the folder can be, and
            of that no secret one.
    """
    parent, _, prefix = typed.rpartition("/")
    if secret and (typed.startswith(("/", "~")) or ".." in parent.split("/")):
        return []
    shown = typed[: len(typed) - len(prefix)]
    found = []
    try:
        place = Path(folder, Path(shown).expanduser())
        with os.scandir(place) as entries:
            for entry in itertools.islice(entries, _MOST_ENTRIES):
                name = entry.name
                hidden = name.startswith(".") and not prefix.startswith(".")
                # What cannot be printed cannot be typed in a header either.
                if not name.startswith(prefix) or hidden or not name.isprintable():
                    continue
                end = "/" if entry.is_dir() else ""
                if secret and not end and secret(place / name):
                    continue
                # A sign in front of a path has a meaning of its own.
                sign = secret and not shown and name.startswith(("~", "!"))
                found.append(("./" if sign else shown) + name + end)
    except (OSError, ValueError, RuntimeError):
        # No such folder, no right to read it, half a character, or no home.
        return []
    return sorted(found)[:_MOST_MATCHES]
