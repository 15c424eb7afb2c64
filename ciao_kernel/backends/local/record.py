"""The folder of one local job, and what is written in it.

::

    NAME/job.json       what was asked for; written once, before the supervisor starts
    NAME/status.json    what is so now; the supervisor replaces it as a whole, and touches it
    NAME/stop           why the job is to stop, which it does then; whoever stops it writes it
    NAME/reserve        room for a last status on a full disk
    NAME/supervisor.log what the supervisor said: nothing, unless it broke
    NAME/logs/worker-0.log   all that a replica wrote
    NAME/work/          the program and its files; the replicas' working directory

The supervisor imports this module, so it uses the standard library and nothing slow.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from pathlib import Path
from typing import Any

VERSION = 1
UNREADABLE = (OSError, ValueError, KeyError)
"""What reading a record and looking into it raises where there is none, or a broken one."""
LEFTOVERS = frozenset({"work", "logs", "reserve", "job.json", "supervisor.log"})
"""All that a folder can hold before its supervisor has written a status."""
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
        """Where a replica's output is."""
        return self.logs / f"{replica}.log"

    def read_job(self) -> dict[str, Any]:
        """What was asked for; raises OSError or ValueError where there is no such record."""
        record = _read(self.job_file)
        if record.get("version") != VERSION:
            raise ValueError(f"{self.job_file} was written by another version of ciao")
        return record

    def write_job(self, record: dict[str, Any]) -> None:
        """Write what is asked for. Only this user may read it: it holds %envvar's values."""
        replace(self.job_file, {"version": VERSION, **record})

    def read_status(self) -> dict[str, Any] | None:
        """What is so now; None as long as no supervisor has written.

        Raises:
            OSError: It cannot be read.
            ValueError: It is no record: a power cut may leave an empty file.
        """
        try:
            return _read(self.status_file)
        except FileNotFoundError:
            return None

    def write_status(self, status: dict[str, Any]) -> None:
        """Replace the status; a reader sees the old one or the new one, never half."""
        replace(self.status_file, status)

    def touch_status(self) -> None:
        """Let other machines see that the supervisor lives."""
        with contextlib.suppress(OSError):
            os.utime(self.status_file)

    def asks_to_stop(self) -> bool:
        """Whether somebody wrote :meth:`write_stop`, or removed the folder under us.

        Without its folder nobody can find the job any more. The folder is listed, because a client
        of a file server may say from memory that a file of some name is not there.
        """
        try:
            return any(path.name == self._stop.name for path in self.path.iterdir())
        except FileNotFoundError:
            return True
        except OSError:
            return False  # A network drive that hangs is no reason to end a training.

    def read_stop(self) -> str:
        """Why the job is to stop; empty where nobody said."""
        try:
            return self._stop.read_text()
        except (OSError, ValueError):
            return ""

    def write_stop(self, reason: str) -> None:
        """Say that the job is to stop, and why. It stops without a reason too, on a full disk."""
        part = self._stop.with_suffix(_part())
        with contextlib.suppress(OSError):
            part.write_text(reason)
        with contextlib.suppress(OSError):
            part.replace(self._stop)

    def make_reserve(self) -> None:
        """Set room aside for :meth:`free_reserve`."""
        self._reserve.write_bytes(os.urandom(_RESERVE))  # Zeros might be kept as a hole.

    def free_reserve(self) -> None:
        """Give the room back, so that a last status can be written on a full disk."""
        with contextlib.suppress(OSError):
            self._reserve.unlink()


def replace(file: Path, value: dict[str, Any]) -> None:
    """Write a record as a whole, for this user alone."""
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
    """An end for the name of a half-written file: no process of any machine has the same."""
    return f".{os.urandom(6).hex()}.part"


def _read(file: Path) -> dict[str, Any]:
    try:
        record = json.loads(file.read_bytes())
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        record = json.loads(file.read_bytes())  # A file server: it was replaced just now.
    if not isinstance(record, dict):
        raise ValueError(f"{file} holds no record")
    return record
