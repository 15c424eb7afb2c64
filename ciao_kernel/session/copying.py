"""Copies files between this machine and one replica of a job, when the user asks for it.

Replicas of this machine share a folder with it, which is read directly; in a pod a command sends
or takes them.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ciao_kernel.config import Settings
from ciao_kernel.delivery import incoming_files, replica_files, transfers
from ciao_kernel.delivery.fetch import Fetch
from ciao_kernel.delivery.transfers import python_of, size_text
from ciao_kernel.errors import BackendError
from ciao_kernel.model import Job, Replica
from ciao_kernel.plugins import Backend
from ciao_kernel.visible_text import listed, visible


async def take(
    backend: Backend, job: Job, replica: Replica, source: str, target: Path, settings: Settings
) -> str:
    """Copy a file or folder of a replica to this machine; return what came.

    Args:
        backend: The job's backend.
        job: The job.
        replica: The replica.
        source: Path there, absolute or relative to the program's folder.
        target: Path here; if it is a folder, into it.
        settings: Interpreter and limit.

    Raises:
        BackendError: It does not exist there, or it cannot be fetched.
    """
    base, _, name = source.rstrip("/").rpartition("/")
    base = base or ("/" if source.startswith("/") else ".")
    into = _Target(target, name)
    faults: dict[str, str] = {}
    if not job.on_cluster:
        base = str(Path(job.workdir, base))
        found = replica_files.find(base, [name])
        faults = dict(found.faults)
        for path in found.sizes:
            with _writing(target):
                part = into.part()
            try:
                shutil.copyfile(Path(base, path), part)
            except OSError as error:
                with contextlib.suppress(OSError):
                    part.unlink(missing_ok=True)
                if str(error.filename) == str(part) or error.errno in (errno.ENOSPC, errno.EDQUOT):
                    with _writing(target):
                        raise
                faults[path] = replica_files.reason(error)
                continue
            with _writing(target):
                into.place(path, part, "")
    else:
        one = Fetch(
            partial(backend.execute, job, replica),
            python_of(job, settings.cluster_python),
            [name],
            into,
            int(settings.fetch_limit),
            base=base,
        )
        await one.run()
        faults = one.listing.faults
    names = listed([f"{path} ({why})" for path, why in faults.items()])
    if faults and not into.count:
        raise BackendError(f"nothing could be copied from {replica} of {job.name}: {names}.")
    if not into.count:
        raise BackendError(
            f"{replica} of {job.name} has no file {visible(source)}.",
            f"Paths are relative to {job.workdir}.",
        )
    rest = f"; these could not be copied: {names}" if faults else ""
    return f"{into.count} {'file' if into.count == 1 else 'files'}, {size_text(into.size)}{rest}"


async def give(
    backend: Backend, job: Job, replica: Replica, source: Path, target: str, settings: Settings
) -> str:
    """Copy a file or folder of this machine to a replica; return what went.

    Raises:
        BackendError: It does not exist here, or it cannot be sent.
    """
    found = replica_files.find(str(source.absolute().parent), [source.absolute().name])
    if not found.sizes:
        raise BackendError(f"there is no file {visible(str(source))}.")
    if job.on_cluster:
        execute = partial(backend.execute, job, replica)
        python = python_of(job, settings.cluster_python)
        await transfers.send(execute, python, source, target or ".")
    else:
        with _writing(target or job.workdir):
            into = _Target(folder(Path(job.workdir), target), source.absolute().name)
            for path in found.sizes:
                part = into.part()
                try:
                    shutil.copyfile(source.absolute().parent / path, part)
                except OSError:
                    part.unlink(missing_ok=True)
                    raise
                into.place(path, part, "")
    count = len(found.sizes)
    size = size_text(sum(found.sizes.values()))
    return f"{count} {'file' if count == 1 else 'files'}, {size}"


@contextlib.contextmanager
def _writing(target: str | Path) -> Iterator[None]:
    """Report an OSError as an error of the target.

    Raises:
        BackendError: It cannot be written.
    """
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        raise BackendError(f"{visible(str(target))} cannot be written: {why}.") from None


def folder(base: Path, target: str) -> Path:
    """Return a path; create it as a folder if the text ends with a slash, as `cp` requires."""
    place = base / Path(target).expanduser()
    if target.endswith("/"):
        place.mkdir(parents=True, exist_ok=True)
    return place


class _Target:
    """Takes files for a path of this machine.

    Args:
        target: The path; if it is a folder, files go into it.
        name: Name of the copied file or folder.
    """

    def __init__(self, target: Path, name: str) -> None:
        self._into = target.is_dir() or "*" in name or "?" in name
        self._target, self._name = target, name
        self._parts = self._numbers()
        self.count = self.size = 0

    def _numbers(self) -> Iterator[Path]:
        folder = self._target if self._into else self._target.absolute().parent
        folder.mkdir(parents=True, exist_ok=True)
        number = 0
        while True:
            path = folder / f".{self._target.absolute().name}.{number}.ciao-part"
            number += 1
            if not path.exists():
                yield path

    def part(self) -> Path:
        """Return the path for a file that is not whole yet."""
        return next(self._parts)

    def place(self, path: str, part: Path, digest: str) -> None:
        """Give a whole file its name."""
        if not incoming_files.is_asked(path, [self._name]):  # not even if the transfer lets it pass
            raise BackendError(f"{visible(path)} is not below {visible(self._name)}.")
        below = path.removeprefix(self._name).lstrip("/")
        place = self._target / path if self._into else self._target / below
        if not below and not self._into:
            place = self._target
        place.parent.mkdir(parents=True, exist_ok=True)
        self.size += part.stat().st_size
        self.count += 1
        part.replace(place)
