"""Read a cell: from text to :class:`~ciao_kernel.model.JobSpec` and the program to deliver.

The only place that turns directives into values. All that can be said to be wrong by looking
at the text alone is said here, with the line and a caret, before anything exists.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Any

from ciao_kernel.errors import DirectiveError, SourceError, SpecError, UsageError
from ciao_kernel.magics import header
from ciao_kernel.magics.header import Header, Line, Style, Token
from ciao_kernel.magics.table import Directive, Scope, Table
from ciao_kernel.model import JobSpec, ReplicaGroup, Resources

MAX_BYTES = 1024 * 1024
"""Size limit of a cell: what a ConfigMap holds (1 MiB, Kubernetes' limit for one object)."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a cell says."""

    spec: JobSpec
    code: str
    """The program: the text with its directives made comments in place."""
    tokens: tuple[Token, ...]

    def locate(self, error: SpecError) -> UsageError:
        """Give an error of a framework or backend its line in the cell."""
        wanted = error.directive.lower()
        for token in reversed(self.tokens):
            if token.name.lower().replace("-", "").replace("_", "") == wanted.lower():
                return _wrong(token, error.message, error.hint, whole=True)
        return error


def is_job(text: str, table: Table, style: Style = Style.CELL) -> bool:
    """Whether a cell is a job: its header holds a directive, or it starts with ``%%ciao``.

    A cell whose directives all stand below code is one too, as it was for the first ciao, but
    only where a directive stands in the place of a statement, never inside a string.
    """
    if style is Style.CELL and header.is_cell_magic(text):
        return True
    if any(header.is_directive(t, table) for t in header.scan(text, table, style).tokens):
        return True
    return style is Style.CELL and bool(_below(text, table, ())[0])


def parse(
    text: str,
    table: Table,
    *,
    style: Style = Style.CELL,
    default_framework: str | None = None,
    check_syntax: bool = True,
) -> Parsed:
    """Read a cell or a file that is a job.

    Args:
        text: The cell as the user wrote it.
        table: The directives.
        style: How directives are marked.
        default_framework: Framework where the header names none.
        check_syntax: Compile the program with this Python. Off for another interpreter.

    Raises:
        DirectiveError: A directive is wrong.
        SourceError: The body is wrong.
    """
    _check_text(text)
    head = header.scan(text, table, style)
    tokens = head.tokens
    if style is Style.CELL:
        tokens += _below(text, table, tokens)[0]
    _check_foreign(head, table)
    spec = _spec(tokens, table, default_framework)
    code = header.deliver(text, tokens, style)
    _check_body(text, code, head, table, compiles=check_syntax and spec.python is None)
    return Parsed(spec, code, tokens)


def spec_from(values: dict[str, list[str]], table: Table, default_framework: str | None) -> JobSpec:
    """Read options of the command line (``{"worker": ["2"]}``) as if they stood in a header."""
    lines = [f"%{name}={value}" for name, several in values.items() for value in several]
    tokens = header.scan("\n".join(lines), table).tokens
    return _spec(tokens, table, default_framework)


# ------------------------------------------------------------------------------ directives


def _spec(tokens: tuple[Token, ...], table: Table, default_framework: str | None) -> JobSpec:
    seen: dict[tuple[str, str], tuple[Any, Token]] = {}
    values: dict[str, Any] = {}
    counts: dict[str, int] = {}
    resources: dict[str, dict[str, Any]] = {}
    by_line: dict[int, str] = {}
    for token in tokens:
        entry = _entry(token, table)
        value = _value(token, entry)
        role = ""
        if entry.scope is Scope.RESOURCE:
            role = by_line.get(token.line.number, "")
        elif entry.scope is Scope.ROLE:
            by_line[token.line.number] = entry.field
        first = seen.setdefault((entry.name, role), (value, token))
        if not entry.adds_up and first[0] != value:
            raise _wrong(
                token,
                f"%{entry.name} is given twice: {entry.kind.render(first[0])} in line "
                f"{first[1].line.number}, {entry.kind.render(value)} here.",
                "Keep one of them.",
                whole=True,
            )
        if entry.scope is Scope.ROLE:
            counts[entry.field] = value
        elif entry.scope is Scope.RESOURCE:
            resources.setdefault(role, {})[entry.field] = value
        elif entry.adds_up:
            values[entry.field] = (*values.get(entry.field, ()), *value)
        else:
            values[entry.field] = value
    framework = values.pop("framework", None) or default_framework
    if framework is None:
        raise _no_framework(tokens, table)
    _check_roles(framework, tokens, table)
    groups = tuple(
        ReplicaGroup(role, counts[role], Resources(**resources.get(role, {})))
        for role in table.roles(framework)
        if role in counts
    )
    spec = JobSpec(framework, groups, Resources(**resources.get("", {})), **values)
    _check_follow(spec, tokens, table)
    return spec


def _entry(token: Token, table: Table) -> Directive:
    entry = table.find(token.name) if token.name else None
    if entry is not None:
        return entry
    near = table.nearest(token.name)
    hint = f"Did you mean %{near}? " if near else ""
    raise DirectiveError(
        f"unknown directive %{token.name}." if token.name else "a directive has no name here.",
        hint + "`%ciao magics` lists all directives.",
        line=token.line.number,
        column=token.column,
        width=len(token.name) + 1,
        text=token.line.text,
    )


def _value(token: Token, entry: Directive) -> Any:
    from ciao_kernel.magics.kinds import Choice, Flag

    text = token.value
    if not text and not isinstance(entry.kind, Flag):
        raise _wrong(
            token,
            f"%{entry.name} has no value: {entry.kind.expected} was expected.",
            f"For example: {entry.example}",
            whole=True,
        )
    try:
        return entry.kind.parse(text or "")
    except ValueError as error:
        hint = f"For example: {entry.example}"
        if isinstance(entry.kind, Choice):
            import difflib

            near = difflib.get_close_matches((text or "").lower(), entry.kind.names(), n=1)
            hint = f"Did you mean %{entry.name}={near[0]}?" if near else hint
        raise _wrong(
            token, f"%{entry.name} cannot be {text!r}: {error} was expected.", hint
        ) from None


def _no_framework(tokens: tuple[Token, ...], table: Table) -> UsageError:
    names = ", ".join(table.names.frameworks)
    message = "the header names no framework."
    hint = f"Put a line %framework=NAME on top, with one of: {names}."
    if not tokens:
        return UsageError(message, hint)
    return _wrong(tokens[0], message, hint, whole=True)


def _check_roles(framework: str, tokens: tuple[Token, ...], table: Table) -> None:
    roles = table.roles(framework)
    for token in tokens:
        entry = table.find(token.name)
        if entry and entry.scope is Scope.ROLE and entry.field not in roles:
            raise _wrong(
                token,
                f"{framework} has no role {entry.field}.",
                f"Its roles are {', '.join(roles)}.",
                whole=True,
            )


def _check_follow(spec: JobSpec, tokens: tuple[Token, ...], table: Table) -> None:
    roles = table.roles(spec.framework)
    for wanted in spec.follow:
        role, dash, index = wanted.rpartition("-")
        if wanted not in roles and not (dash and role in roles and index.isdigit()):
            token = next(t for t in reversed(tokens) if t.name.lower() == "follow")
            raise _wrong(
                token,
                f"%follow cannot be {wanted!r}: a role or a replica of {spec.framework} "
                f"was expected ({', '.join(roles)}, or {roles[0]}-0).",
                "For example: %follow=worker-0",
            )


def _wrong(token: Token, message: str, hint: str, *, whole: bool = False) -> DirectiveError:
    """Make the error for a directive; the caret stands under its value, or under all of it."""
    column, width = token.value_column, len(token.value or "")
    if whole or not width:
        end = token.value_column + len(token.value or "")
        column, width = token.column, max(end - token.column, len(token.name) + 1)
    return DirectiveError(
        message,
        hint,
        line=token.line.number,
        column=column,
        width=width,
        text=token.line.text,
    )


# ------------------------------------------------------------------------------------ body

_MAGIC_LINE = re.compile(r"[ \t\f]*(%%?[A-Za-z]|!|\?[A-Za-z])")


def _check_text(text: str) -> None:
    if (place := text.find("\0")) >= 0:
        raise SourceError(
            "the cell holds a null byte, which Python does not take.",
            "Delete the line and type it again.",
            line=text.count("\n", 0, place) + 1,
        )
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise SourceError(
            f"the cell holds half a character (U+{ord(text[error.start]):04X}), "
            "which cannot be written to a file.",
            "Delete it and type it again.",
            line=text.count("\n", 0, error.start) + 1,
        ) from None
    if size > MAX_BYTES:
        raise SourceError(
            f"the cell has {size:,} bytes; {MAX_BYTES:,} is the limit.",
            "Move data to a file and name it with %files, or code to a module beside the notebook.",
        )


def _check_foreign(head: Header, table: Table) -> None:
    for line in head.foreign:
        raise _foreign(line, table)


def _foreign(line: Line, table: Table) -> SourceError:
    stripped = line.text.lstrip()
    word = stripped.split()[0]
    near = table.nearest(word.lstrip("%")) if word.startswith("%") else None
    if near:
        hint = f"Did you mean %{near}=…?"
    elif stripped.startswith(("!pip", "%pip", "!conda", "%conda")):
        hint = "Install packages in a plain cell above; replicas on this machine share them."
    else:
        hint = "Move it to a plain cell of its own: the replicas run plain Python."
    return SourceError(
        f"{word} is for IPython, and a job's cell is plain Python.",
        hint,
        line=line.number,
        column=len(line.text) - len(stripped),
        text=line.text,
    )


def _below(
    text: str, table: Table, above: tuple[Token, ...]
) -> tuple[tuple[Token, ...], SyntaxError | None]:
    """Find directives below the header that stand where a statement would.

    Python itself tells strings from statements: a ``%`` line is taken only when it is what
    the compiler stumbles over. Returns them and the error that is left, if any.
    """
    if not _any_directive_line(text, table, above):
        return (), None
    numbered = {line.number: line for line in header.lines(text)}
    found: list[Token] = []
    for _ in range(len(numbered)):
        error = _syntax_error(header.deliver(text, (*above, *found)))
        line = numbered.get(error.lineno or 0) if error else None
        if line is None or not line.text.startswith("%"):
            return tuple(found), error
        tokens = tuple(header.split(line, 0))
        known = [t for t in tokens if table.find(t.name) and t.equals]
        if not known or any(t.line.number == line.number for t in found):
            return tuple(found), error
        found += tokens
    return tuple(found), None


def _any_directive_line(text: str, table: Table, above: tuple[Token, ...]) -> bool:
    taken = {token.line.number for token in above}
    return "%" in text and any(
        line.text.startswith("%")
        and line.number not in taken
        and (match := re.match(r"%([A-Za-z][\w-]*)[ \t]*=", line.text))
        and table.find(match[1])
        for line in header.lines(text)
    )


def _check_body(text: str, code: str, head: Header, table: Table, *, compiles: bool) -> None:
    body = [line for line in header.lines(text) if line.number >= head.body]
    if all(not (stripped := line.text.strip()) or stripped.startswith("#") for line in body):
        raise SourceError(
            "the cell has directives and no code.",
            "Put the training code below them, in the same cell.",
            line=max(1, head.body - 1),
            text=next((li.text for li in header.lines(text) if li.number == head.body - 1), ""),
        )
    if not compiles:
        return
    error = _syntax_error(code)
    if error is None:
        return
    line = next((li for li in header.lines(text) if li.number == error.lineno), None)
    if line is not None and _MAGIC_LINE.match(line.text):
        raise _foreign(line, table)
    raise SourceError(
        f"{error.msg}.",
        "Python cannot read the cell, so no replica could.",
        line=error.lineno or 0,
        column=max(0, (error.offset or 1) - 1),
        text=line.text if line else "",
    )


def _syntax_error(code: str) -> SyntaxError | None:
    """Compile a program and return what is wrong with it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(code, "<cell>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return error
    except (RecursionError, MemoryError, OverflowError):
        return SyntaxError("the code is nested too deeply for Python", ("", 0, 0, ""))
    except ValueError as error:
        return SyntaxError(str(error), ("", 0, 0, ""))
    return None
