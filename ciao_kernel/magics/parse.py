"""Parse a cell into a :class:`~ciao_kernel.model.JobSpec` and the program to deliver.

Every error that the text alone reveals is raised here, with the line and a caret, before
anything is created.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ciao_kernel.errors import SpecError, UsageError
from ciao_kernel.magics import body, build_spec, diagnostics, header
from ciao_kernel.magics.header import Line, Style, Token
from ciao_kernel.magics.shell_words import words
from ciao_kernel.magics.table import Table, key
from ciao_kernel.model import JobSpec


@dataclass(frozen=True, slots=True)
class Parsed:
    """Result of parsing a cell."""

    spec: JobSpec
    code: str
    """The program: the text with its directives turned into comments in place."""
    tokens: tuple[Token, ...]
    """The directives as written; options of a command line are last and take precedence."""
    table: Table = field(repr=False)

    def locate(self, error: SpecError) -> UsageError:
        """Add the line in the cell, or the option, to an error of a framework or backend."""
        named = [one for one in reversed(self.tokens) if key(one.name) == key(error.directive)]
        saying = [one for one in named if error.word and error.word in _said(one.value or "")]
        for token in (saying or named)[:1]:
            message, hint = error.message, error.hint
            if not token.line.number:
                message, hint = map(self.table.as_options, (message, hint))
            return diagnostics.wrong(token, self.table, message, hint, whole=not saying)
        return error


def _said(value: str) -> tuple[str, ...]:
    """Return the words of a value, also split at commas."""
    return (*words(value), *words(value.replace(",", " ")))


def is_job(text: str, table: Table, style: Style = Style.CELL) -> bool:
    """Return whether a cell is a job: it has a directive in its header or starts with ``%%ciao``.

    A cell with all directives below code is also a job, as in the first ciao, but only if a
    directive is in the position of a statement, never inside a string.
    """
    if style is Style.CELL and header.is_cell_magic(text):
        return True
    head = header.scan(text, table, style)
    if head.tokens or style is Style.FILE:
        return bool(head.tokens)
    return any(map(table.find, body.directive_names_below(text, head))) and any(
        token.equals and table.find(token.name) for token in body.below(text, head)
    )


def parse(
    text: str,
    table: Table,
    *,
    style: Style = Style.CELL,
    default_framework: str | None = None,
    check_syntax: bool = True,
) -> Parsed:
    """Parse a cell or a file that is a job.

    Args:
        text: The cell as the user wrote it.
        table: The directives.
        style: Marker of directives.
        default_framework: Framework if the header names none.
        check_syntax: Compile the program with this Python; false for another interpreter.

    Raises:
        DirectiveError: A directive is wrong.
        SourceError: The body is wrong.
    """
    body.check_text(text, table)
    head = header.scan(text, table, style)
    body.check_header(head, table, style)
    tokens = head.tokens
    if style is Style.CELL:
        tokens += body.below(text, head)
    spec = build_spec.read(tokens, table, default_framework)
    code = header.deliver(text, tokens, style)
    compiles = check_syntax and spec.python is None
    body.check_body(text, code, head, table, style, compiles=compiles)
    return Parsed(spec, code, tokens, table)


def option_tokens(options: dict[str, list[str]]) -> tuple[Token, ...]:
    """Return options of the command line (``{"worker": ["2"]}``) as directives.

    The option of a role may include resources: ``--worker "2;%cpu=1"``.
    """
    # Line 0 marks an option: errors then name the option and show no line.
    texts = [f"%{name}={value}" for name, several in options.items() for value in several]
    lines = [Line(0, start, text, "") for start, text in enumerate(texts)]
    return tuple(token for line in lines for token in header.split(line, 0))
