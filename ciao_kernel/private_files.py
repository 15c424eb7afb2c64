"""Files and folders that only this user can have written: made, checked and read.

A record in the storage folder names processes to end and folders to remove, and a cache holds
programs to run. So a file counts only if it and its folder belong to this user and nobody else may
write to them. Whatever the umask is, new folders get mode 0700 and new files 0600.

Every check is made on an open descriptor and not on a path, so that nothing can be exchanged
between the check and the use. No symbolic link is followed, and no open waits: a named pipe in the
place of a file must not block a command (``O_NONBLOCK``, open(2)).

The supervisor imports this module, so it uses only fast parts of the standard library.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

TYPE_CHECKING = False  # not from typing, whose import takes a tenth of the supervisor's start
if TYPE_CHECKING:
    from typing import BinaryIO

_FOLDER, _FILE = 0o700, 0o600
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC
_NO_WAIT = _NO_LINK | os.O_NONBLOCK | os.O_NOCTTY
_PIECE = 1 << 20


class Untrusted(ValueError):
    """Another user may have written a file or folder; the message is a clause with its path."""


def is_own(status: os.stat_result) -> bool:
    """Return whether a file or folder belongs to this user and nobody else may write to it."""
    return status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_WRITE


def check(status: os.stat_result, path: Path) -> None:
    """Raise Untrusted unless :func:`is_own`.

    Args:
        status: Of the open file or folder.
        path: Its path, for the message.
    """
    if status.st_uid != os.geteuid():
        raise Untrusted(f"{path} belongs to {user_name(status.st_uid)}")
    if status.st_mode & _OTHERS_WRITE:
        raise Untrusted(f"other users may write to {path}")


def user_name(uid: int) -> str:
    """Return the name of a user, or ``user 1234`` if it has none on this machine."""
    import pwd  # not in the supervisor, which starts quickly

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


@contextlib.contextmanager
def opened_folder(path: Path) -> Iterator[int]:
    """Open a folder of this user and yield its descriptor, for ``dir_fd``.

    Raises:
        FileNotFoundError: There is no such folder.
        Untrusted: It is a link or no folder, or :func:`check` refuses it.
    """
    try:
        descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | _NO_LINK)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise Untrusted(f"{path} is {_kind(path.lstat().st_mode)}, not a folder") from None
        raise
    try:
        check(os.fstat(descriptor), path)
        yield descriptor
    finally:
        os.close(descriptor)


def read(path: Path, largest: int) -> bytes:
    """Return the content of a file of this user in a folder of this user.

    Args:
        path: The file.
        largest: Bytes; a larger file is refused unread.

    Raises:
        FileNotFoundError: There is no such file or folder.
        Untrusted: It is not a regular file, it is too large, or :func:`check` refuses it or its
            folder.
    """
    with opened_folder(path.parent) as folder, opened_file(path, folder) as descriptor:
        status = os.fstat(descriptor)
        check(status, path)
        if status.st_size > largest:
            raise Untrusted(f"{path} has {status.st_size:,} bytes, more than any that ciao writes")
        pieces, left = [], largest
        while left > 0 and (piece := os.read(descriptor, min(left, _PIECE))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)


@contextlib.contextmanager
def opened_file(path: Path, folder: int | None = None) -> Iterator[int]:
    """Open a regular file to read it, without a wait and not through a link.

    Args:
        path: The file.
        folder: Descriptor of its folder; None: it is found by its path.

    Raises:
        FileNotFoundError: There is no such file.
        Untrusted: It is a link, a pipe or another thing that is no regular file.
    """
    descriptor = open_file(path, folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_file(path: Path, folder: int | None = None) -> int:
    """Return the descriptor of :func:`opened_file`, which the caller closes."""
    name = path if folder is None else path.name
    try:
        descriptor = os.open(name, os.O_RDONLY | _NO_WAIT, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Untrusted(f"{path} is a symbolic link, not a file") from None
        if error.errno == errno.ENXIO:
            raise Untrusted(f"{path} is a socket, not a file") from None
        raise
    return _regular(descriptor, path)


def open_to_append(path: Path, *, read: bool = False, create: bool = True) -> int:
    """Open a file of this user to append bytes, and return its descriptor.

    Args:
        path: The file.
        read: Whether the descriptor is also for reading.
        create: Whether to create a missing file; FileNotFoundError otherwise.

    Raises:
        Untrusted: Something else is in its place, or it belongs to another user.
        OSError: It cannot be opened.
    """
    flags = (os.O_RDWR if read else os.O_WRONLY) | os.O_APPEND | _NO_WAIT
    flags |= os.O_CREAT if create else 0
    try:
        descriptor = _regular(os.open(path, flags, _FILE), path)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # ENXIO: a pipe that nobody reads
            raise Untrusted(f"{path} is {_kind(path.lstat().st_mode)}, not a file") from None
        raise
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            check(status, path)
        _set_mode(descriptor, status, _FILE)
        os.set_blocking(descriptor, True)  # a replica may inherit it
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def create(path: Path, *, executable: bool = False) -> BinaryIO:
    """Create a file for this user alone, and open it to write bytes.

    Args:
        path: The file; FileExistsError if there is one, or a link in its place.
        executable: Whether this user may run it as a program.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, _FILE)
    try:
        _set_mode(descriptor, os.fstat(descriptor), _FOLDER if executable else _FILE)
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "wb")


