"""The files that keep replicas' whole logs on this machine, for what a cell does not show.

Whoever follows a job a second time reads the logs again from their first lines, and may be
interrupted, or find that the node has dropped the oldest lines: so a file that is there stays
until the new one holds as much.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

from ciao_kernel.model import Replica

_PIECE = 1 << 16


class Kept:
    """The log files of one job that is followed.

    Args:
        folder: Gets one file a replica. Made if it is not there.
        write: False where only a part of the logs is read: then the files stay as they are.
    """

    def __init__(self, folder: Path, *, write: bool) -> None:
        self._folder = folder
        self._lock: BinaryIO | None = None
        self._files: dict[Replica, _File] = {}
        self.fault = ""
        """Why lines are not kept any more; "" while they are."""
        if not write:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = (folder / ".followed").open("wb")
        except OSError as error:
            self.fault = error.strerror or str(error)
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # another cell follows the job, and keeps the files
            lock.close()
        else:
            self._lock = lock

    def path(self, replica: Replica) -> Path:
        """Where a replica's log is."""
        return self._folder / f"{replica}.log"

    def lines(self, replica: Replica) -> Iterator[bytes]:
        """What is kept of a replica, some whole lines at a time."""
        with contextlib.suppress(OSError), self.path(replica).open("rb") as file:
            while data := b"".join(file.readlines(_PIECE)):
                yield data

    def write(self, replica: Replica, data: bytes) -> None:
        """Keep lines. A full disk ends the keeping, and not the following."""
        if self._lock is None or self.fault:
            return
        try:
            if replica not in self._files:
                self._files[replica] = _File(self.path(replica))
            self._files[replica].write(data)
        except OSError as error:
            self.fault = error.strerror or str(error)

    def close(self, whole: Collection[Replica] = ()) -> None:
        """End the keeping.

        Args:
            whole: Who was read to its end, so that even a shorter file replaces an old one.
        """
        for replica, file in self._files.items():
            with contextlib.suppress(OSError):
                file.close(complete=replica in whole)
        self._files.clear()
        if self._lock:
            self._lock.close()
            self._lock = None


class _File:
    """One log; beside the one that is there already as long as it is shorter."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._old = path.stat().st_size if path.exists() else 0
        self._part = path.with_suffix(".part")
        self._file = (self._part if self._old else path).open("wb")

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._file.flush()
        if self._old and self._file.tell() >= self._old:
            self._take_over()

    def close(self, *, complete: bool) -> None:
        self._file.close()
        if self._old and complete:
            self._take_over()
        elif self._old:
            self._part.unlink()

    def _take_over(self) -> None:
        """Put the new file in the old one's place; what only that one holds stays beside it."""
        if not self._goes_on():
            # The node has dropped the oldest lines, or the pod was made again since.
            self._path.replace(self._path.with_suffix(".earlier.log"))
        self._part.replace(self._path)
        self._old = 0

    def _goes_on(self) -> bool:
        """Whether the new file begins with all of the old one."""
        with self._path.open("rb") as old, self._part.open("rb") as new:
            while data := old.read(_PIECE):
                if new.read(len(data)) != data:
                    return False
        return True
