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

from ciao_kernel.delivery.input import file_patterns
from ciao_kernel.errors import SpecError
from ciao_kernel.magics.shell_words import quote
from ciao_kernel.visible_text import short, visible

_FORCE_MARK = "!"


def split(
    words: Sequence[str], working_folder: Path, program_folder: Path
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words for the user's working folder, and those for the program's folder.

    Args:
        words: The words of ``--files``. A word that begins with ``./`` always means the working
            folder.
        working_folder: The user's working folder.
        program_folder: The program's folder.

    Raises:
        SpecError: A word names different files in the two folders.
    """
    chosen: tuple[list[str], list[str]] = ([], [])
    for word in words:
        pattern = word.removeprefix(_FORCE_MARK)
        in_working = _matches(working_folder, pattern)
        in_program = (
            [] if pattern == "." or pattern.startswith("./") else _matches(program_folder, pattern)
        )
        if in_working and in_program and not _same(in_working, in_program):
            shown = visible(short(pattern))
            raise SpecError(
                f"--files {shown} names two things: {visible(str(in_working[0]))} and "
                f"{visible(str(in_program[0]))}.",
                f"Write --files {word[: len(word) - len(pattern)]}./{quote(pattern)} for the first "
                "one. For the second one, change to that folder before you run the command.",
                directive="files",
            )
        chosen[bool(in_program) and not in_working].append(word)
    return tuple(chosen[0]), tuple(chosen[1])


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


def _same(first: Sequence[Path], second: Sequence[Path]) -> bool:
    if [os.path.realpath(one) for one in first] == [os.path.realpath(one) for one in second]:
        return True
    if len(first) != 1 or len(second) != 1 or not (first[0].is_file() and second[0].is_file()):
        return False
    try:
        return filecmp.cmp(first[0], second[0], shallow=False)
    except OSError:
        return False
