"""Copies of the files, where another container or another pod sees them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Sequence
from typing import Any

WITHOUT = "--without"
"""Word before folders of which nothing is copied; no path of ``%output`` is like it."""


def copy(
    files: Any,
    marks: str,
    copies: str,
    limit: int,
    words: list[str],
    skip: Sequence[str] = (),
    *,
    open_to_all: bool = False,
) -> None:
    """Copy the files to where others see them, unless they are too large.

    Args:
        files: The module :mod:`.replica_files`.
        marks: Folder for marks.
        copies: Folder for the copies.
        limit: Largest number of bytes.
        words: The paths of ``%output``.
        skip: Folders of which nothing is copied.
        open_to_all: Let users read copies of files that they could not read.
    """
    shutil.rmtree(copies, ignore_errors=True)
    os.makedirs(copies, exist_ok=True)
    found = files.fitting(files.find(".", words, skip), words, limit)
    sizes, faults = found.sizes, dict(found.faults)
    if sum(sizes.values()) > limit:
        with open(os.path.join(marks, files.TOO_LARGE), "w") as file:
            file.write(str(sum(sizes.values())))
        return
    for path in sizes:
        place = os.path.join(copies, path)
        try:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with files.open_inside(".", path) as file:
                shutil.copy(f"/proc/self/fd/{file.fileno()}", place)  # the open file itself
            if open_to_all:
                os.chmod(place, os.stat(place).st_mode | 0o444)
        except OSError as error:
            faults[path] = files.reason(error)
            with contextlib.suppress(OSError):
                os.remove(place)  # a part, for example of a full disk
    with contextlib.suppress(OSError), open(os.path.join(marks, files.NOT_COPIED), "w") as file:
        json.dump(faults, file)
