"""The record of the files that came back from the replicas of a job, shared by all kernels here.

A record has all files, and there may be a hundred thousand. So each file only adds a line to a
journal, and the record is written with the next fact about a replica. Each line has all that is
known of a file: applied once more to a record that has it, it changes nothing.

Readers take no lock, so one may read the lines of a journal when the record already has them. The
next journal may then be as long before the next look. Its first line, a random head, tells the two
apart; the inode does not, because a file system may give it to the next file.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ciao_kernel import file_lock, private_files
from ciao_kernel.delivery.replica_files import OWN

_Version = tuple[int, int, int]
_RECORD, _JOURNAL, _LOCK = "returned.json", "returned.journal", "returned.lock"
_LOOKS = 5
"""Attempts to read record and journal of one time; only without the lock they may not match."""


class ReturnedRecord:
    """The record of one job.

    Args:
        folder: The job's folder on this machine.
    """

    def __init__(self, folder: Path) -> None:
        self._base, self._folder = folder, folder / OWN
        self.replicas: dict[str, Any] = {}
        """What is known of each replica: its ``files`` by their paths, and more."""
        self._version: _Version | None = None
        """That of the record that is known here; None before the first."""
        self._read_to = 0
        """Length of the part of the journal that is known here."""
        self._head = b""
        """First line of that journal."""
        self._added: dict[tuple[str, str], None] = {}
        """Replicas and paths of the files that were changed in this ``with`` block."""
        self.read()

    def of(self, replica: str) -> dict[str, Any]:
        """Return what is known of a replica, to read or to change."""
        found: dict[str, Any] = self.replicas.setdefault(replica, {"files": {}})
        return found

    def put_file(self, replica: str, path: str, about: dict[str, Any]) -> None:
        """Change what is known of one file, in a ``with`` block of :meth:`adding`."""
        self.of(replica)["files"][path] = about
        self._added[replica, path] = None

    @contextlib.contextmanager
    def adding(self) -> Iterator[None]:
        """Change files, and what is recorded of them, alone: by :meth:`put_file`."""
        with self._alone():
            self._added.clear()
            yield
            if lines := "".join(map(self._line, self._added)).encode():
                if not self._read_to:
                    self._head = json.dumps([secrets.token_hex(8)]).encode() + b"\n"
                    lines = self._head + lines
                with (self._folder / _JOURNAL).open("ab") as journal:
                    journal.truncate(self._read_to)  # a killed kernel may have left half a line
                    journal.write(lines)
                self._read_to += len(lines)

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Change anything of the record, alone."""
        with self._alone():
            yield
            part = self._folder / f"{_RECORD}.part"
            part.write_text(json.dumps(self.replicas), encoding="utf-8")
            part.replace(self._folder / _RECORD)
            self._version, self._read_to = _version(self._folder / _RECORD), 0
            (self._folder / _JOURNAL).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        private_files.make_folders(self._folder, self._base)
        with file_lock.block(self._folder / _LOCK, required=False):
            self.read()
            try:
                yield
            except BaseException:
                self._version = None  # what was changed here must not be written later
                self.read()
                raise

    def _line(self, changed: tuple[str, str]) -> str:
        replica, path = changed
        return json.dumps([replica, path, self.of(replica)["files"][path]]) + "\n"

    def read(self) -> None:
        """Read what others have changed since the last time."""
        record = self._folder / _RECORD
        for _ in range(_LOOKS):
            version = _version(record)
            if version != self._version:
                self.replicas, self._version, self._read_to = _content(record), version, 0
            lines = self._new_lines()
            if lines is not None and _version(record) == version:
                break
            self._version = None
        lines = lines or b""
        for line in lines.splitlines():
            with contextlib.suppress(ValueError, TypeError):
                replica, path, about = json.loads(line)
                self.of(replica)["files"][path] = about
        self._read_to += len(lines)

    def _new_lines(self) -> bytes | None:
        """Return the lines that the journal has got; one that is not whole is left out.

        Returns:
            None if it is not the journal that was read before.
        """
        with contextlib.suppress(OSError), (self._folder / _JOURNAL).open("rb") as journal:
            head = journal.readline()
            if not self._read_to:
                self._head = head
            elif head != self._head or os.fstat(journal.fileno()).st_size < self._read_to:
                return None
            journal.seek(self._read_to)
            lines = journal.read()
            return lines[: lines.rfind(b"\n") + 1]
        return None if self._read_to else b""


def _content(record: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(record.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    return {}


def _version(path: Path) -> _Version:
    """Return what tells a written file from an earlier one; zeros if there is none."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0, 0
    return status.st_ino, status.st_mtime_ns, status.st_size
