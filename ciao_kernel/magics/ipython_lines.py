"""Lines for IPython in a job, which runs plain Python: the error, and what to write instead."""

from __future__ import annotations

import re

from ciao_kernel.errors import SourceError
from ciao_kernel.magics import header
from ciao_kernel.magics.diagnostics import short, shown
from ciao_kernel.magics.header import Line, Style
from ciao_kernel.magics.table import Table
from ciao_kernel.magics.value_types import may_be_bare

STATEMENT = re.compile(r"[ \t\f]*(%%?\w*|[!?]+\w*)")
# Other syntax of IPython, tried only on a line that Python rejects: x = !ls, x = %time, name?
WITHIN = re.compile(r"[^=#'\"]*=[ \t]*([!%]\w+)|[ \t]*[%\w.]+(\?\??)[ \t]*\Z")
BEHIND_CIAO = (
    "A command has one %, as in %ciao jobs. For a job, write directives on separate lines below, "
    "such as %worker=2."
)
"""Hint for words behind ``%%ciao``."""
_NAME = re.compile(r"%[ \t]*([A-Za-z][\w-]*)")
_DOUBLED = re.compile(r"%%([A-Za-z][\w-]*)[ \t]*=")
_PIP = re.compile(r"[!%][ \t]*(?:pip|conda|mamba|uv)\b")
_ENV = re.compile(r"%(?:env|set_env)[ \t]+\S")
_NEEDLESS = {
    "time": "Leave it out: the table shows how long a job takes.",
    "timeit": "Leave it out: the table shows how long a job takes.",
    "matplotlib": "Leave it out: a job draws nothing in the notebook. Let it save pictures "
    "(savefig), and bring them back by %output.",
}
"""Magics that are often above code that becomes a job, and what to do without them."""
_ELSEWHERE = {
    Style.CELL: "Move it to a plain cell.",
    Style.FILE: "Leave it out, or run it in a terminal before the job.",
}
"""Where else a line for IPython can run."""
# IPython's own magics; they get no suggestion of a directive.
_TAKEN = frozenset({"time", "timeit", "env", "pip", "conda", "run", "load", "save", "cd", "ls"})


def error(line: Line, table: Table, style: Style) -> SourceError:
    """Return the error for a line of a job that only IPython understands.

    Args:
        line: The line.
        table: The directives, to distinguish a misspelt directive from a magic.
        style: Marker of directives.
    """
    magic = STATEMENT.match(line.text, header.indent(line.text))
    within = None if magic else WITHIN.match(line.text)
    match = within or magic
    group = 2 if within and within[2] else 1
    word = short(match[group]) if match else "this line"
    column = match.start(group) if match else header.indent(line.text)
    message = f"{word} is IPython syntax; a job runs plain Python."
    if word == "%%ciao":
        message = f"%%ciao must be {_place_of_ciao(line)}."
    elif word == "%":
        message = "the name of a directive is missing after %."
    hint = _hint(line.text[column:], word, table, style)
    safe, column, _ = shown(line, table, column)
    return SourceError(message, hint, line=line.number, column=column, text=safe)


def _hint(text: str, word: str, table: Table, style: Style) -> str:
    """Return what to write instead.

    Args:
        text: The line from its magic on.
        word: The magic.
        table: The directives.
        style: Marker of directives.
    """
    name = _NAME.match(text)
    near = table.nearest(name[1]) if name and name[1] not in _TAKEN else None
    entry = table.find(name[1]) if name else None
    if word == "%%ciao":
        if text.strip() == word:
            return "Move it to the top, above comments and directives, or delete the line."
        return BEHIND_CIAO
    if word == "%":
        return (
            f"Did you mean {_form(near, table)}?"
            if near
            else "`%ciao magics` lists all directives."
        )
    if text.strip() == "%ciao" and style is Style.CELL:
        return "Write %%ciao, or delete the line."
    if entry and entry.also_magic:
        elsewhere = "move it to a plain cell" if style is Style.CELL else "leave it out"
        return f"Write {style.value}{entry.name}=FOLDER for ciao's own, or {elsewhere}."
    if near and style is Style.FILE:
        return f"In a file, write directives as comments at the top: #%{near}=…"
    if entry:
        return "Write directives at the top, starting in the first column."
    if near:
        return f"Did you mean {_form(near, table)}?"
    if _PIP.match(text):
        place = "a plain cell above" if style is Style.CELL else "a terminal"
        return (
            f"Install packages in {place}, which replicas on this machine use too; or name them "
            f"for the job: {style.value}packages=…"
        )
    if _ENV.match(text):
        return f"For variables of the replicas, write {style.value}envvar=NAME=VALUE."
    doubled = _DOUBLED.match(text)
    if doubled and (meant := table.nearest(doubled[1])):
        return f"Did you mean {style.comment}{_form(meant, table)}?"
    if word.lstrip("%") in _NEEDLESS and word.startswith("%"):
        return _NEEDLESS[word.lstrip("%")]
    return _ELSEWHERE[style]


def _place_of_ciao(line: Line) -> str:
    """Return where ``%%ciao`` belongs: it is not alone on its line, or something is above it."""
    alone = line.text.strip() == "%%ciao"
    return "at the very start of its cell" if alone else "alone on its line"


def _form(name: str, table: Table) -> str:
    """Return a directive as a hint shows it: with ``=…`` if it needs a value."""
    entry = table.find(name)
    return f"%{name}" if entry is not None and may_be_bare(entry.kind) else f"%{name}=…"
