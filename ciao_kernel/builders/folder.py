"""Builder of the local backend: puts the program and its files into the job's folder."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import stat
import threading
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from ciao_kernel import exhaustion, private_files
from ciao_kernel.config import Settings
from ciao_kernel.delivery import site_bytecode
from ciao_kernel.delivery.input.held_file import open_checked
from ciao_kernel.errors import EnvironmentFault
from ciao_kernel.model import Artifact, BuildSpec, Notice, Source
from ciao_kernel.plugins import Build, Emit, Step

_ROOM = 16 * 1024 * 1024
"""Bytes that must stay free on the disk for logs."""
_LARGE = 256 * 1024 * 1024
_CHUNK = 4 * 1024 * 1024


class FolderBuilder:
    """``%builder=folder``: copies the source into the job's folder."""

    name = "folder"
    backend = "local"
    # The backend installs packages, and tells which of the other directives have no effect.
    supported_fields = frozenset(field.name for field in fields(BuildSpec))

    def __init__(self, settings: Settings) -> None:
        pass

    async def build(self, ask: Build, emit: Emit) -> Artifact:
        """Copy all files; line ends of the program are not converted."""
        source, folder = ask.source, ask.folder
        work = folder / "work"
        size = sum(file.size for file in source.all())
        free = shutil.disk_usage(folder).free
        if free < size + _ROOM:
            raise EnvironmentFault(
                f"no room for the job: it needs {_mib(size + _ROOM)} in {folder}, "
                f"and {_mib(free)} are free.",
                "Free some space there (`%ciao delete --finished` removes old jobs), or move "
                "ciao's folder: `%ciao config storage=/some/disk`.",
            )
        if size > _LARGE:
            emit(Notice(f"copying {_mib(size)} of files …"))
        stop = threading.Event()
        done = 0

        def copied(more: int) -> None:
            nonlocal done
            done += more
            step.at(done, size)

        step = Step(emit, "copying files", timed=False)
        copying = asyncio.ensure_future(asyncio.to_thread(_copy, source, work, stop, copied))
        try:
            with step:
                await asyncio.shield(copying)
        except asyncio.CancelledError:
            # The folder is removed next, so the thread must have left it.
            stop.set()
            while not copying.done():
                with contextlib.suppress(asyncio.CancelledError):  # a second interrupt
                    await asyncio.wait({copying})
            raise
        except OSError as error:
            raise _unwritable(error, folder) from error
        return Artifact(source, ask.python, str(work))


def _copy(source: Source, work: Path, stop: threading.Event, copied: Callable[[int], None]) -> None:
    private_files.make_folder(work)
    for file in source.all():
        target = work / file.path
        if not target.parent.exists():
            private_files.make_folders(target.parent, work)
        if file.data is not None:
            with private_files.create(target) as copy:
                copy.write(file.data)
            copied(len(file.data))
        elif file.origin is not None:
            _copy_file(file.origin, target, stop, copied)
        if stop.is_set():
            return
    site_bytecode.write(source, work)


def _copy_file(
    origin: Path, target: Path, stop: threading.Event, copied: Callable[[int], None]
) -> None:
    """Copy bytes and the right to run a program, but not owner and times."""
    with open_checked(origin) as source:
        executable = bool(os.fstat(source.fileno()).st_mode & stat.S_IXUSR)
        with private_files.create(target, executable=executable) as copy:
            while not stop.is_set() and (chunk := source.read(_CHUNK)):
                copy.write(chunk)
                copied(len(chunk))


def _unwritable(error: OSError, folder: Path) -> EnvironmentFault:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return EnvironmentFault(
            f"the disk is full: no space is left in {folder}.",
            "Free some space; `%ciao delete --finished` removes old jobs.",
        )
    return exhaustion.fault_of(error) or EnvironmentFault(
        f"the job's files cannot be copied: {error.strerror} ({error.filename}).",
        "Fix the file's permissions, or leave it out of %files.",
    )


def _mib(size: int) -> str:
    return f"{size / 1024 / 1024:,.0f} MiB"
