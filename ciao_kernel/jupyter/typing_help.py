"""Help while the user types: Tab, Shift-Tab and Enter in a cell, for the kernel and the extension.

A fault here is never shown: IPython answers the key.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ciao_kernel import log
from ciao_kernel.jupyter.cells import command, registry, scan_job, session

if TYPE_CHECKING:
    from ciao_kernel.jupyter.verb_arguments import VerbArguments
    from ciao_kernel.magics.help.completion import Completion

_log = logging.getLogger(__name__)

_VERB = re.compile(r"[ \t]*+%ciao[ \t]++(\w*+)")
_HELP_ACTION = "help while the user types"
_COMMAND_NAME = re.compile(r"%%?ciao\b")


def complete(code: str, cursor: int, variables: Mapping[str, Any]) -> Completion | None:
    """Return completions in a header, or None if IPython should answer.

    Args:
        code: The cell.
        cursor: Offset of the cursor.
        variables: The user's variables, for ``%input``.
    """
    if "%" not in code:
        return None
    from ciao_kernel.delivery.input import secret_files
    from ciao_kernel.delivery.input.variables import storable_names
    from ciao_kernel.magics.help import completion

    with log.ignored(_log, _HELP_ACTION):  # then IPython answers the key
        word = _VERB.match(code, _line_start(code, cursor))
        if word and word.start(1) <= cursor <= word.end(1):
            from ciao_kernel.commands.verb_table import VERBS

            verbs = tuple(verb for verb in VERBS if verb.startswith(code[word.start(1) : cursor]))
            return completion.Completion(verbs, word.start(1), word.end(1))
        if word and (found := _verb_arguments().complete(code, _line_start(code, cursor), cursor)):
            return found
        names = storable_names(variables)
        return completion.complete(
            code, cursor, registry().table, Path.cwd(), variables=names, secret=secret_files.by_name
        )
    return None


@functools.cache
def _verb_arguments() -> VerbArguments:
    from ciao_kernel.jupyter.verb_arguments import VerbArguments

    return VerbArguments(lambda: session(["doctor"]).settings)


def explain(code: str, cursor: int) -> str | None:
    """Return help for the text at the cursor, or None if IPython should answer."""
    if "%" not in code:
        return None
    from ciao_kernel.magics.help import directive_help

    with log.ignored(_log, _HELP_ACTION):  # then IPython answers the key
        if _COMMAND_NAME.match(code, _line_start(code, cursor)):
            from ciao_kernel.commands import help_text

            return help_text()
        return directive_help.explain(code, cursor, registry().table)
    return None


def _line_start(code: str, cursor: int) -> int:
    """Return the offset of the first character of the cursor's line."""
    return max(code.rfind("\n", 0, cursor), code.rfind("\r", 0, cursor)) + 1


def is_complete(code: str, variables: Mapping[str, Any]) -> dict[str, Any] | str:
    """Return the answer for a header, or the code that IPython should check.

    Args:
        code: The cell.
        variables: The user's variables, for ``{name}`` and ``$name`` in values.
    """
    with log.ignored(_log, _HELP_ACTION):  # then IPython answers the key
        if "%" in code and command(code) is None and (cell := scan_job(code)):
            from ciao_kernel.magics.help import completeness

            return completeness.answer(cell, registry().table, variables)
    return code
