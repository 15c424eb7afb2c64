"""Find the import statements of a program, also of one that this Python cannot compile."""

from __future__ import annotations

import ast
import contextlib
import re
import warnings
from collections.abc import Iterator

_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)
_STATEMENT = re.compile(
    r"(?:^|[;:])[ \t]*((?:import|from)\b(?:[^\r\n(#;\\]|\\\r?\n)*(?:\((?:[^()#]|#[^\n]*\n)*\))?)",
    re.MULTILINE,
)
"""A statement that begins its line, or that follows a semicolon or a colon (``try: import b``);
names in parentheses may be on several lines."""


def statements(code: str | bytes) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the import statements of a program; :mod:`.imports` looks for their modules.

    Replicas may have a newer Python than the kernel: the lines of a program that cannot be compiled
    here are read one by one. Then a line of a string may count too; that delivers a module more.

    Args:
        code: The program.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            trees = [ast.parse(code)]
        except _ERRORS:
            trees = list(_parsed_lines(code))
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield node


def _parsed_lines(code: str | bytes) -> Iterator[ast.Module]:
    text = code if isinstance(code, str) else code.decode(errors="replace")
    for match in _STATEMENT.finditer(text):
        with contextlib.suppress(*_ERRORS):
            yield ast.parse(match[1])
