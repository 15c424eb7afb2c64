"""Where the words of the option ``--files`` are looked up.

An option is written in the user's working folder, so its words are relative to that folder. A word
that matches nothing there may name a file beside the program. If both folders have a match, a wrong
guess would train on the wrong data: then the user decides.
"""

from __future__ import annotations

import filecmp
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from ciao_kernel.delivery import file_patterns
from ciao_kernel.errors import SpecError
from ciao_kernel.magics.shell_words import quote
from ciao_kernel.visible_text import short, visible

_FORCE_MARK = "!"


def split(
    words: Sequence[str], here: Path, beside: Path
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words for the user's working folder, and those for the program's folder.

    Args:
        words: The words of ``--files``. A word that begins with ``./`` always means ``here``.
        here: The user's working folder.
        beside: The program's folder.

    Raises:
        SpecError: A word names different files in the two folders.
    """
    taken: tuple[list[str], list[str]] = ([], [])
    for word in words:
        pattern = word.removeprefix(_FORCE_MARK)
        mine = _matches(here, pattern)
        theirs = [] if pattern == "." or pattern.startswith("./") else _matches(beside, pattern)
        if mine and theirs and not _same(mine, theirs):
            shown = visible(short(pattern))
            raise SpecError(
                f"--files {shown} names two things: {visible(str(mine[0]))} and "
                f"{visible(str(theirs[0]))}.",
                f"Write --files {word[: len(word) - len(pattern)]}./{quote(pattern)} for the first "
                "one. For the second one, change to that folder before you run the command.",
                directive="files",
            )
        taken[bool(theirs) and not mine].append(word)
    return tuple(taken[0]), tuple(taken[1])


def _matches(folder: Path, pattern: str) -> list[Path]:
    """Return what a word names in a folder; nothing if it is no valid word."""
    relative = PurePosixPath(pattern)
    if not pattern.strip() or relative.is_absolute() or ".." in relative.parts:
        return []
    try:
        if file_patterns.exists(path := folder / relative):
            return [path]
        return file_patterns.matches(folder, relative)
    except (OSError, ValueError, RecursionError):
        return []  # the search for the files reports it


def _same(mine: Sequence[Path], theirs: Sequence[Path]) -> bool:
    if [os.path.realpath(one) for one in mine] == [os.path.realpath(one) for one in theirs]:
        return True
    if len(mine) != 1 or len(theirs) != 1 or not (mine[0].is_file() and theirs[0].is_file()):
        return False
    try:
        return filecmp.cmp(mine[0], theirs[0], shallow=False)
    except OSError:
        return False
