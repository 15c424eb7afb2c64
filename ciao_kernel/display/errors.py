"""Formats errors; the only module that colours them."""

from __future__ import annotations

import re

from ciao_kernel.display.lines import plain
from ciao_kernel.errors import CiaoError, JobFailed, describe
from ciao_kernel.visible_text import visible_lines

_RED, _BOLD, _RESET = "\x1b[31m", "\x1b[1m", "\x1b[0m"
_BADGE = "\x1b[48;5;124m\x1b[38;5;231m"
"""White on red. A notebook shows errors on light or dark red, depending on its theme, and no shade
of red is readable on both."""


_OPTIONS = re.compile(r"%(backend|context|namespace)=")


def for_terminal(text: str) -> str:
    """Write commands as they are typed in a terminal: most texts are written for a notebook."""
    return _OPTIONS.sub(r"--\1 ", text.replace("`%ciao ", "`ciao "))


def uncolored(error: CiaoError, *, page: bool = False) -> list[str]:
    """Return the lines that show an error, without escape sequences.

    A traceback comes from a job, and its last line may contain anything.

    Args:
        error: The error.
        page: Word commands for a notebook, and not for a terminal.
    """
    texts = describe(error) if page else describe(error, for_terminal)
    return [visible_lines(plain(line)) for text in texts for line in text.split("\n")]


def colored(error: CiaoError, *, page: bool = False) -> list[str]:
    """Return the lines that show an error, with its name in red.

    Args:
        error: The error.
        page: Word and format for a notebook, which shows errors on red, and not for a terminal.
    """
    name = type(error).__name__
    styled, mark = (f"{_BADGE}{name}", _BOLD) if page else (f"{_RED}{_BOLD}{name}", _RED)
    lines = []
    for line in uncolored(error, page=page):
        if line.startswith(f"{name}: "):
            line = f"{styled}{_RESET}{_BOLD}: {line[len(name) + 2 :]}{_RESET}"
        elif line.strip().strip("^") == "" and line.strip():
            line = f"{mark}{line}{_RESET}"
        elif isinstance(error, JobFailed) and line.startswith("  Cell, line "):
            line = f"{_BOLD}{line}{_RESET}"
        lines.append(line)
    return lines
