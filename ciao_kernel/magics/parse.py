"""Parse a cell into a :class:`~ciao_kernel.model.JobSpec` and the program to deliver.

Every error that the text alone reveals is raised here, with the line and a caret, before
anything is created.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ciao_kernel.errors import SpecError, UsageError
from ciao_kernel.magics import (
    any_language,
    body,
    diagnostics,
    header,
    last_expression,
    loops,
    placeholders,
    spec_reader,
)
from ciao_kernel.magics.header import Line, Style, Token
from ciao_kernel.magics.program_text import deliver
from ciao_kernel.magics.scanned_cell import ScannedCell, scan
from ciao_kernel.magics.shell_words import words
from ciao_kernel.magics.spelling import key
from ciao_kernel.magics.table import Table
from ciao_kernel.model import JobSpec

NO_VALUE = "\0"
"""Value of an option that is given without a value; no shell can give this text."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """Result of parsing a cell."""

    spec: JobSpec
    code: str
    """The program: the text with its directives turned into comments in place."""
    tokens: tuple[Token, ...]
    """The directives as written; options of a command line are last and take precedence."""
    table: Table = field(repr=False)
    notes: tuple[str, ...] = ()
    """Sentences for the user about the header."""

    def locate(self, error: SpecError) -> UsageError:
        """Add the line in the cell, or the option, to an error of a framework or backend."""
        named = [one for one in reversed(self.tokens) if key(one.name) == key(error.directive)]
        with_word = [one for one in named if error.word and error.word in _parts(one.value or "")]
        for token in (with_word or named)[:1]:
            message, hint = error.message, error.hint
            if not token.line.number:
                message, hint = map(self.table.as_options, (message, hint))
            return diagnostics.wrong(token, self.table, message, hint, whole=not with_word)
        return error


def _parts(value: str) -> tuple[str, ...]:
    """Return the words of a value, also split at commas."""
    return (*words(value), *words(value.replace(",", " ")))


def parse(
    cell: str | ScannedCell,
    table: Table,
    *,
    style: Style = Style.CELL,
    default_framework: str | None = None,
    check_syntax: bool = True,
    variables: Mapping[str, Any] | None = None,
) -> Parsed:
    """Parse a cell or a file that is a job.

    Args:
        cell: The cell as the user wrote it, scanned or not.
        table: The directives.
        style: Marker of directives in a text that was not scanned.
        default_framework: Framework if the header names none.
        check_syntax: Compile the program with this Python; false for another interpreter.
        variables: The notebook's variables, for ``{name}`` and ``$name`` in values; None: values
            stay as written.

    Raises:
        DirectiveError: A directive is wrong.
        SourceError: The body is wrong.
    """
    text = cell if isinstance(cell, str) else cell.text
    body.check_text(text, table)
    if isinstance(cell, str):
        cell = scan(text, table, style)
    if cell.behind_blanks:
        raise loops.error(text, cell.behind_blanks, table)
    # The name of the framework, by which the text is read, may be a variable.
    tokens, notes = placeholders.expand(cell.header.tokens, variables)
    free = any_language.applies(tokens, table, default_framework)
    body.check_header(any_language.above(cell.header) if free else cell.header, table, cell.style)
    if cell.style is Style.FILE and not free:
        notes = (*notes, *body.comments_within(text, cell.header, table))
        notes = (*notes, *body.comments_below(text, cell.header, table))
    if not free:
        below = placeholders.expand(cell.below, variables)
        tokens, notes = tokens + below.tokens, tuple(dict.fromkeys(notes + below.notes))
    spec = spec_reader.read(tokens, table, default_framework)
    if free:
        return Parsed(spec, any_language.deliver(cell, table), tokens, table, notes)
    code = deliver(text, tokens, cell.style)
    compiles = check_syntax and spec.python is None
    body.check_body(text, code, cell.header, table, cell.style, compiles=compiles)
    notes = (*notes, *loops.notices(code, cell.below))
    if cell.style is Style.CELL:
        notes = (*notes, *last_expression.notices(code, spec))
    return Parsed(spec, code, tokens, table, notes)


def option_tokens(options: dict[str, list[str]]) -> tuple[Token, ...]:
    """Return options of the command line (``{"worker": ["2"]}``) as directives.

    The option of a role may include resources: ``--worker "2;%cpu=1"``. :data:`NO_VALUE` is for one
    without a value: ``--checkpoint``.
    """
    # Line 0 marks an option: errors then name the option and show no line.
    texts = [
        f"%{name}" if value == NO_VALUE else f"%{name}={value}"
        for name, several in options.items()
        for value in several
    ]
    lines = [Line(0, start, text, "") for start, text in enumerate(texts)]
    return tuple(token for line in lines for token in header.split(line, 0))
