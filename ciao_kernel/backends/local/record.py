"""Folder of one local job, and the records in it.

::

    NAME/job.json       the specification; written once, before the supervisor starts
    NAME/status.json    the current status; the supervisor replaces the file, and touches it
    NAME/stop           a request to stop the job, with its reason; written by any process
    NAME/reserve        space for a last status on a full disk
    NAME/supervisor.log output of the supervisor: empty, unless it failed
    NAME/logs/worker-0.log   all output of a replica
    NAME/work/          the program and its files; the replicas' working directory

The supervisor imports this module, so it uses only the standard library, and only fast parts of it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from pathlib import Path
from typing import Any

VERSION = 1
RECORD_ERRORS = (OSError, ValueError, KeyError)
"""Errors raised while a missing or broken record is read."""
LEFTOVERS = frozenset({"work", "logs", "reserve", "job.json", "supervisor.log"})
"""Names that a folder may contain before its supervisor has written a status."""
_RESERVE = 128 * 1024


class Folder:
    """Paths of a job's folder, and its records as plain dicts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.job_file = path / "job.json"
        self.status_file = path / "status.json"
        self.logs = path / "logs"
        self.supervisor_log = path / "supervisor.log"
        self._stop = path / "stop"
        self._reserve = path / "reserve"

    def log(self, replica: str) -> Path:
        """Return the log file of a replica."""
        return self.logs / f"{replica}.log"

    def read_job(self) -> dict[str, Any]:
        """Return the specification; raises OSError or ValueError if it is missing or broken."""
        record = _read(self.job_file)
        if record.get("version") != VERSION:
            raise ValueError(f"{self.job_file} was written by another version of ciao")
        return record

    def write_job(self, record: dict[str, Any]) -> None:
        """Write the specification. Only this user may read it: it contains values of %envvar."""
        replace(self.job_file, {"version": VERSION, **record})

    def read_status(self) -> dict[str, Any] | None:
        """Return the status; None if no supervisor has written one yet.

        Raises:
            OSError: The file cannot be read.
            ValueError: The file holds no record: a power cut may leave an empty file.
        """
        try:
            return _read(self.status_file)
        except FileNotFoundError:
            return None

    def write_status(self, status: dict[str, Any]) -> None:
        """Replace the status; a reader sees either the old or the new status, never a part."""
        replace(self.status_file, status)

    def touch_status(self) -> None:
        """Update the heartbeat, which shows other machines that the supervisor is alive."""
        with contextlib.suppress(OSError):
            os.utime(self.status_file)

    def is_stop_requested(self) -> bool:
        """Return whether a stop was requested (:meth:`request_stop`), or the folder was removed.

        Without its folder the job can no longer be found. The folder is listed, because a client
        of a file server may have cached that the file does not exist.
        """
        try:
            return any(path.name == self._stop.name for path in self.path.iterdir())
        except FileNotFoundError:
            return True
        except OSError:
            return False  # A network drive that hangs must not end a training.

    def read_stop_reason(self) -> str:
        """Return the reason for the stop; empty if none was given."""
        try:
            return self._stop.read_text()
        except (OSError, ValueError):
            return ""

    def request_stop(self, reason: str) -> None:
        """Request a stop of the job. On a full disk the reason may be lost, but not the request."""
        part = self._stop.with_suffix(_part())
        with contextlib.suppress(OSError):
            part.write_text(reason)
        with contextlib.suppress(OSError):
            part.replace(self._stop)

    def make_reserve(self) -> None:
        """Reserve space for :meth:`free_reserve`."""
        self._reserve.write_bytes(os.urandom(_RESERVE))  # Zeros might be stored as a hole.

    def free_reserve(self) -> None:
        """Free the reserve, so that a last status can be written on a full disk."""
        with contextlib.suppress(OSError):
            self._reserve.unlink()


def replace(file: Path, value: dict[str, Any]) -> None:
    """Replace a record atomically; only this user may read it."""
    part = file.with_suffix(_part())
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as stream:
            json.dump(value, stream)
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _part() -> str:
    """Return a suffix for a partial file that is unique among all processes and machines."""
    return f".{os.urandom(6).hex()}.part"


def _read(file: Path) -> dict[str, Any]:
    try:
        record = json.loads(file.read_bytes())
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        record = json.loads(file.read_bytes())  # File server: the file was just replaced.
    if not isinstance(record, dict):
        raise ValueError(f"{file} holds no record")
    return record
