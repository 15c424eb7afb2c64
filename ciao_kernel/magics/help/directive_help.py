"""Help texts from the table of directives: Shift-Tab, ``%ciao magics``, README and docs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from ciao_kernel.magics import header
from ciao_kernel.magics.header import Style
from ciao_kernel.magics.table import Directive, Scope, Table
from ciao_kernel.magics.value_types import Flag

MOST_USED = (
    "framework", "worker", "ps", "gpu", "memory", "files", "args", "packages", "image", "output",
    "detach", "plot", "warm", "dryrun",
)  # fmt: skip
"""Names of the directives that the README shows, in this order; docs/magics.md has all."""
_WIDTH = 96
_TITLES = {
    Scope.ROLE: "Framework and replicas",
    Scope.RESOURCE: "Resources of each replica",
    Scope.JOB: "The job",
}
_PLACES = {
    Scope.ROLE: "a separate line; resources and volumes of the role may follow: {example};%cpu=2",
    Scope.RESOURCE: "after a role, for that role; on a separate line, for all roles",
    Scope.JOB_OR_ROLE: "after a role, for that role; on a separate line, for all roles",
    Scope.JOB: "a separate line, or after another directive and ;",
}


def explain(text: str, cursor: int, table: Table, style: Style = Style.CELL) -> str | None:
    """Return help for the directive under the cursor (Shift-Tab), or None."""
    cursor = max(0, min(cursor, len(text)))
    line = header.line_at(text, cursor)
    head = header.scan(text, table, style)
    if line is None or not head.holds(line):
        return None
    column = cursor - line.start
    tokens = [token for token in header.pieces(line, style) if token.column <= column]
    if not tokens or not tokens[-1].name:
        return None
    entry = table.find(tokens[-1].name)
    if entry is not None:
        return _help(entry, table)
    if not header.is_directive(tokens[-1], table):
        return None
    near = table.nearest(tokens[-1].name)
    hint = f" Did you mean %{near}?" if near else " `%ciao magics` lists all."
    return f"There is no directive %{tokens[-1].name}.{hint}"


def _help(entry: Directive, table: Table) -> str:
    rows = {
        "Value": entry.kind.expected,
        "Default": entry.default,
        "Place": _PLACES[entry.scope].format(example=entry.example),
        "Several": "the lines add up" if entry.repeatable else "",
        "For": ", ".join(table.frameworks(entry.field)) if entry.scope is Scope.ROLE else "",
        "Example": entry.example,
    }
    lines = [
        textwrap.fill(text, _WIDTH, initial_indent=f"{name + ':':<9}", subsequent_indent=" " * 9)
        for name, text in rows.items()
        if text
    ]
    return "\n".join([_form(entry), *textwrap.wrap(entry.help, _WIDTH), "", *lines])


def _form(entry: Directive) -> str:
    return f"%{entry.name}" + ("" if isinstance(entry.kind, Flag) else "=…")


def _groups(table: Table) -> Iterator[tuple[str, list[Directive]]]:
    """Yield each title with its directives; ``%framework`` is in the first group."""
    for scope, title in _TITLES.items():
        yield (
            title,
            [entry for entry in table.entries if scope is _shown_with(entry)],
        )


def _shown_with(entry: Directive) -> Scope:
    if entry.field == "framework":
        return Scope.ROLE
    return Scope.JOB if entry.scope is Scope.JOB_OR_ROLE else entry.scope


def overview(table: Table) -> str:
    """Return all directives as an aligned table of plain text, for ``%ciao magics``."""
    names = max(len(_form(entry)) for entry in table.entries)
    lines = [
        "Directives at the top of a cell make it a job:",
        "",
        "    %framework=tensorflow",
        "    %ps=1",
        "    %worker=2;%memory=4Gi",
    ]
    for title, entries in _groups(table):
        lines += ["", title]
        for entry in entries:
            lines += textwrap.wrap(
                entry.help + (f" Default: {entry.default}." if entry.default else ""),
                _WIDTH,
                initial_indent=f"  {_form(entry):<{names}}  ",
                subsequent_indent=" " * (names + 4),
                break_on_hyphens=False,
            )
    return "\n".join(lines)


def markdown(table: Table) -> str:
    """Return the most used directives as one short Markdown table, for the README."""
    entries = [entry for entry in table.entries if entry.name in MOST_USED]
    entries.sort(key=lambda entry: MOST_USED.index(entry.name))
    return _table([("Example", "Meaning"), *((f"`{one.example}`", one.help) for one in entries)])


def reference(table: Table) -> str:
    """Return all directives with all details, one Markdown table per group, for the docs."""
    parts = []
    for title, entries in _groups(table):
        rows = [("Directive", "Meaning", "Value", "Default", "Example")]
        for entry in entries:
            only = table.frameworks(entry.field) if entry.scope is Scope.ROLE else ()
            place = f" For {', '.join(only)}." if only else ""
            several = " Several lines add up." if entry.repeatable else ""
            default = entry.default or "–"
            rows.append(
                (
                    f"`%{entry.name}`",
                    entry.help + place + several,
                    entry.kind.expected,
                    default,
                    f"`{entry.example}`",
                )
            )
        parts.append(f"### {title}\n\n{_table(rows)}")
    return "\n".join(parts)


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    head, *others = [
        "| " + " | ".join(cell.replace("|", "\\|").replace("*", "\\*") for cell in row) + " |"
        for row in rows
    ]
    return "\n".join([head, "|" + " --- |" * len(rows[0]), *others]) + "\n"
