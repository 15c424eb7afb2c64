"""The builder of the local backend: a folder that holds the program and what goes with it."""

from __future__ import annotations

import asyncio
import errno
import shutil
from pathlib import Path

from ciao_kernel.errors import EnvironmentFault
from ciao_kernel.model import Artifact, Emit, Notice, Source

_ROOM = 16 * 1024 * 1024
"""Bytes that must stay free for logs."""
_LARGE = 256 * 1024 * 1024


class FolderBuilder:
    """``%builder=folder``: copies the source into the job's folder."""

    name = "folder"
    backend = "local"

    async def build(self, source: Source, python: str, folder: Path, emit: Emit) -> Artifact:
        """Copy all files; the program keeps its bytes, whatever its line ends are."""
        work = folder / "work"
        size = sum(file.size for file in source.all())
        free = shutil.disk_usage(folder).free
        if free < size + _ROOM:
            raise EnvironmentFault(
                f"no room for the job: it needs {_mib(size + _ROOM)} in {folder}, "
                f"and {_mib(free)} are free.",
                "Free some space there (`ciao delete --finished` removes old jobs), or move "
                "ciao's folder: `%ciao config storage=/some/disk`.",
            )
        if size > _LARGE:
            emit(Notice(f"copying {_mib(size)} of files …"))
        try:
            await asyncio.to_thread(_copy, source, work)
        except OSError as error:
            raise _unwritable(error, folder) from error
        return Artifact(source, python, str(work))


def _copy(source: Source, work: Path) -> None:
    work.mkdir()
    for file in source.all():
        target = work / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.data is not None:
            target.write_bytes(file.data)
        elif file.origin is not None:
            # Not copy2: a file's owner and times are the user's business, its mode is ours too.
            shutil.copy(file.origin, target)


def _unwritable(error: OSError, folder: Path) -> EnvironmentFault:
    if error.errno == errno.ENOSPC:
        return EnvironmentFault(
            f"the disk is full: {folder} takes no more.",
            "Free some space; `ciao delete --finished` removes old jobs.",
        )
    return EnvironmentFault(
        f"the job's files cannot be copied: {error.strerror} ({error.filename}).",
        "Mend the file's rights, or leave it out of %files.",
    )


def _mib(size: int) -> str:
    return f"{size / 1024 / 1024:,.0f} MiB"
