"""Files with the whole logs of replicas on this machine, because cells may leave lines out.

Several cells and commands may follow a job. One of them saves its lines, the others take its place
when it ends.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from ciao_kernel import file_lock, private_files
from ciao_kernel.backends.kubernetes.following import saved_log
from ciao_kernel.backends.kubernetes.following.saved_log import SavedLog
from ciao_kernel.delivery.output import results, values_message
from ciao_kernel.model import Replica

_PIECE = 1 << 16
_MOST_HELD = 64 << 20
"""Bytes that are held while another follower is to save them."""
_ASK_EVERY = 1.0
"""Seconds between two questions whether another follower still saves the lines."""


class LogFiles:
    """The log files of one followed job.

    Args:
        folder: Folder for one file per replica. Created if it is missing.
        write: False if only a part of the logs is read: then the files are not changed.
    """

    def __init__(self, folder: Path, *, write: bool) -> None:
        self._folder, self._write = folder, write
        self._lock: file_lock.Lock | None = None
        self._asked = 0.0
        self._files: dict[Replica, SavedLog] = {}
        self._messages: dict[Replica, str] = {}
        self.fault = ""
        """Reason why no more lines are saved; "" while they are."""
        if write:
            with self._noting_faults():
                private_files.make_folders(folder, folder)
                self._take_lock()

    def path(self, replica: Replica) -> Path:
        """Return the path of a replica's log."""
        return self._folder / f"{replica}.log"

    def lines(self, replica: Replica, end: int | None = None) -> Iterator[bytes]:
        """Yield the saved lines of a replica, some whole lines at a time.

        Args:
            replica: The replica.
            end: The byte after the last line to yield; None means all lines.
        """
        with contextlib.suppress(OSError), self.path(replica).open("rb") as file:
            while end is None or file.tell() < end:
                if not (data := b"".join(file.readlines(_PIECE))):
                    return
                yield data if end is None else data[: len(data) - max(0, file.tell() - end)]

    def has(self, replica: Replica) -> bool:
        """Return whether lines of a replica are saved."""
        try:
            return self.path(replica).stat().st_size > 0
        except OSError:
            return False

    def lines_before(self, replica: Replica, data: bytes) -> Iterator[bytes]:
        """Yield the saved lines before those with which a stream begins.

        A node keeps the newest lines of a log, and the file has all of them.

        Args:
            replica: The replica.
            data: The first lines of the stream.
        """
        if end := saved_log.beginning(self.path(replica), data):
            yield from self.lines(replica, end)

    def write(self, replica: Replica, data: bytes) -> None:
        """Save lines. A full disk ends the saving, but not the following."""
        if not self._write or self.fault:
            return
        with self._noting_faults():
            self._take_lock()
            if replica not in self._files:
                self._files[replica] = SavedLog(self.path(replica))
            self._files[replica].add(data, write=self._lock is not None)
            waits = self._lock is None
            if waits and sum(file.held for file in self._files.values()) > _MOST_HELD:
                self.fault = "another process that follows the job does not save them"

    def keep_results(self, replica: Replica, message: str) -> None:
        """Save the values of ``%output`` in a replica's termination message, if it has any."""
        if message in ("", self._messages.get(replica)):
            return
        self._messages[replica] = message
        with self._noting_faults():
            values_message.unpack(message, results.folder(self._folder, replica))

    def close(self, whole: Collection[Replica] = ()) -> None:
        """End the saving.

        Args:
            whole: Replicas that were read to their end: a file with more lines is another log.
        """
        self._asked = 0.0
        for replica, file in self._files.items():
            if not self.fault:
                self.write(replica, b"")  # what another follower has not written
            with contextlib.suppress(OSError):
                writes = self._lock is not None and not self.fault
                file.close(complete=writes and replica in whole)
        self._files.clear()
        if self._lock:
            self._lock.release()
            self._lock = None

    def _take_lock(self) -> None:
        """Take the place of who saves the lines, if nobody does."""
        if self._lock or time.monotonic() - self._asked < _ASK_EVERY:
            return
        self._asked = time.monotonic()
        # A drive without locks: two followers compare what they write with what is there.
        self._lock = file_lock.try_lock(self._folder / ".followed", required=False)

    @contextlib.contextmanager
    def _noting_faults(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.fault = error.strerror or str(error)
        except private_files.Untrusted as error:
            self.fault = str(error)
