"""The question of an IPython user about a word, such as ``worker?``, as a command of ciao.

Each plain cell comes here, so nothing is imported until a cell is a question.
"""

from __future__ import annotations

import builtins
import re
from typing import Any

_QUESTION = re.compile(r"\s*+(?:(%?[A-Za-z][\w-]*+)\?{1,2}|\?{1,2}(%?[A-Za-z][\w-]*+))\s*+")


def word(code: str) -> str:
    """Return the word that a cell asks about, with its ``%``; "" for any other cell."""
    if "?" not in code or (asked := _QUESTION.fullmatch(code)) is None:
        return ""
    return asked[1] or asked[2]


def of_directive(code: str) -> str | None:
    """Return the arguments of ``%ciao`` for ``%worker?``, whatever IPython knows; else None."""
    asked = word(code)
    return _explained(asked[1:]) if asked.startswith("%") else None


def arguments(code: str, shell: Any) -> str | None:
    """Return the arguments of ``%ciao`` for a question that only ciao can answer, else None.

    Args:
        code: The cell.
        shell: IPython's shell, which answers for its variables and magics.
    """
    if not (asked := word(code)):
        return None
    name = asked.removeprefix("%")
    if shell.find_magic(name) or (name == asked and _is_variable(name, shell)):
        return None
    from ciao_kernel.commands.verb_table import VERBS

    return _explained(name) or (f"{name} --help" if name in VERBS else None)


def _explained(name: str) -> str | None:
    """Return the command that explains a directive, None if there is no such directive."""
    from ciao_kernel.jupyter.cells import registry

    return f"magics {name}" if registry().table.find(name) else None


def _is_variable(name: str, shell: Any) -> bool:
    """Return whether a name has a value, of which nothing else is asked: that may take long."""
    return name in shell.user_ns or hasattr(builtins, name)
