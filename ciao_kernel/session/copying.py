"""Copies files between this machine and one replica of a job, when the user asks for it.

Replicas of this machine share a folder with it, which is read directly; in a pod a command sends
or takes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import posixpath
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

from ciao_kernel.config import Settings
from ciao_kernel.delivery import replica_files, transfers
from ciao_kernel.delivery.fetch import Fetch
from ciao_kernel.delivery.replica_files import Found
from ciao_kernel.delivery.transfers import python_of
from ciao_kernel.errors import BackendError, UsageError
from ciao_kernel.model import Job, Replica
from ciao_kernel.plugins import Backend
from ciao_kernel.session.copied import Copied, listed_faults, only_left_out
from ciao_kernel.session.copy_target import CopyTarget, folder, writing
from ciao_kernel.visible_text import visible

_CHUNK = 4 * 1024 * 1024
_ALL = "**"
"""Word for all that is in a folder, also what begins with a dot."""


def _new(path: Path) -> BinaryIO:
    return os.fdopen(replica_files.create_part(str(path)), "wb")


def copy_file(
    source: Path,
    target: Path,
    stop: threading.Event,
    create: Callable[[Path], BinaryIO] = _new,
) -> int:
    """Copy a file of this machine, until a stop is asked for; return its mode.

    Raises:
        OSError: The source cannot be read, or the target, whose name the error then has, cannot be
            written.
    """
    with source.open("rb") as original:
        with _naming(target):
            copy = create(target)
        try:
            while not stop.is_set() and (chunk := original.read(_CHUNK)):
                with _naming(target):
                    copy.write(chunk)
        finally:
            with _naming(target):
                copy.close()
        return os.fstat(original.fileno()).st_mode


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Give an OSError the name of its file, which those of writes lack."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


async def take(
    backend: Backend,
    job: Job,
    replica: Replica,
    source: str,
    target: Path,
    settings: Settings,
    copy: Callable[[Path, Path, threading.Event], int] = copy_file,
) -> Copied:
    """Copy a file or folder of a replica to this machine; return what came.

    Args:
        backend: The job's backend.
        job: The job.
        replica: The replica.
        source: Path there, absolute or relative to the program's folder; a folder's ``.`` is all
            that is in it.
        target: Path here; if it is a folder, into it.
        settings: Interpreter and limit.
        copy: Copies a file of a replica of this machine.

    Raises:
        BackendError: It does not exist there, or it cannot be fetched.
        UsageError: It is the root of the file system.
    """
    asked, name = _asked(job, source)
    with writing(target):
        into = CopyTarget(target, name)
    if not job.on_cluster:
        base = str(Path(job.workdir, asked))
        found = await asyncio.to_thread(replica_files.find, base, [name])
        found = await _copy_files(base, found, into, target, copy)
        faults, left_out = found.faults, found.left_out
    else:
        one = Fetch(
            partial(backend.execute, job, replica),
            python_of(job, settings.cluster_python),
            [name],
            into,
            int(settings.fetch_limit),
            base=_in_pod(job, asked),
        )
        await one.run()
        faults, left_out = one.listing.faults, list(one.listing.left_out)
    if faults and not into.count:
        why = listed_faults(faults)
        raise BackendError(f"nothing could be copied from {replica} of {job.name}: {why}.")
    if left_out and not into.count:
        # A pod does not tell what a link leads to. Path.is_dir raises in folders that are closed.
        may_be = job.on_cluster or os.path.isdir(Path(job.workdir, asked, name))  # noqa: PTH112
        all_of_it = source.rstrip("/") + "/." if left_out == [name] and may_be else ""
        raise only_left_out(source, left_out, all_of_it)
    if not into.count:
        where = f"Paths are relative to {job.workdir}."
        if name == _ALL:
            there = "the program's folder" if asked == "." else f"folder {visible(asked)}"
            text = f"there are no files in {there} of {replica} of {job.name}, or it does not exist"
            raise BackendError(f"{text}.", where)
        raise BackendError(f"{replica} of {job.name} has no file {visible(source)}.", where)
    return Copied(into.count, into.size, faults, left_out)


async def give(
    backend: Backend,
    job: Job,
    replica: Replica,
    source: Path,
    target: str,
    settings: Settings,
    copy: Callable[[Path, Path, threading.Event], int] = copy_file,
) -> Copied:
    """Copy a file or folder of this machine to a replica; return what went.

    The parameters are those of :func:`take`.

    Raises:
        BackendError: It does not exist here, or it cannot be sent.
    """
    parent, name = str(source.absolute().parent), source.absolute().name
    if job.on_cluster:
        execute = partial(backend.execute, job, replica)
        python = python_of(job, settings.cluster_python)
        found = await transfers.send(execute, python, source, _in_pod(job, target or "."))
    else:
        found = await asyncio.to_thread(replica_files.find, parent, [name])
        if found.sizes:
            place = folder(Path(job.workdir), target)
            with writing(place):
                into = CopyTarget(place, name)
            found = await _copy_files(parent, found, into, place, copy)
    if found.faults and not found.sizes:
        why = found.faults.get(name) or listed_faults(found.faults)
        raise BackendError(f"{visible(str(source))} cannot be read: {why}.")
    if found.left_out and not found.sizes:
        raise only_left_out(str(source), found.left_out)
    if not found.sizes:
        raise BackendError(f"there is no file {visible(str(source))}.")
    size = sum(found.sizes.values())
    return Copied(len(found.sizes), size, found.faults, found.left_out)


def _asked(job: Job, source: str) -> tuple[str, str]:
    """Return the folder of a path in a replica, and the word for its files there.

    Raises:
        UsageError: It is the root of the file system.
    """
    base, _, name = source.rstrip("/").rpartition("/")
    base = base or ("/" if source.startswith("/") else ".")
    if name == "..":
        base, name = f"{base}/..", ""
    if name not in ("", "."):
        return base, name
    if not posixpath.normpath(posixpath.join(job.workdir, base)).strip("/"):
        raise UsageError("/ is the whole file system, which cp does not copy.", "Name a folder.")
    return base, _ALL


def _in_pod(job: Job, path: str) -> str:
    """Return a path for a command in a pod, which runs in the folder of a warm job's agent."""
    return posixpath.join(job.workdir, path) if job.warm_run else path


