"""Finds, lists, stops and removes existing jobs, from any process of their user."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ciao_kernel import log
from ciao_kernel.backends.local import hosts, processes, sweeps, views
from ciao_kernel.backends.local.record import LEFTOVERS, RECORD_ERRORS, Folder
from ciao_kernel.errors import BackendError, NoSuchJob
from ciao_kernel.model import Job, Replica, Status
from ciao_kernel.model.queries import Details, LogOptions, last_lines

_log = logging.getLogger(__name__)

_FIRST_LOOK = 1 << 16
_DAY = 24 * 3600.0
_LAST_WORDS = 5.0
"""Seconds for the end of a supervisor after the job's grace period."""
_LOOK = 0.2
"""Seconds between two checks for the end of a job on another machine."""
_ASIDE = "."
"""Prefix of folders that are being removed; no job's name has it."""


class Store:
    """The folders of all jobs.

    Args:
        root: Folder that contains them.
        host: This machine.
    """

    def __init__(self, root: Path, host: hosts.Host) -> None:
        self.root = root
        self._host = host

    def folder(self, job: Job) -> Folder:
        """Return the folder of a job."""
        return Folder(self.root / job.name)

    async def all(self) -> list[tuple[Job, Status]]:
        """Return all jobs, oldest first; incomplete jobs and other files are left out."""
        found, lost = [], []
        for path in self._folders():
            with contextlib.suppress(*RECORD_ERRORS):
                job, status, is_lost = self._read(Folder(path))
                found.append((job, status))
                lost += [Folder(path)] if is_lost else []
        await _end(lost)
        return sorted(found, key=lambda pair: pair[0].created)

    def _read(self, folder: Folder) -> tuple[Job, Status, bool]:
        """Return a job, its status, and whether it may have unsupervised processes here."""
        record = folder.read_status()
        if record and not record["settled"] and not self._host.is_supervisor_alive(folder, record):
            # It may have been settled between the two checks.
            record = folder.read_status()
        if record is None:
            raise ValueError("not started yet")
        status = views.status(folder, record)
        if status.settled or self._host.is_supervisor_alive(folder, record):
            return views.job(folder), status, False
        return views.job(folder), views.lost(status), self._host.has(record["supervisor"])

    def _folders(self) -> list[Path]:
        try:
            return [path for path in self.root.iterdir() if not path.name.startswith(_ASIDE)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise BackendError(
                f"the folder of jobs, {self.root}, cannot be read: {error.strerror}.",
                "Fix its permissions, or name another: `%ciao config storage=/some/folder`.",
            ) from None

    async def find(self, name: str) -> tuple[Job, Status]:
        """Return one job by its name."""
        path = self.root / name
        if path.parent == self.root and not name.startswith(_ASIDE):
            with contextlib.suppress(*RECORD_ERRORS):
                job, status, is_lost = self._read(Folder(path))
                await _end([Folder(path)] if is_lost else [])
                return job, status
        raise NoSuchJob(
            f"there is no job {name or repr(name)} on this machine.", "`%ciao jobs` lists all jobs."
        )

    async def stop(
        self, job: Job, reason: str, *, stop_certain: Callable[[], None] = lambda: None
    ) -> None:
        """Let the supervisor send SIGTERM to all replicas, and SIGKILL after the grace period.

        If the name now belongs to another job, nothing is done.

        Raises:
            BackendError: The job runs on another machine and does not end there, or its records
                cannot be read.
        """
        folder = self.folder(job)
        asked = _asked(folder, job)
        if asked is None:
            return  # Another process is deleting the job, and stops it first.
        try:
            record = folder.read_status()
        except ValueError:  # A power cut may leave it empty: the supervisor is unknown.
            if self._host.has(asked):
                await sweeps.sweep(asked["id"])
            return
        except OSError as error:
            raise _unreadable(folder.status_file, error) from None
        if record is None:
            return
        if self._host.has(record["supervisor"]):
            await _stop_here(folder, asked, record, reason, stop_certain)
        else:
            await self._stop_elsewhere(folder, asked, record, reason)
            stop_certain()

    async def _stop_elsewhere(
        self, folder: Folder, asked: dict[str, Any], record: dict[str, Any], reason: str
    ) -> None:
        """Ask a supervisor on another machine to stop, and wait until it has ended or is dead."""
        supervisor, grace = record["supervisor"], asked["grace"]
        until = time.monotonic() + grace + self._host.fresh
        if self._host.is_supervisor_alive(folder, record):
            folder.request_stop(reason)
        while record and self._host.is_supervisor_alive(folder, record):
            if time.monotonic() > until:
                name, host = asked["name"], hosts.name(supervisor)
                raise BackendError(
                    f"{name} runs on {host}; it was asked to stop, but has not ended there.",
                    f"Run `ciao delete {name}` on {host}. Its folder is not changed.",
                )
            await asyncio.sleep(_LOOK)
            with contextlib.suppress(OSError, ValueError):
                record = folder.read_status() or {}
                if record.get("supervisor") != supervisor:
                    return  # Deleted; the name may belong to a later job.

    def runs(self, job: Job) -> bool:
        """Return whether the supervisor of a job is alive and still has replicas to end."""
        with contextlib.suppress(*RECORD_ERRORS):
            folder = self.folder(job)
            record = folder.read_status()
            if record is not None and not record["settled"]:
                return self._host.is_supervisor_alive(folder, record)
        return False

    async def delete(self, job: Job) -> None:
        """Stop a job and remove its folder with all its content.

        Raises:
            BackendError: The job still runs, or its folder cannot be removed completely.
        """
        await self.stop(job, "deleted")
        if _asked(self.folder(job), job):
            await asyncio.to_thread(_discard, self.folder(job))

    def details(self, job: Job) -> Details:
        """Return the details of a job beside its status, without its variables.

        Raises:
            NoSuchJob: The job's folder is gone.
        """
        try:
            return views.details(self.folder(job), self._host)
        except RECORD_ERRORS:
            raise NoSuchJob(f"the folder of {job.name} is gone.") from None

    async def log(self, job: Job, replica: Replica, options: LogOptions) -> bytes:
        """Read a replica's log file, or its end."""
        file = self.folder(job).log(str(replica))
        if options.tail is None:
            return _end_of(file, None)
        size = _FIRST_LOOK
        while True:  # without reading all of a long file
            data = _end_of(file, size)
            if len(data) < size or data.count(b"\n") > options.tail:
                return last_lines(data, options.tail)
            size *= 4


def _end_of(file: Path, size: int | None) -> bytes:
    try:
        with file.open("rb") as stream:
            if size is not None:
                stream.seek(max(0, os.fstat(stream.fileno()).st_size - size))
            return stream.read()
    except FileNotFoundError:
        return b""


def remove(folder: Folder) -> None:
    """Remove a job's folder, including folders in it that are not writable.

    Raises:
        BackendError: Something could not be removed; names the folder.
    """
    shutil.rmtree(folder.path, ignore_errors=True)
    if not folder.path.exists():
        return
    for parent, _, _ in os.walk(folder.path):
        with contextlib.suppress(OSError):
            Path(parent).chmod(0o700)
    shutil.rmtree(folder.path, ignore_errors=True)
    if folder.path.exists():
        raise BackendError(
            f"{folder.path} cannot be removed completely.",
            "A file in it may belong to another user, or be in use. Remove it by hand.",
        )


def clear_leftovers(root: Path, host: hosts.Host) -> None:
    """Remove folders that killed submits and deletions left behind; they are not listed as jobs.

    A folder is removed if it is a day old by the storage's clock, and was either set aside for
    removal or contains only files of a submit. A folder that cannot be removed stays, and does no
    harm.
    """
    now = host.now()
    with contextlib.suppress(OSError):
        for path in root.iterdir():
            with log.ignored(_log, "removing a leftover", OSError, BackendError):
                if now - path.stat().st_mtime < _DAY:
                    continue
                names = {one.name for one in path.iterdir()}
                if path.name.startswith(_ASIDE) or not names - LEFTOVERS:
                    remove(Folder(path))


def _asked(folder: Folder, job: Job) -> dict[str, Any] | None:
    """Return the specification; None if it is missing, or if the name belongs to another job."""
    try:
        asked = folder.read_job()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        raise _unreadable(folder.job_file, error) from None
    return asked if asked.get("id") == job.uid else None


def _unreadable(file: Path, error: OSError) -> BackendError:
    return BackendError(f"{file} cannot be read: {error.strerror}.", "Try again in a moment.")


async def _stop_here(
    folder: Folder,
    asked: dict[str, Any],
    record: dict[str, Any],
    reason: str,
    stop_certain: Callable[[], None],
) -> None:
    supervisor = record["supervisor"]
    if processes.alive(supervisor["pid"], supervisor["birth"]):
        if not record["settled"]:
            folder.request_stop(reason)
        processes.kill([supervisor["pid"]], signal.SIGTERM)
    stop_certain()
    until = time.monotonic() + asked["grace"] + _LAST_WORDS
    while processes.alive(supervisor["pid"], supervisor["birth"]):
        if time.monotonic() > until:
            processes.kill([supervisor["pid"]])
        await asyncio.sleep(0.02)
    await sweeps.sweep(asked["id"])


def _discard(folder: Folder) -> None:
    """Remove a job's folder; the name is free at once."""
    aside = folder.path.with_name(f"{_ASIDE}{folder.path.name}-{os.urandom(4).hex()}")
    with contextlib.suppress(OSError):  # On failure it is removed in place.
        os.utime(folder.path)  # A fresh folder is not cleared by other processes.
        folder.path.rename(aside)
        folder = Folder(aside)
    remove(folder)


async def _end(lost: list[Folder]) -> None:
    """End the remaining processes of jobs whose supervisor is gone."""
    marks = []
    for folder in lost:
        with contextlib.suppress(*RECORD_ERRORS):
            marks.append(folder.read_job()["id"])
    if marks:
        await sweeps.sweep(*marks)
