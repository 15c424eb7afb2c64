"""Folder of one local job, and the records in it.

::

    NAME/job.json       the specification; written once, before the supervisor begins
    NAME/status.json    the current status; the supervisor replaces the file, and touches it
    NAME/stop           a request to stop the job, with its reason; written by any process
    NAME/reserve        space for a last status on a full disk
    NAME/supervisor.log output of the supervisor: empty, unless it failed
    NAME/logs/worker-0.log   all output of a replica
    NAME/work/          the program and its files; the replicas' working directory

A record counts only if this user wrote it (:mod:`ciao_kernel.private_files`) and it is the record
of its folder: it names a process to end, and a folder to remove.

The supervisor imports this module, so it uses only the standard library, and only fast parts of it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path

from ciao_kernel import private_files
from ciao_kernel.private_files import Untrusted

TYPE_CHECKING = False  # not from typing, whose import takes a tenth of the start
if TYPE_CHECKING:
    from typing import Any, BinaryIO

VERSION = 1
BEGIN = b"begin\n"
"""Tells a supervisor, which waits for it, that the job's record is complete."""
RECORD_ERRORS = (OSError, ValueError, KeyError)
"""Errors raised while a missing or broken record is read; :class:`Untrusted` is one of them."""
LEFTOVERS = frozenset({"work", "logs", "reserve", "job.json", "supervisor.log"})
"""Names that a folder may contain before its supervisor has written a status."""
LARGEST = 64 << 20
"""Bytes of a record. That of a thousand replicas, each with the addresses of all, has 25 MB."""
_RESERVE = 128 * 1024
_REPLICA = re.compile(r"[^/\0]+-[0-9]{1,6}")
_NUMBER = (int, float)
_TYPES: dict[str, Any] = {
    "id": str, "name": str, "host": str, "framework": str, "header": str, "created": _NUMBER,
    "by": str, "owner": (dict, type(None)), "detached": bool, "decider": str, "clean": str,
    "deadline": (*_NUMBER, type(None)), "grace": _NUMBER, "linger": _NUMBER, "workdir": str,
    "program": str, "replicas": list, "role": str, "index": int, "command": list, "env": dict,
    "endless": bool, "saves": bool, "supervisor": dict, "pid": (int, type(None)),
    "birth": (str, type(None)), "state": str, "since": _NUMBER, "reason": str, "message": str,
    "decided_by": (str, type(None)), "settled": bool, "ended": bool,
    "exit_code": (int, type(None)), "last_exit": (int, type(None)), "restarts": int,
    "restart": str, "backoff_limit": (int, type(None)), "retries": int, "tries": int,
    "made_of": dict,
}  # fmt: skip
"""Types of the fields of all records; a field has the same type wherever it is."""


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
        self._held: tuple[os.stat_result, str] | None = None

    def hold(self) -> dict[str, Any]:
        """Return the specification; from now on, a folder of another job here is not written to.

        The errors are those of :meth:`read_job`.
        """
        # It stays open, so that no other folder gets its number.
        held = os.fstat(os.open(self.path, os.O_RDONLY | os.O_DIRECTORY))
        record = self.read_job()
        self._held = held, record["id"]
        return record

    def check(self) -> None:
        """Raise FileNotFoundError if the folder that is held is gone, or is no longer here."""
        if self._held and not os.path.samestat(self.path.stat(), self._held[0]):
            with contextlib.suppress(ValueError):
                if self.read_job().get("id") == self._held[1]:
                    return  # a file server may have given it another number
            raise FileNotFoundError(errno.ENOENT, "the folder is that of another job", self.path)

    def log(self, replica: str) -> Path:
        """Return the log file of a replica."""
        return self.logs / f"{replica}.log"

    def open_log(self, replica: str) -> BinaryIO:
        """Open the log file of a replica to append its output."""
        self.check()
        return os.fdopen(private_files.open_to_append(self.log(replica)), "ab", buffering=0)

    def end_line(self, replica: str) -> None:
        """End an unfinished last line of a replica's log, so that the next one is a line too.

        Raises:
            OSError: The file cannot be read or written.
            Untrusted: Another user may have written it.
        """
        with private_files.opened_file(self.log(replica)) as file:
            size = os.fstat(file).st_size
            finished = not size or os.pread(file, 1, size - 1) == b"\n"
        if not finished:
            with self.open_log(replica) as log:
                log.write(b"\n")

    def add_line(self, replica: str, text: str) -> None:
        """Add a line of ciao to a replica's log. A full disk, or a foreign file, prevents that."""
        with contextlib.suppress(OSError, Untrusted), self.open_log(replica) as log:
            log.write(f"{text}\n".encode())

    def open_supervisor_log(self) -> BinaryIO:
        """Open the log file of the supervisor to append its output."""
        return os.fdopen(private_files.open_to_append(self.supervisor_log), "ab", buffering=0)

    def supervisor_said(self) -> list[str]:
        """Return the lines of the supervisor's output: none, unless it failed.

        Raises:
            OSError: The file is missing or cannot be read.
            Untrusted: Another user may have written it.
        """
        text = private_files.read(self.supervisor_log, LARGEST).decode(errors="replace")
        return text.strip().splitlines()

    def read_job(self) -> dict[str, Any]:
        """Return the specification.

        Raises:
            OSError: It is missing or cannot be read.
            ValueError: It is broken.
            Untrusted: Another user may have written it, or it is the record of another folder.
        """
        record = _read(self.job_file)
        if record.get("version") != VERSION:
            raise ValueError(f"{self.job_file} was written by another version of ciao")
        if record.get("name") != self.path.name:
            raise Untrusted(
                f"{self.job_file} is the record of another job, {record.get('name')!r:.60}"
            )
        return record

    def write_job(self, record: dict[str, Any]) -> None:
        """Write the specification. Only this user may read it: it contains values of %envvar."""
        replace(self.job_file, {"version": VERSION, **record})

    def read_status(self) -> dict[str, Any] | None:
        """Return the status; None if no supervisor has written one yet.

        Raises:
            OSError: The file cannot be read.
            ValueError: The file holds no record: a power cut may leave an empty file.
            Untrusted: Another user may have written it.
        """
        try:
            return _read(self.status_file)
        except FileNotFoundError:
            return None

    def write_status(self, status: dict[str, Any]) -> None:
        """Replace the status; a reader sees either the old or the new status, never a part."""
        self.check()
        replace(self.status_file, status)

    def touch_status(self) -> None:
        """Update the heartbeat, which shows other machines that the supervisor is alive."""
        with contextlib.suppress(OSError):
            self.check()
            os.utime(self.status_file)

    def last_heartbeat(self) -> float:
        """Return when the supervisor was known to be alive, in seconds since the epoch, or 0."""
        try:
            return self.status_file.lstat().st_mtime
        except OSError:
            return 0.0

    def is_stop_requested(self) -> bool:
        """Return whether a stop was requested (:meth:`request_stop`), or the folder is gone.

        Without its folder the job can no longer be found. The folder is listed, because a client
        of a file server may have cached that the file does not exist.
        """
        try:
            self.check()
            return any(path.name == self._stop.name for path in self.path.iterdir())
        except FileNotFoundError:
            return True
        except OSError:
            return False  # A network drive that hangs must not end a training.

    def read_stop_reason(self) -> str:
        """Return the reason for the stop; empty if none was given."""
        try:
            return private_files.read(self._stop, _RESERVE).decode()
        except (OSError, ValueError):
            return ""

    def request_stop(self, reason: str) -> None:
        """Request a stop of the job. On a full disk the reason may be lost, but not the request."""
        part = self._stop.with_suffix(_part())
        with contextlib.suppress(OSError), private_files.create(part) as stream:
            stream.write(reason.encode(errors="replace"))
        with contextlib.suppress(OSError):
            part.replace(self._stop)

    def make_reserve(self) -> None:
        """Reserve space for :meth:`free_reserve`."""
        with private_files.create(self._reserve) as stream:
            stream.write(os.urandom(_RESERVE))  # Zeros might be stored as a hole.

    def free_reserve(self) -> None:
        """Free the reserve, so that a last status can be written on a full disk."""
        with contextlib.suppress(OSError):
            self._reserve.unlink()


