"""Open a file of the user's folder so that the file that is checked is the file that is read.

A name can change its meaning between a check and a read: somebody replaces the file by a link. A
descriptor cannot. :class:`HeldFile` therefore opens first, without any effect on a device or a
pipe (``O_PATH``), and learns from the descriptor what the file is and where it is.
https://man7.org/linux/man-pages/man2/open.2.html
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

_KINDS = (
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISFIFO, "pipe"),
    (stat.S_ISCHR, "device"),
    (stat.S_ISBLK, "device"),
)
_KERNEL = ("/proc/", "/sys/")
"""Folders of files that the kernel writes when they are read: ``/proc/self/environ``."""
_TRIES = 3
_ELSEWHERE = "it was replaced after it was checked"


class HeldFile:
    """A file that is open for inspection; its name may change meanwhile.

    Used as a context manager. Links are followed, as for any other program.

    Args:
        path: The file.

    Attributes:
        real: The path of the file without links, at the time when it was opened.
        size: Bytes of the file.

    Raises:
        OSError: The file does not exist, or is a folder, a device, a pipe, a socket, or a file of
            ``/proc`` or ``/sys``; ``strerror`` describes it in words for a user.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor, status, place = _hold(path)
        self.real = Path(place)
        self.size = status.st_size
        try:
            _check(path, status.st_mode, place)
        except OSError:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def open(self) -> BinaryIO:
        """Open the same file for reading.

        Raises:
            OSError: The user may not read it.
        """
        try:
            return Path(_name(self._descriptor)).open("rb")
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from None


def open_checked(origin: Path) -> BinaryIO:
    """Open a file for reading whose :attr:`HeldFile.real` was accepted before.

    Builders call it when they copy or pack the files of a source.

    Args:
        origin: The path that was accepted; it contains no links.

    Raises:
        OSError: The file cannot be read, or a link now leads from there to another place.
    """
    with HeldFile(origin) as held:
        if held.real != origin:
            raise OSError(errno.ESTALE, _ELSEWHERE, str(origin))
        return held.open()


def _hold(path: Path) -> tuple[int, os.stat_result, str]:
    """Return a descriptor of a file, its status and its place."""
    for _ in range(_TRIES):
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            place = str(Path(_name(descriptor)).readlink())
        except BaseException:
            os.close(descriptor)
            raise
        # An editor replaces a file when it saves; the place of the old file is "… (deleted)".
        if status.st_nlink or not stat.S_ISREG(status.st_mode):
            return descriptor, status, place
        os.close(descriptor)
    raise OSError(errno.ENOENT, "it is deleted", str(path))


def _check(path: Path, mode: int, place: str) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        kind = next((name for is_it, name in _KINDS if is_it(mode)), "")
        reason = "it is neither a file nor a folder" + (f" but a {kind}" if kind else "")
        raise OSError(errno.EINVAL, reason, str(path))
    if place.startswith(_KERNEL):
        raise OSError(errno.EINVAL, f"it is {place}, which is data of the system", str(path))


def _name(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"
