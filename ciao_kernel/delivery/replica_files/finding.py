"""The files that words name: which there are, and which of them come."""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import re
import stat
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ciao_kernel.delivery.replica_files.marks import NOT_COPIED, TOO_LARGE, read_mark

LONGEST_PATH = 1024
"""Characters of a path that comes; the other side refuses longer ones."""
EVENT_FILES = "/**/*tfevents*"
"""End of the word for the event files of ``%tensorboard``."""
VALUES = ".ciao-values/"
"""Word for the values of ``%output`` that are too large for a termination message: the program
writes them into this folder beside it. They are no files of the user."""
_WILD = re.compile(r"((?<![^/])\*\*/|\*\*|\*|\?)")
_LEAST = {"**/": "(?:.*?/)??", "**": ".*?", "*": "[^/]*?"}
# What a wildcard matches, as little as possible.
OWN = ".ciao"
"""Folder beside the program that is ciao's: it never counts as the program's."""


class Found(NamedTuple):
    """The files that words name."""

    sizes: dict[str, int]
    """Their sizes by path."""
    missing: list[str]
    """The words that name nothing."""
    left_out: list[str]
    """Links that lead out of the folder, links to folders, and what is no file."""
    faults: dict[str, str]
    """Files and folders that cannot be read, and why."""


def pattern(word: str) -> re.Pattern[str]:
    """Return what matches the paths that a word names; a folder names all that is in it.

    As in a shell, a name that begins with a dot is not matched by a star or a question mark there.

    Words may be foreign, so no word may cost more than its length times the square of the path's:
    what follows a star is matched where it comes first, and never tried again behind that place.
    Python has ``(?>…)`` for that from 3.11 on; ``(?=(?P<name>…))(?P=name)`` is the same.
    """
    made, groups, before = "", 0, "/"
    star = folders = -1  # where the last of each kind begins

    def never_again(start: int) -> None:
        nonlocal made, groups
        made = f"{made[:start]}(?=(?P<g{groups}>{made[start:]}))(?P=g{groups})"
        groups += 1

    for piece in filter(None, _WILD.split(posixpath.normpath(word))):
        if piece in ("*", "?") and before.endswith("/"):
            made += r"(?!\.)"
        if piece in _LEAST:
            if star >= 0:
                never_again(star)
            if piece != "*" and folders >= 0:
                never_again(folders)
            star, folders = (len(made), folders) if piece == "*" else (-1, len(made))
        made += _LEAST.get(piece) or ("[^/]" if piece == "?" else re.escape(piece))
        before = piece
    made += r"(?=/|\Z)"
    for start in (star, folders):  # a star is inside the folders before it
        if start >= 0:
            never_again(start)
    return re.compile(made + "(?:/.*)?", re.DOTALL)


def find(base: str, words: list[str], skip: Sequence[str] = ()) -> Found:
    """Find the files of some words.

    Args:
        base: The folder to which paths are relative.
        words: Paths with ``*``, ``**`` and ``?``.
        skip: Folders that are passed over.
    """
    real = os.path.realpath(base)
    sizes: dict[str, int] = {}
    missing: list[str] = []
    left_out: list[str] = []
    faults: dict[str, str] = {}
    for word in words:
        wanted, seen = pattern(word), False
        first = re.split(r"[*?]", posixpath.normpath(word))[0]
        start = first if first == posixpath.normpath(word) else posixpath.dirname(first)
        for path, size, fault in _walk(base, real, start, first, (OWN, *skip)):
            if fault:
                if _leads_to(word, path):
                    seen, faults[path or "."] = True, fault
                continue
            if not wanted.fullmatch(path):
                continue
            seen = True
            if len(path) > LONGEST_PATH:
                faults[path] = "its path is too long"
            elif size is None:
                left_out.append(path)
            else:
                sizes[path] = size
        if not seen:
            missing.append(word)
    return Found(dict(sorted(sizes.items())), missing, sorted(set(left_out)), faults)


