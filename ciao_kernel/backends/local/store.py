"""The jobs that exist: find, list, stop and remove them, from any process of their user."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import time
from pathlib import Path

from ciao_kernel.backends.local import processes, views
from ciao_kernel.backends.local.record import LEFTOVERS, Folder
from ciao_kernel.errors import BackendError, NoSuchJob
from ciao_kernel.model import Job, Replica, Status
from ciao_kernel.queries import Details, LogOptions, last_lines

_UNREADABLE = (OSError, ValueError, KeyError)
_FIRST_LOOK = 1 << 16
_DAY = 24 * 3600.0


class Store:
    """The folders of all jobs.

    Args:
        root: Where they are.
        grace: Seconds that a replica has from SIGTERM to SIGKILL.
    """

    def __init__(self, root: Path, grace: float) -> None:
        self.root = root
        self._grace = grace

    def folder(self, job: Job) -> Folder:
        """The folder of a job."""
        return Folder(self.root / job.name)

    async def all(self) -> list[tuple[Job, Status]]:
        """All jobs, oldest first; half-made ones and other things in the folder are left out."""
        found, lost = [], []
        for path in self._folders():
            with contextlib.suppress(*_UNREADABLE):
                job, status, is_lost = _read(Folder(path))
                found.append((job, status))
                lost += [Folder(path)] if is_lost else []
        await _end(lost)
        return sorted(found, key=lambda pair: pair[0].created)

    def _folders(self) -> list[Path]:
        try:
            return list(self.root.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise BackendError(
                f"the folder of jobs, {self.root}, cannot be read: {error.strerror}.",
                "Fix its permissions, or name another: `%ciao config storage=/some/folder`.",
            ) from None

    async def find(self, name: str) -> tuple[Job, Status]:
        """One job by its name."""
        path = self.root / name
        if path.parent == self.root:
            with contextlib.suppress(*_UNREADABLE):
                job, status, is_lost = _read(Folder(path))
                await _end([Folder(path)] if is_lost else [])
                return job, status
        raise NoSuchJob(
            f"there is no job {name or repr(name)} on this machine.", "`%ciao jobs` lists all jobs."
        )

    async def stop(self, job: Job, reason: str) -> None:
        """SIGTERM to all replicas, SIGKILL after the grace; the supervisor does both."""
        folder = self.folder(job)
        try:
            record, mark = folder.read_status(), folder.read_job()["id"]
        except FileNotFoundError:
            return  # Someone deletes it, and stops it first.
        if record is None:
            return
        supervisor = record["supervisor"]
        if processes.alive(supervisor["pid"], supervisor["birth"]):
            if not record["settled"]:
                folder.write_stop(reason)
            processes.kill([supervisor["pid"]], signal.SIGTERM)
        until = time.monotonic() + self._grace + 5
        while processes.alive(supervisor["pid"], supervisor["birth"]):
            if time.monotonic() > until:
                processes.kill([supervisor["pid"]])
            await asyncio.sleep(0.02)
        await asyncio.to_thread(processes.sweep, mark)

    def runs(self, job: Job) -> bool:
        """Whether a job has replicas that its supervisor has not seen end."""
        with contextlib.suppress(*_UNREADABLE):
            record = self.folder(job).read_status()
            return bool(record and not record["settled"] and views.supervised(record))
        return False

    async def delete(self, job: Job) -> None:
        """Stop a job and remove its folder, with all that it wrote there."""
        await self.stop(job, "deleted")
        await asyncio.to_thread(remove, self.folder(job))

    def details(self, job: Job) -> Details:
        """What the records of a job say beside its status; variables stay untold.

        Raises:
            NoSuchJob: Its folder is gone.
        """
        folder = self.folder(job)
        try:
            return views.details(folder.read_job(), folder.read_status() or {})
        except _UNREADABLE:
            raise NoSuchJob(f"the folder of {job.name} is gone.") from None

    async def log(self, job: Job, replica: Replica, options: LogOptions) -> bytes:
        """Read a replica's log file, or its end."""
        file = self.folder(job).log(str(replica))
        if options.tail is None:
            return _end_of(file, None)
        size = _FIRST_LOOK
        while True:  # without reading all of a long one
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
    """Remove a job's folder, folders without a right to write in them included.

    Raises:
        BackendError: Something stays; it names the folder.
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
            f"{folder.path} cannot be removed as a whole.",
            "Something in it may belong to another user, or be in use. Remove it by hand.",
        )


def clear_leftovers(root: Path) -> None:
    """Remove what submits left that were killed midway: nobody finds it as a job.

    Only what is a day old, and holds nothing but what a submit makes.
    """
    for path in root.iterdir():
        with contextlib.suppress(OSError):
            old = time.time() - path.stat().st_mtime > _DAY
            if old and not {one.name for one in path.iterdir()} - LEFTOVERS:
                remove(Folder(path))


def _read(folder: Folder) -> tuple[Job, Status, bool]:
    """A job, its status, and whether it is lost without its processes being ended yet."""
    record = folder.read_status()
    if record is not None and not record["settled"] and not views.supervised(record):
        # It may have been settled between the two questions.
        record = folder.read_status()
    if record is None:
        raise ValueError("not started yet")
    status = views.status(folder, record)
    if status.settled or views.supervised(record):
        return views.job(folder), status, False
    return views.job(folder), views.lost(status), True


async def _end(lost: list[Folder]) -> None:
    """End what still runs of jobs whose supervisor is gone: nobody else would."""
    marks = []
    for folder in lost:
        with contextlib.suppress(*_UNREADABLE):
            marks.append(folder.read_job()["id"])
    if marks:
        await asyncio.to_thread(processes.sweep, *marks)
