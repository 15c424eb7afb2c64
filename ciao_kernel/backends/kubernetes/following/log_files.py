"""Files with the whole logs of replicas on this machine, because cells may leave lines out.

A second follower of a job reads the logs from their first lines again. It may be interrupted, or
the node may have dropped the oldest lines. An existing file therefore stays until the new file
holds as much.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path

from ciao_kernel import file_lock, private_files
from ciao_kernel.delivery.output import results, values_message
from ciao_kernel.model import Replica

_PIECE = 1 << 16


class LogFiles:
    """The log files of one followed job.

    Args:
        folder: Folder for one file per replica. Created if it is missing.
        write: False if only a part of the logs is read: then the files are not changed.
    """

    def __init__(self, folder: Path, *, write: bool) -> None:
        self._folder = folder
        self._lock: file_lock.Lock | None = None
        self._files: dict[Replica, _File] = {}
        self._messages: dict[Replica, str] = {}
        self.fault = ""
        """Reason why no more lines are saved; "" while they are."""
        if not write:
            return
        try:
            private_files.make_folders(folder, folder)
            # None if another cell follows the job: that one writes the files.
            self._lock = file_lock.try_lock(folder / ".followed")
        except OSError as error:
            self.fault = error.strerror or str(error)
        except private_files.Untrusted as error:
            self.fault = str(error)

    def path(self, replica: Replica) -> Path:
        """Return the path of a replica's log."""
        return self._folder / f"{replica}.log"

    def lines(self, replica: Replica) -> Iterator[bytes]:
        """Yield the saved lines of a replica, some whole lines at a time."""
        with contextlib.suppress(OSError), self.path(replica).open("rb") as file:
            while data := b"".join(file.readlines(_PIECE)):
                yield data

    def write(self, replica: Replica, data: bytes) -> None:
        """Save lines. A full disk ends the saving, but not the following."""
        if self._lock is None or self.fault:
            return
        try:
            if replica not in self._files:
                self._files[replica] = _File(self.path(replica))
            self._files[replica].write(data)
        except OSError as error:
            self.fault = error.strerror or str(error)

    def keep_results(self, replica: Replica, message: str) -> None:
        """Save the values of ``%output`` in a replica's termination message, if it has any."""
        if self._lock is None or message in ("", self._messages.get(replica)):
            return
        self._messages[replica] = message
        try:
            values_message.unpack(message, results.folder(self._folder, replica))
        except OSError as error:
            self.fault = error.strerror or str(error)
        except private_files.Untrusted as error:
            self.fault = str(error)

    def close(self, whole: Collection[Replica] = ()) -> None:
        """End the saving.

        Args:
            whole: Replicas that were read to their end: even a shorter file replaces an old file.
        """
        for replica, file in self._files.items():
            with contextlib.suppress(OSError):
                file.close(complete=replica in whole)
        self._files.clear()
        if self._lock:
            self._lock.release()
            self._lock = None


class _File:
    """One log, written beside an existing file until it is as long."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._old = path.stat().st_size if path.exists() else 0
        self._part = path.with_suffix(".part")
        target = self._part if self._old else path
        target.unlink(missing_ok=True)
        self._file = private_files.create(target)

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
        """Replace the old file by the new; an old file with other lines is kept beside it."""
        if not self._continues_old_file():
            # The node has dropped the oldest lines, or the pod was created again.
            self._path.replace(self._path.with_suffix(".earlier.log"))
        self._part.replace(self._path)
        self._old = 0

    def _continues_old_file(self) -> bool:
        """Return whether the new file begins with the whole old file."""
        with self._path.open("rb") as old, self._part.open("rb") as new:
            while data := old.read(_PIECE):
                if new.read(len(data)) != data:
                    return False
        return True