def fitting(found: Found, words: list[str], limit: int) -> Found:
    """Return the files without those that give way to others, if all are too large.

    Event files that come for TensorBoard do so first, and then values that come as files.

    Args:
        found: All files.
        words: The words that name them.
        limit: Largest number of bytes.
    """
    sizes, faults = dict(found.sizes), dict(found.faults)
    for least in (EVENT_FILES, VALUES):
        others = [pattern(word) for word in words if not word.endswith((EVENT_FILES, least))]
        if not others or sum(sizes.values()) <= limit:
            break
        for path in list(sizes):
            if not any(one.fullmatch(path) for one in others):
                del sizes[path]
                faults[path] = "all files together are too large"
    return found._replace(sizes=sizes, faults=faults)


def survey(
    base: str, words: list[str], limit: int, marks: str, skip: Sequence[str] = ()
) -> tuple[Found, int]:
    """Return the files to send, and the bytes of all.

    The bytes are more than those of the files if there were too many for copies.

    Args:
        base: The folder with the files, or with their copies.
        words: The words that name them.
        limit: Largest number of bytes.
        marks: Folder of marks; "" if there is none.
        skip: Folders that are passed over.
    """
    found = fitting(find(base, words, skip), words, limit)
    total = sum(found.sizes.values())
    if marks:  # a program's own file may have the name of a mark
        with contextlib.suppress(OSError, ValueError):
            total = int(read_mark(marks, TOO_LARGE))
        with contextlib.suppress(OSError, ValueError):
            found.faults.update(json.loads(read_mark(marks, NOT_COPIED)))
    # Of a word whose copy has failed there may be no file here, though the program wrote some.
    missing = [word for word in found.missing if word not in found.faults]
    found = found._replace(missing=missing)
    return found, total


def joined(found: Found, more: Found, total: int) -> tuple[Found, int]:
    """Return the files of two folders, and the bytes of all; of two with one path the first."""
    new = {path: size for path, size in more.sizes.items() if path not in found.sizes}
    return Found(
        dict(sorted({**found.sizes, **new}.items())),
        [word for word in found.missing if word in more.missing],
        sorted({*found.left_out, *more.left_out}),
        {**more.faults, **found.faults},
    ), total + sum(new.values())


def _leads_to(word: str, path: str) -> bool:
    """Return whether files of a word may be at a path or below it."""
    parts = posixpath.normpath(word).split("/")[: path.count("/") + 1]
    return not path or "**" in parts or pattern("/".join(parts)).fullmatch(path) is not None


def reason(error: OSError) -> str:
    """Return why a file cannot be read, in a few words."""
    if isinstance(error, FileNotFoundError):
        return "it has vanished"
    return error.strerror or type(error).__name__


def _walk(
    base: str, real: str, start: str, first: str, skip: tuple[str, ...]
) -> Iterator[tuple[str, int | None, str]]:
    """Yield each file at or below a path with its size, or why it cannot be read.

    The size of what is not followed is None.
    """
    todo = [start]
    while todo:
        path = todo.pop()
        if any(f"{path}/".startswith(one.rstrip("/") + "/") for one in skip):
            continue
        place = os.path.join(base, path) if path else base
        try:
            if not _is_inside(real, os.path.dirname(place) if path else place):
                continue  # by a link in the middle
            mode = os.lstat(place).st_mode
            if stat.S_ISDIR(mode) or not path:
                names = sorted(os.listdir(place), reverse=True)
                below = [posixpath.join(path, name) for name in names]
                todo += [one for one in below if one.startswith(first) or first.startswith(one)]
                continue
            link = stat.S_ISLNK(mode) and os.path.isfile(place) and _is_inside(real, place)
            follows = stat.S_ISREG(mode) or link
            size = os.stat(place).st_size if follows else None
        except OSError as error:
            # What a word names need not exist.
            if path != start or not isinstance(error, (FileNotFoundError, NotADirectoryError)):
                yield path, None, reason(error)
            continue
        yield path, size, ""


def _is_inside(real: str, place: str) -> bool:
    return (os.path.realpath(place) + os.sep).startswith(real.rstrip(os.sep) + os.sep)