def replace(file: Path, value: dict[str, Any]) -> None:
    """Replace a record atomically; only this user may read it.

    Raises:
        OSError: It cannot be written, or :func:`read` would refuse its size.
    """
    part = file.with_suffix(_part())
    content = json.dumps(value).encode()
    if len(content) > LARGEST:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(file))
    try:
        with private_files.create(part) as stream:
            stream.write(content)
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def read(file: Path) -> dict[str, Any]:
    """Return a record that this user wrote; the errors are those of :meth:`Folder.read_status`."""
    try:
        content = private_files.read(file, LARGEST)
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        content = private_files.read(file, LARGEST)  # File server: the file was just replaced.
    try:
        record = json.loads(content)
    except RecursionError:
        raise ValueError(f"{file} holds no record") from None
    if not isinstance(record, dict):
        raise ValueError(f"{file} holds no record")
    return record


def is_name(text: str) -> bool:
    """Return whether a text is the name of a folder among the jobs, and no path to another one."""
    return bool(text) and not text.startswith(".") and "/" not in text and "\0" not in text


def _read(file: Path) -> dict[str, Any]:
    record = read(file)
    _check_types(record, file)
    for one in record.get("replicas", ()):
        if not isinstance(one, dict):
            raise Untrusted(f"{file} is not a record of ciao: replicas")
        _check_types(one, file)
        # The name becomes the name of a log file.
        if "name" in one and not _REPLICA.fullmatch(one["name"]):
            raise Untrusted(f"{file} is not a record of ciao: the replica {one['name']!r:.60}")
        env = one.get("env", {})
        if not all(isinstance(word, str) for word in (*one.get("command", ()), *env.values())):
            raise Untrusted(f"{file} is not a record of ciao: command")
    for name in ("supervisor", "owner"):
        _check_types(record.get(name) or {}, file)
    return record


def _check_types(record: Mapping[str, Any], file: Path) -> None:
    for name, value in record.items():
        wanted = _TYPES.get(name, object)
        # Python's bool is an int; NaN and infinity would make a wait endless.
        flag = isinstance(value, bool) and wanted is not bool and wanted is not object
        endless = isinstance(value, float) and not math.isfinite(value)
        if flag or endless or not isinstance(value, wanted):
            raise Untrusted(f"{file} is not a record of ciao: {name}")


def _part() -> str:
    """Return a suffix for a partial file that is unique among all processes and machines."""
    return f".{os.urandom(6).hex()}.part"
