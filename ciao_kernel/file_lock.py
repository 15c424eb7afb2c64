"""Locks among all processes of this machine, and among the tasks of one process.

A lock belongs to a file, which is created, or to an existing folder. It ends with its process, even
if the process is killed. A lock file may be removed while others wait for it: they then lock the
new file of that name, so that no two of them hold the lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import stat
from pathlib import Path
from typing import Self


class Lock:
    """A held lock; its ``with`` block or :meth:`release` ends it.

    Programs that this process starts do not inherit it, except those that get :meth:`fileno` in
    their ``pass_fds``. If this process is killed, the lock is held until they have ended too.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        """Return the descriptor of the locked file."""
        return self._descriptor

    def release(self) -> None:
        """Let others take the lock; must be called only once."""
        # Closing is not enough: the kernel's user may have forked, and the child has a copy.
        with contextlib.suppress(OSError):  # a drive without locks
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def try_lock(path: Path, *, mode: int = 0o666, required: bool = True) -> Lock | None:
    """Take a lock if it is free.

    Args:
        path: The file or folder to lock. The folder of a file must exist.
        mode: Permissions of a new file, less the umask. Who may read the file may hold the lock.
        required: False if a drive without locks counts as a free lock.

    Returns:
        The lock; None if another process holds it or has just removed the file.

    Raises:
        OSError: The file cannot be opened, or cannot be locked and the lock is required.
    """
    try:
        return _take(path, fcntl.LOCK_EX | fcntl.LOCK_NB, mode, required)
    except BlockingIOError:
        return None


def block(path: Path, *, required: bool = True) -> Lock:
    """Take a lock, and block this thread until it is free.

    The arguments and errors are those of :func:`try_lock`.
    """
    while (lock := _take(path, fcntl.LOCK_EX, 0o666, required)) is None:
        pass
    return lock


async def wait(path: Path, poll: float, *, mode: int = 0o666, required: bool = True) -> Lock:
    """Take a lock as soon as it is free; the wait can be cancelled.

    Args:
        path: The file or folder to lock. The folder of a file must exist.
        poll: Seconds between two attempts.
        mode: Permissions of a new file, as for :func:`try_lock`.
        required: False if a drive without locks counts as a free lock.

    Raises:
        OSError: The file cannot be opened, or cannot be locked and the lock is required.
    """
    while (lock := try_lock(path, mode=mode, required=required)) is None:
        await asyncio.sleep(poll)
    return lock


def _take(path: Path, operation: int, mode: int, required: bool) -> Lock | None:
    """Take a lock; return None if the file was removed or replaced in the meantime."""
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    descriptor = os.open(path, flags | os.O_NONBLOCK, mode)
    try:
        status = os.fstat(descriptor)
        if status.st_uid == os.geteuid() and not status.st_mode & stat.S_IRWXU:
            os.fchmod(descriptor, 0o600)  # an umask of 777: the next process could not open it
        try:
            fcntl.flock(descriptor, operation)
        except OSError as error:
            if required or isinstance(error, BlockingIOError):
                raise
        current = _is_at(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    if current:
        return Lock(descriptor)
    os.close(descriptor)
    return None


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
