"""The folder of one local job, and what is written in it.

::

    NAME/job.json       what was asked for; written once, before the supervisor starts
    NAME/status.json    what is so now; the supervisor replaces it as a whole
    NAME/stop           why the job is to stop; whoever stops it writes it
    NAME/reserve        room for a last status on a full disk
    NAME/supervisor.log what the supervisor said: nothing, unless it broke
    NAME/logs/worker-0.log   all that a replica wrote
    NAME/work/          the program and its files; the replicas' working directory

The supervisor imports this module, so it uses the standard library and nothing slow.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

VERSION = 1
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
        record: dict[str, Any] = json.loads(self.job_file.read_bytes())
        if record.get("version") != VERSION:
            raise ValueError(f"{self.job_file} was written by another version of ciao")
        return record

    def write_job(self, record: dict[str, Any]) -> None:
        """Write what is asked for. Only this user may read it: it holds %envvar's values."""
        replace(self.job_file, {"version": VERSION, **record})

    def read_status(self) -> dict[str, Any] | None:
        """What is so now; None as long as no supervisor has written."""
        try:
            status: dict[str, Any] = json.loads(self.status_file.read_bytes())
        except FileNotFoundError:
            return None
        return status

    def write_status(self, status: dict[str, Any]) -> None:
        """Replace the status; a reader sees the old one or the new one, never half."""
        replace(self.status_file, status)

    def read_stop(self) -> str:
        """Why the job is to stop; empty where nobody said."""
        try:
            return self._stop.read_text()
        except (OSError, ValueError):
            return ""

    def write_stop(self, reason: str) -> None:
        """Say why the job is to stop. It stops without a reason too, on a full disk."""
        with contextlib.suppress(OSError):
            self._stop.write_text(reason)

    def make_reserve(self) -> None:
        """Set room aside for :meth:`free_reserve`."""
        self._reserve.write_bytes(os.urandom(_RESERVE))  # Zeros might be kept as a hole.

    def free_reserve(self) -> None:
        """Give the room back, so that a last status can be written on a full disk."""
        with contextlib.suppress(OSError):
            self._reserve.unlink()


def replace(file: Path, value: dict[str, Any]) -> None:
    """Write a record as a whole, for this user alone."""
    part = file.with_suffix(f".{os.getpid()}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as stream:
            json.dump(value, stream)
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