def let_run(file: BinaryIO) -> None:
    """Let this user run an open file of this user as a program."""
    _set_mode(file.fileno(), os.fstat(file.fileno()), _FOLDER)


def make_folder(path: Path) -> None:
    """Create a folder for this user alone; raises FileExistsError if there is something."""
    path.mkdir(mode=_FOLDER)
    _close_to_others(path)


def make_folders(path: Path, top: Path) -> None:
    """Create the missing folders of a path, and let nobody else write to the others.

    Args:
        path: The last folder.
        top: The first folder that has to be this user's; those above it are only created.

    Raises:
        Untrusted: Something else is in the place of a folder, it belongs to another user, or its
            drive does not keep others from writing to it.
        OSError: A folder cannot be created.
    """
    for one in reversed((path, *path.parents)):
        if one == top or top in one.parents:
            with contextlib.suppress(FileExistsError):
                one.mkdir(mode=_FOLDER)
            _close_to_others(one)
        elif not one.exists():
            with contextlib.suppress(FileExistsError):
                make_folder(one)


def _close_to_others(path: Path) -> None:
    # Such a descriptor needs no right to read the folder, which an umask of 777 takes away.
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    descriptor = os.open(path, flags if _placed_safely(path) else flags | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        if status.st_uid == os.geteuid():
            mode = stat.S_IMODE(status.st_mode)
            usable = (mode | _FOLDER) & ~_OTHERS_WRITE
            if usable != mode:
                # fchmod(2) refuses such a descriptor; its entry in /proc is the same folder.
                with contextlib.suppress(OSError):
                    os.chmod(f"/proc/self/fd/{descriptor}", usable)  # noqa: PTH101
        check(os.fstat(descriptor), path)
    finally:
        os.close(descriptor)


def _placed_safely(path: Path) -> bool:
    """Return whether only this user or root can have put a link in the place of a folder."""
    parent = path.parent.stat()
    return parent.st_uid in (0, os.geteuid()) and not parent.st_mode & _OTHERS_WRITE


def _set_mode(descriptor: int, status: os.stat_result, mode: int) -> None:
    if stat.S_IMODE(status.st_mode) != mode:
        with contextlib.suppress(OSError):  # a drive without permissions: the folder decides
            os.fchmod(descriptor, mode)


def _regular(descriptor: int, path: Path) -> int:
    """Return the descriptor of a regular file; close any other and raise Untrusted."""
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise Untrusted(f"{path} is {_kind(mode)}, not a file")
    return descriptor


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISREG, "a file"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((name for is_it, name in kinds if is_it(mode)), "a device")
