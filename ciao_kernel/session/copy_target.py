"""Path of this machine to which files are copied: what it gets, and errors that name it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from ciao_kernel.delivery import incoming_files, replica_files
from ciao_kernel.errors import BackendError
from ciao_kernel.user_path import expanded
from ciao_kernel.visible_text import visible


@contextlib.contextmanager
def writing(target: str | Path) -> Iterator[None]:
    """Report an OSError as an error of the target.

    Raises:
        BackendError: It cannot be written.
    """
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise BackendError(f"{visible(str(target))} cannot be written: {why}.") from None


def folder(base: Path, target: str) -> Path:
    """Return a path; create it as a folder if the text ends with a slash, as `cp` requires.

    Raises:
        BackendError: It cannot be created.
        UsageError: It begins with a home folder that does not exist.
    """
    place = base / expanded(target)
    if target.endswith("/"):
        with writing(place):
            try:
                place.mkdir(parents=True, exist_ok=True)
            except FileExistsError:  # "File exists" would not say what is wrong with that
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
    return place


class CopyTarget:
    """Takes files for a path of this machine.

    Args:
        target: The path; if it is a folder, files go into it.
        name: Name of the copied file or folder.
    """

    def __init__(self, target: Path, name: str) -> None:
        self._into = target.is_dir() or "*" in name or "?" in name
        self._target, self._name = target, name
        self._places: dict[Path, str] = {}
        self.count = self.size = 0

    def part(self, path: str) -> Path:
        """Return the path for a file that is not whole yet: beside that of the whole one.

        Raises:
            BackendError: Its place cannot be written.
            OSError: It has no folder.
        """
        if not incoming_files.is_asked(path, [self._name]):  # not even if the transfer lets it pass
            raise BackendError(f"{visible(path)} is not below {visible(self._name)}.")
        below = path.removeprefix(self._name).lstrip("/")
        place = self._target / (path if self._into else below)
        place.parent.mkdir(parents=True, exist_ok=True)
        with writing(place):
            # A link in a folder that is copied is replaced: a pod must not choose where it leads.
            real = str(place) if below else replica_files.followed(str(place))
        part = Path(replica_files.part_beside(real))
        self._places[part] = real
        return part

    def place(self, path: str, part: Path, digest: str, mode: int) -> None:
        """Give a whole file its mode and its name."""
        size = part.stat().st_size
        place = self._places.pop(part)
        with writing(place):
            replica_files.put(str(part), place, mode)
        self.size += size
        self.count += 1
