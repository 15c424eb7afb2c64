"""Reads the stacks that a process writes: as Python of its handler, and as text of faulthandler.

A part of programs that run in pods (:mod:`.program_texts`).
"""

from __future__ import annotations

import ast
from typing import Any

_FRAME = '  File "'
"""Begin of a line of faulthandler with a call: ``  File "a.py", line 3 in work``."""
_CALLS = (
    [["<string>", "run_file"], ["<string>", "run"], ["<string>", "<module>"]],
    [["<string>", "run_module"], ["<string>", "run"], ["<string>", "<module>"]],
)
"""File and function of ciao's frames that call the program in some frameworks
(frameworks/in_process.py), innermost first: a text has no name of their module."""


def answered(line: str) -> list[Any]:
    """Return the threads of an answer; none if a program has written something else there."""
    try:
        found = ast.literal_eval(line)
        return [
            [str(name), bool(main), [[str(file), int(at), str(call)] for file, at, call in frames]]
            for name, main, frames in found
        ]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return []


def dumped(text: str) -> list[Any]:
    """Return the frames that faulthandler has written, innermost first.

    The frames of ciao's call of the program, which are the outermost ones, are left out.
    """
    found = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        path, _, rest = line[len(_FRAME) :].partition('", line ')
        number, _, name = rest.partition(" in ")
        if line.startswith(_FRAME) and number.isdigit():
            found.append([path, int(number), name])
    # Alone they say that the program is still being read.
    if len(found) > 3 and [[path, name] for path, _, name in found[-3:]] in _CALLS:
        del found[-3:]
    return found
