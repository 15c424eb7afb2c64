"""Layers of the cell: packs them, and sends them so that an interrupt takes effect soon."""

from __future__ import annotations

import errno
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Self, cast

from ciao_kernel.errors import EnvironmentFault, SourceError
from ciao_kernel.model import Source, SourceFile
from ciao_kernel.oci.layer import File, Layer, pack

WORKDIR = "/ciao"
"""The same folder as with a ConfigMap, so that the program's path does not depend on the
builder."""
_PIECE = 16 << 10
"""Bytes sent between two checks for an interrupt."""
_IN_MEMORY = 16 << 20
"""Total size of files, in bytes, above which their layer is packed on disk."""


def packed(
    source: Source, folder: Path, on_progress: Callable[[int, int], None]
) -> tuple[Layer, ...]:
    """Pack the layers of a cell: ``%files`` come first, as they rarely change between edits.

    Every user may write to ``%files`` and to the folders of the cell, as with a ConfigMap: the
    program need not be root. The program, its modules and ciao's own files are only read.

    Args:
        source: The cell.
        folder: Folder for layers that are too large for memory.
        on_progress: Called for each piece with the bytes that are packed and those of all files;
            an exception of it ends the work.

    Raises:
        SourceError: A file cannot be read.
        EnvironmentFault: The disk is full.
    """
    code = source.entry, *source.modules, *source.own
    mine = {file.path for file in code}
    below = [file for file in source.files if file.path not in mine]
    named = (("files", below), ("code", code)) if below else (("code", code),)
    total = sum(file.size for _, files in named for file in files)
    before, layers = 0, []
    for name, files in named:
        start = before

        def note(done: int, start: int = start) -> None:
            on_progress(min(start + done, total), total)  # names and gaps in an archive count too

        place = folder / f"{name}.tar.gz"
        layers.append(_layer(files, place, _folders(files, source.own), name == "files", note))
        before += sum(file.size for file in files)
    return tuple(layers)


def _folders(files: Sequence[SourceFile], own: Sequence[SourceFile]) -> list[str]:
    """Return the folders of files in the image, without those that hold only ciao's own files."""
    theirs = {file.path for file in files} - {file.path for file in own}
    above = {up for path in theirs for up in PurePosixPath(WORKDIR, path).parents}
    return [WORKDIR, *(str(up) for up in above if PurePosixPath(WORKDIR) in up.parents)]


def _layer(
    files: Sequence[SourceFile],
    place: Path,
    folders: Sequence[str],
    writable: bool,
    on_progress: Callable[[int], None],
) -> Layer:
    large = sum(file.size for file in files) > _IN_MEMORY
    try:
        taken = []
        for file in files:
            content = file.origin if file.data is None else file.data
            assert content is not None
            runs = file.origin is not None and bool(file.origin.stat().st_mode & 0o100)
            taken.append(File(f"{WORKDIR}/{file.path}", content, runs, writable))
        return pack(taken, place if large else None, folders, on_progress)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise EnvironmentFault(
                f"no space is left in {place.parent.parent} to pack the job's files.",
                "Free some space, or send fewer files with %files.",
            ) from None
        raise SourceError(
            f"{error.filename} cannot be read: {error.strerror}.",
            "Fix the file, or leave it out of %files.",
        ) from None


@dataclass(frozen=True, slots=True)
class Sent(Layer):
    """Layer whose upload ends when its cell is interrupted."""

    on_progress: Callable[[int], None]
    """Called with the number of bytes sent so far; an exception that it raises ends the upload."""

    def open(self, start: int = 0) -> bytes | IO[bytes]:
        """Return the body of an upload request, from a byte on."""
        found = super(Sent, self).open(start)  # without arguments, slots break it
        if isinstance(found, bytes):
            if self.size <= _PIECE:
                return found
            found = io.BytesIO(found)
            return cast(IO[bytes], Body(found, self.on_progress, start))
        return cast(IO[bytes], Body(found, self.on_progress))


class Body:
    """File that reports each read and returns small pieces, because the network may be slow.

    Args:
        file: The file.
        on_progress: Called with the place of each read in the blob: the bytes before it are sent.
        start: Bytes of the blob before the file's begin.
    """

    def __init__(self, file: IO[bytes], on_progress: Callable[[int], None], start: int = 0) -> None:
        self._file, self._on_progress, self._start = file, on_progress, start
        self.seek, self.tell, self.close = file.seek, file.tell, file.close

    def read(self, size: int = -1) -> bytes:
        """Return the next piece of the upload."""
        self._on_progress(self._start + self._file.tell())
        return self._file.read(_PIECE if size < 0 else min(size, _PIECE))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