async def _copy_files(
    base: str,
    found: Found,
    into: CopyTarget,
    target: Path,
    copy: Callable[[Path, Path, threading.Event], int],
) -> Found:
    """Copy files of this machine; return those that came, and the others with their faults.

    Raises:
        BackendError: The target cannot be written.
    """
    faults = dict(found.faults)
    for path in found.sizes:
        with writing(target):
            part = into.part(path)
        try:
            mode = await _copied(Path(base, path), part, copy)
        except OSError as error:
            if str(error.filename) == str(part):
                with writing(target):
                    raise
            faults[path] = replica_files.reason(error)
            continue
        try:
            with writing(target):
                into.place(path, part, "", mode)
        except BackendError:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise
    sizes = {path: size for path, size in found.sizes.items() if path not in faults}
    return found._replace(sizes=sizes, faults=faults)


async def _copied(
    source: Path, part: Path, copy: Callable[[Path, Path, threading.Event], int]
) -> int:
    """Copy a file in a thread, so that an interrupt can end it; return its mode.

    An error leaves no part.

    Raises:
        OSError: It cannot be read or written.
    """
    stop = threading.Event()
    copying = asyncio.ensure_future(asyncio.to_thread(copy, source, part, stop))
    try:
        return await asyncio.shield(copying)
    except BaseException:
        stop.set()
        await asyncio.wait({copying})  # the part is removed next, so the thread must have left it
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
