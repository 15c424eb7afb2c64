"""Path of this machine to which files are copied: what it gets, and errors that name it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from ciao_kernel.delivery import incoming_files
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
        self._parts = self._numbers()
        self.count = self.size = 0

    def _numbers(self) -> Iterator[Path]:
        folder = self._target if self._into else self._target.absolute().parent
        folder.mkdir(parents=True, exist_ok=True)
        while True:  # short names: that of the target may be as long as a name can be
            yield folder / f".{os.urandom(6).hex()}.ciao-part"

    def part(self) -> Path:
        """Return the path for a file that is not whole yet."""
        return next(self._parts)

    def place(self, path: str, part: Path, digest: str) -> None:
        """Give a whole file its name."""
        if not incoming_files.is_asked(path, [self._name]):  # not even if the transfer lets it pass
            raise BackendError(f"{visible(path)} is not below {visible(self._name)}.")
        below = path.removeprefix(self._name).lstrip("/")
        place = self._target / path if self._into else self._target / below
        if not below and not self._into:
            place = self._target
        place.parent.mkdir(parents=True, exist_ok=True)
        self.size += part.stat().st_size
        self.count += 1
        part.replace(place)
