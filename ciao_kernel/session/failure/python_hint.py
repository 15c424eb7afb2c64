"""Suggests a remedy for a replica whose Python is too old for the parts of ciao in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from ciao_kernel.model import Job
from ciao_kernel.session.failure.traceback_blocks import RANK

_FILE = re.compile(r'File "([^"\n]*)", line \d')
_PART = re.compile(r"/\.ciao/[^/]+\.py$")
_WARM = re.compile(r"/ciao_warm_(?:agent|zygote)\.py$")
_INPUT = re.compile(r"/ciao_input\.py$")
"""File with functions of the notebook, which may need a newer Python than 3.8."""
_TEXT = "<string>"
"""File that Python names for a program of ``python -c``, and for the text of an exec or eval."""
_FUTURE = "future feature annotations is not defined"
_PLAIN = "SyntaxError: invalid syntax"
"""Error of an old Python for ``:=``. Newer ones tell more about most errors."""
_ABOVE = 3
"""Lines between which a SyntaxError shows its file: the file, the code and the caret."""


def python_hint(lines: Sequence[str], error: str, job: Job) -> str:
    """Return a remedy, "" if no file says that Python is too old.

    Args:
        lines: The traceback that a replica ended with, or the end of its log.
        error: The line of the error that they end with.
        job: The job.
    """
    error = RANK.sub("", error)
    number = next((at for at in reversed(range(len(lines))) if error in lines[at]), None)
    if number is None or not error.startswith("SyntaxError: "):
        return ""
    needed = _needed(_body(lines[:number]), error.rstrip())
    if not needed:
        return ""
    if job.on_cluster:
        return (
            f"The image's Python is older than {needed}, which ciao's modules in a replica need: "
            "name another image with %image."
        )
    return (
        f"The job's Python is older than {needed}, which ciao's modules in a replica need: name "
        "another one with %python."
    )


def _body(above: Sequence[str]) -> list[str]:
    """Return the lines of a traceback above its error, which are all indented."""
    body = takewhile(lambda line: line[:1].isspace(), (RANK.sub("", one) for one in above[::-1]))
    return list(body)[::-1]


def _needed(body: Sequence[str], error: str) -> str:
    """Return the version that a file with a SyntaxError needs, "" if it is not a file of ciao."""
    code = "\n".join(body[-_ABOVE:])
    file = next(reversed(_FILE.findall(code)), "")
    if _WARM.search(file):
        return "3.9"
    if _FUTURE in error or _PART.search(file):
        return "3.8"
    # No file called a program of ciao, but one of the user called an exec or eval.
    ours = _INPUT.search(file) or set(_FILE.findall("\n".join(body))) == {_TEXT}
    return "3.8" if ours and ":=" in code and error == _PLAIN else ""
