"""The folder of one local job, and what is written in it.

::

    NAME/job.json       what was asked for; written once, before the supervisor starts
    NAME/status.json    what is so now; the supervisor replaces it as a whole
    NAME/logs/worker-0.log   all that a replica wrote
    NAME/work/          the program and its files; the replicas' working directory

The supervisor imports this module, so it uses the standard library and nothing slow.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

VERSION = 1


class Folder:
    """Paths of a job's folder, and its two records as plain dicts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.job_file = path / "job.json"
        self.status_file = path / "status.json"
        self.work = path / "work"
        self.supervisor_log = path / "supervisor.log"

    def log(self, replica: str) -> Path:
        """Where a replica's output is."""
        return self.path / "logs" / f"{replica}.log"

    def read_job(self) -> dict[str, Any]:
        """What was asked for; raises OSError or ValueError where there is no such record."""
        record: dict[str, Any] = json.loads(self.job_file.read_bytes())
        if record.get("version") != VERSION:
            raise ValueError(f"{self.job_file} was written by another version of ciao")
        return record

    def write_job(self, record: dict[str, Any]) -> None:
        """Write what is asked for. Only this user may read it: it holds %envvar's values."""
        _replace(self.job_file, {"version": VERSION, **record})

    def read_status(self) -> dict[str, Any] | None:
        """What is so now; None as long as no supervisor has written."""
        try:
            status: dict[str, Any] = json.loads(self.status_file.read_bytes())
        except FileNotFoundError:
            return None
        return status

    def write_status(self, status: dict[str, Any]) -> None:
        """Replace the status; a reader sees the old one or the new one, never half."""
        _replace(self.status_file, status)


def _replace(file: Path, value: dict[str, Any]) -> None:
    part = file.with_suffix(f".{os.getpid()}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as stream:
            json.dump(value, stream)
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
