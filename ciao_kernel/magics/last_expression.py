"""An expression as the last line of a job, as notebooks show one: the notice that a job shows none.

A job is a program. Only names, attributes and subscripts are meant to be shown for certain: a call
may stand there for its effect.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

from ciao_kernel.model import JobSpec
from ciao_kernel.visible_text import short, visible

# The usual cell, which ends with a call or a block, costs no parser.
_MAY_BE = re.compile(r"[^\W\d]\w*+(?:[.\[].*|[ \t]*+(?:#.*)?)")
_ENDS_OF_LINES = re.compile(r"\r\n?|\n")
"""As Python's parser counts lines; `str.splitlines` knows further ends."""
_SHOWN = 40
"""Maximum number of characters that are shown of an expression."""


def notices(code: str, spec: JobSpec) -> Iterator[str]:
    """Yield a sentence if the last statement of a cell is an expression that only a notebook shows.

    Args:
        code: The program.
        spec: What its header asks for.
    """
    found = _last_expression(code)
    if not found:
        return
    text = visible(" ".join(found.split()))
    as_it_is = len(text) <= _SHOWN and "\n" not in found
    remedy = f"write `print({text})`" if as_it_is else "put it into `print()`"
    brings = found.isidentifier() and found not in spec.outputs
    yield (
        f"a job is a program, and does not show its last line `{short(text, _SHOWN)}`: {remedy}."
        f"{f' %output={found} brings back a number, text, list, array or table.' if brings else ''}"
    )


def _last_expression(code: str) -> str:
    """Return the last statement if it is a name, an attribute or a subscript, else ""."""
    lines = (line for line in reversed(code.splitlines()) if line.strip())
    last = next((line for line in lines if not line.lstrip().startswith("#")), "")
    if not _MAY_BE.fullmatch(last):
        return ""
    code = code.removeprefix("\ufeff")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's remarks about the code come elsewhere
            end = ast.parse(code).body[-1]
    except (SyntaxError, ValueError, RecursionError, MemoryError, IndexError):
        return ""  # told elsewhere, if it is an error
    if not isinstance(end, ast.Expr):
        return ""
    if not isinstance(end.value, ast.Name | ast.Attribute | ast.Subscript):
        return ""
    rest = last.encode()[end.end_col_offset :]  # Python counts in bytes
    if rest.lstrip().startswith(b";"):  # as a notebook is told to show nothing
        return ""
    return _source(code, end.value)


def _source(code: str, node: ast.expr) -> str:
    """Return the text of an expression.

    ``ast.get_source_segment`` takes 14 seconds for a line of a megabyte (Python 3.11).
    """
    assert node.end_lineno is not None
    lines = _ENDS_OF_LINES.split(code)[node.lineno - 1 : node.end_lineno]
    texts = [line.encode() for line in lines]
    texts[-1] = texts[-1][: node.end_col_offset]
    texts[0] = texts[0][node.col_offset :]
    return b"\n".join(texts).decode()
