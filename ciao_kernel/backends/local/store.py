"""Finds, lists, stops and removes existing jobs, from any process of their user."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ciao_kernel.backends.local import hosts, processes, removal, sweeps, views
from ciao_kernel.backends.local.record import RECORD_ERRORS, Folder, is_name
from ciao_kernel.errors import BackendError, Incomplete, NoSuchJob
from ciao_kernel.model import Job, Status
from ciao_kernel.model.queries import Details
from ciao_kernel.private_files import Untrusted

_LAST_WORDS = 5.0
"""Seconds for the end of a supervisor after the job's grace period."""
_LOOK = 0.2
"""Seconds between two checks for the end of a job on another machine."""
_UNEXPECTED = 5.0
"""Seconds after SIGKILL within which a process always ends, unless the machine itself hangs."""
_NAMED = 3
"""Limit of folders that a message names."""


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
        """Return all jobs, oldest first; incomplete jobs and other files are left out.

        Raises:
            Incomplete: Another user may have written some records. They are not used, and the error
                has the other jobs.
            BackendError: The folder of jobs cannot be read.
        """
        found, lost, untrusted = [], [], []
        for path in self._folders():
            try:
                job, status, is_lost = self._read(Folder(path))
            except Untrusted as error:
                if path.is_symlink() or path.is_dir():  # not a plain file of the user
                    untrusted.append(str(error))
                continue
            except RECORD_ERRORS:
                continue
            found.append((job, status))
            lost += [Folder(path)] if is_lost else []
        await _end(lost)
        found.sort(key=lambda pair: pair[0].created)
        if untrusted:
            raise Incomplete(*describe_untrusted(*sorted(untrusted)), found)
        return found

    def _read(self, folder: Folder) -> tuple[Job, Status, bool]:
        """Return a job, its status, and whether it may have unsupervised processes here."""
        record = folder.read_status()
        over = record and record["settled"] and views.status(folder, record).over
        if record and not over and not self._host.is_supervisor_alive(folder, record):
            # It may have been settled between the two checks.
            record = folder.read_status()
        if record is None:
            raise ValueError("not started yet")
        status = views.status(folder, record)
        if status.over or self._host.is_supervisor_alive(folder, record):
            return views.job(folder), status, False
        status = views.lost(folder, status, silent=self._host.may_sleep(record["supervisor"]))
        return views.job(folder), status, self._host.has(record["supervisor"])

    def _folders(self) -> list[Path]:
        try:
            return [path for path in self.root.iterdir() if not path.name.startswith(removal.ASIDE)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise BackendError(
                f"the folder of jobs, {self.root}, cannot be read: {error.strerror}.",
                "Fix its permissions, or name another: `%ciao config storage=/some/folder`.",
            ) from None

    async def find(self, name: str) -> tuple[Job, Status]:
        """Return one job by its name.

        Raises:
            NoSuchJob: There is none.
            BackendError: Another user may have written its records.
        """
        if is_name(name):
            folder = Folder(self.root / name)
            try:
                job, status, is_lost = self._read(folder)
                await _end([folder] if is_lost else [])
                return job, status
            except Untrusted as error:
                raise BackendError(*describe_untrusted(str(error))) from None
            except RECORD_ERRORS:
                pass
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
        except Untrusted as error:
            raise BackendError(*describe_untrusted(str(error))) from None
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
            await asyncio.to_thread(removal.discard, self.folder(job))

    def details(self, job: Job) -> Details:
        """Return the details of a job beside its status, without its variables.

        Raises:
            NoSuchJob: The job's folder is gone.
        """
        try:
            return views.details(self.folder(job), self._host)
        except Untrusted as error:
            raise BackendError(*describe_untrusted(str(error))) from None
        except RECORD_ERRORS:
            raise NoSuchJob(f"the folder of {job.name} is gone.") from None


def _asked(folder: Folder, job: Job) -> dict[str, Any] | None:
    """Return the specification; None if it is missing, or if the name belongs to another job."""
    try:
        asked = folder.read_job()
    except Untrusted as error:
        raise BackendError(*describe_untrusted(str(error))) from None
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        raise _unreadable(folder.job_file, error) from None
    return asked if asked.get("id") == job.uid else None


def describe_untrusted(*words: str) -> tuple[str, str]:
    """Return message and hint for records that are not used, and whose folders are not touched."""
    more = f"; and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
    text = "; ".join(words[:_NAMED]) + more
    return (
        f"no job is read from a place that other users may have written to: {text}.",
        "Nothing there was changed. Remove it by hand; or, if only you have written there, "
        "`chmod -R go-w` on the folder makes it a job again.",
    )


def _unreadable(file: Path, error: OSError) -> BackendError:
    return BackendError(f"{file} cannot be read: {error.strerror}.", "Try again in a moment.")


async def _stop_here(
    folder: Folder,
    asked: dict[str, Any],
    record: dict[str, Any],
    reason: str,
    stop_certain: Callable[[], None],
) -> None:
    meant = record["supervisor"]["pid"], record["supervisor"]["birth"], asked["id"]
    if processes.is_of_job(*meant):
        if not record["settled"]:
            folder.request_stop(reason)
        processes.kill(*meant, signal.SIGTERM)
    stop_certain()
    until = time.monotonic() + asked["grace"] + _LAST_WORDS
    while processes.is_of_job(*meant):
        if (late := time.monotonic() - until) > 0:
            processes.kill(*meant)
        if late > _UNEXPECTED:
            raise BackendError(
                f"process {meant[0]}, which runs {asked['name']}, does not end.",
                "It may wait for a drive that does not answer. Try again later.",
            )
        await asyncio.sleep(0.02)
    await sweeps.sweep(asked["id"])


async def _end(lost: list[Folder]) -> None:
    """End the remaining processes of jobs whose supervisor is gone."""
    marks = []
    for folder in lost:
        with contextlib.suppress(*RECORD_ERRORS):
            marks.append(folder.read_job()["id"])
    if marks:
        await sweeps.sweep(*marks)
