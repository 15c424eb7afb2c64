"""How an error looks: the only place that colours one."""

from __future__ import annotations

import re

from ciao_kernel.display.lines import plain
from ciao_kernel.errors import CiaoError, JobFailed, describe

_RED, _BOLD, _RESET = "\x1b[31m", "\x1b[1m", "\x1b[0m"


_OPTIONS = re.compile(r"%(context|namespace)=")


def spoken(text: str) -> str:
    """Name commands as they are typed in a terminal: most texts are written for a notebook."""
    return _OPTIONS.sub(r"--\1 ", text.replace("`%ciao ", "`ciao "))


def uncolored(error: CiaoError) -> list[str]:
    """Return the lines that show an error, without a command that a terminal would obey.

    A traceback comes from a job, and its last line may hold anything.
    """
    return [plain(line) for text in describe(error) for line in text.split("\n")]


def colored(error: CiaoError) -> list[str]:
    """Return the lines that show an error, with its name in red, for a notebook or terminal."""
    name = type(error).__name__
    lines = []
    for line in uncolored(error):
        if line.startswith(f"{name}: "):
            line = f"{_RED}{_BOLD}{name}{_RESET}{_BOLD}: {line[len(name) + 2 :]}{_RESET}"
        elif line.strip().strip("^") == "" and line.strip():
            line = f"{_RED}{line}{_RESET}"
        elif isinstance(error, JobFailed) and line.startswith("  Cell, line "):
            line = f"{_BOLD}{line}{_RESET}"
        lines.append(line)
    return lines
