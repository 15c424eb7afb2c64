"""Copies the event files of a pod to this machine while they grow.

Event files only gain bytes at their ends, so a copy goes on where it stopped, and each byte has its
place: several kernels may copy the same file. A lasting command in the pod (``watch`` of
:mod:`.replica_files`) sends what is new.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from ciao_kernel import private_files
from ciao_kernel.delivery import event_files, incoming_files, transfers
from ciao_kernel.delivery.incoming_files import checked
from ciao_kernel.delivery.output.returned_files import ReturnedFiles
from ciao_kernel.delivery.replica_files import DATA, DONE, FILE
from ciao_kernel.delivery.transfers import Damaged, Execute, size_text
from ciao_kernel.errors import BackendError
from ciao_kernel.model import Job, Replica
from ciao_kernel.model.outputs import event_files as pattern

_PAUSE = 3.0
"""Seconds between two looks at the files."""
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_FILES = 10_000
_WORDS = 2000
_NO_COMMAND = (126, 127)
"""Exit codes of a command that cannot be started, as by a shell."""


class NotCopied(BackendError):
    """Event files cannot be copied at all."""


class TooLarge(NotCopied):
    """The event files are larger than the limit."""


class EventCopies:
    """The copies of one replica's event files.

    Args:
        job: The job, on a cluster.
        replica: The replica.
        folder: Its folder with event files, beside the program.
        limit: Largest number of bytes in all.
        pause: Seconds between two looks at the files.
    """

    def __init__(
        self, job: Job, replica: Replica, folder: str, limit: int, pause: float = _PAUSE
    ) -> None:
        self._place = event_files.copies(job, replica)
        self._top = Path(job.files)
        self._folder, self._limit, self._pause = folder, limit, pause
        self._words = (pattern(folder),)
        self._sizes: dict[str, int] = {}
        self._buffer = bytearray()
        self._faults = bytearray()
        self._file: tuple[str, Path] | None = None
        self.whole = False
        """Whether all that the replica had at the last look is here."""

    async def run(self, execute: Execute, python: str) -> bool:
        """Copy until the replica's command ends; return whether the program is over, and all here.

        Args:
            execute: Runs a command in the replica.
            python: Its interpreter.

        Raises:
            BackendError: The connection has ended; NotCopied: the files cannot be copied.
        """
        self._sizes = self._known()
        del self._buffer[:], self._faults[:]
        self._file, self.whole = None, False
        request: dict[str, Any] = {
            "do": "watch",
            "base": ".",
            "words": self._words,
            "sizes": self._sizes,
            "pause": self._pause,
        }
        command, streams = transfers.called(python, request, self._out, self._err)
        code = await execute(command, streams)
        if code:
            kind = NotCopied if code in _NO_COMMAND else BackendError
            raise kind(transfers.failed(code, bytes(self._faults)))
        return self.whole

    def _known(self) -> dict[str, int]:
        found = {}
        for path in self._place.rglob("*") if self._place.is_dir() else ():
            if path.is_file() and not path.is_symlink():
                name = f"{self._folder}/{path.relative_to(self._place).as_posix()}"
                found[name] = path.stat().st_size
        return found

    def _err(self, data: bytes) -> None:
        self._faults += data
        del self._faults[:-_WORDS]

    def _out(self, data: bytes) -> None:
        self._buffer += data
        try:
            for kind, body in transfers.messages(self._buffer):
                if kind == FILE:
                    self._begin(json.loads(body))
                elif kind == DATA:
                    self._write(body)
                elif kind == DONE:
                    self.whole = True
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise Damaged(f"the replica sent something else than files: {error!r}.") from error
        except OSError as error:
            raise BackendError(f"event files cannot be saved: {error.strerror}.") from error

    def _begin(self, told: dict[str, Any]) -> None:
        path, offset = checked(told["path"], self._words), int(told["offset"])
        known = self._sizes.get(path, 0)
        if offset not in (0, known):
            raise Damaged("the replica went on at another place than the one asked for.")
        if len(self._sizes) >= _MOST_FILES and path not in self._sizes:
            raise BackendError(f"it has more than {_MOST_FILES:,} event files.")
        place = self._place / path.removeprefix(f"{self._folder}/")
        private_files.make_folders(place.parent, self._top)
        if offset < known:  # it is another file now
            place.unlink(missing_ok=True)
        self._sizes[path] = offset
        self._file, self.whole = (path, place), False

    def _write(self, data: bytes) -> None:
        if self._file is None:
            raise Damaged("the replica sent a part of no file.")
        path, place = self._file
        if sum(self._sizes.values()) + len(data) > self._limit:
            raise TooLarge(
                f"its event files have more than fetchLimit, {size_text(self._limit)}.",
                "`%ciao config fetchLimit=…` raises the limit.",
            )
        _write_at(place, data, self._sizes[path])
        self._sizes[path] += len(data)


def take_returned(job: Job, folder: str) -> None:
    """Complete the copies by the files that came back at the job's end.

    Args:
        job: The job, on a cluster.
        folder: Its folder with event files, beside the program.
    """
    for name, path, source in ReturnedFiles(Path(job.files)).of_replicas():
        replica = next((one for one in job.replicas if str(one) == name), None)
        if replica is None or not incoming_files.is_asked(path, (pattern(folder),)):
            continue
        place = event_files.copies(job, replica) / path.removeprefix(f"{folder}/")
        with contextlib.suppress(OSError, ValueError):  # the user has removed it
            private_files.make_folders(place.parent, Path(job.files))
            known = place.stat().st_size if place.is_file() else 0
            with source.open("rb") as file:
                file.seek(known)
                while data := file.read(1 << 20):
                    _write_at(place, data, known)
                    known += len(data)


def _write_at(place: Path, data: bytes, offset: int) -> None:
    descriptor = os.open(place, _FLAGS, 0o600)
    try:
        view = memoryview(data)
        while view:
            count = os.pwrite(descriptor, view, offset)
            view, offset = view[count:], offset + count
    finally:
        os.close(descriptor)
