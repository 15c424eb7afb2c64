"""The cell's own layers: packed, and sent so that an interrupt is heard."""

from __future__ import annotations

import errno
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self, cast

from ciao_kernel.builders.oci.layer import File, Layer, pack
from ciao_kernel.errors import EnvironmentFault, SourceError
from ciao_kernel.model import Source, SourceFile

WORKDIR = "/ciao"
"""As with a ConfigMap, so that a program finds itself in the same place by either builder."""
_PIECE = 16 << 10
"""Bytes that are sent before an interrupt is heard."""
_IN_MEMORY = 16 << 20
"""Bytes of files above which their layer is packed to the disk."""


def packed(source: Source, folder: Path, heard: Callable[[], None]) -> tuple[Layer, ...]:
    """The layers of a cell: ``%files`` below, which stay as they are while the cell is edited.

    Args:
        source: The cell.
        folder: Gets what is too large for the memory.
        heard: Is called for each piece that is packed; what it raises ends the work.

    Raises:
        SourceError: A file cannot be read.
        EnvironmentFault: The disk is full.
    """
    code = source.entry, *source.modules
    mine = {file.path for file in code}
    below = [file for file in source.files if file.path not in mine]
    named = (("files", below), ("code", code)) if below else (("code", code),)
    return tuple(_layer(files, folder / f"{name}.tar.gz", heard) for name, files in named)


def _layer(files: Sequence[SourceFile], place: Path, heard: Callable[[], None]) -> Layer:
    large = sum(file.size for file in files) > _IN_MEMORY
    try:
        taken = []
        for file in files:
            content = file.origin if file.data is None else file.data
            assert content is not None
            runs = file.origin is not None and bool(file.origin.stat().st_mode & 0o100)
            taken.append(File(f"{WORKDIR}/{file.path}", content, runs))
        return pack(taken, place if large else None, [WORKDIR], heard)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise EnvironmentFault(
                f"no space is left in {place.parent.parent} to pack the cell's files.",
                "Free some, or take less along with %files.",
            ) from None
        raise SourceError(
            f"{error.filename} cannot be read: {error.strerror}.",
            "Mend it, or leave it out of %files.",
        ) from None


@dataclass(frozen=True, slots=True)
class Sent(Layer):
    """A layer whose upload ends when its cell is interrupted."""

    heard: Callable[[], None]

    def open(self) -> bytes | IO[bytes]:
        """What a request takes as its body."""
        if isinstance(self.content, bytes) and self.size <= _PIECE:
            return self.content
        content = self.content
        file = io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")
        return cast(IO[bytes], Body(file, self.heard))


class Body:
    """A file that says when it is read, and gives little at a time: lines may be slow."""

    def __init__(self, file: IO[bytes], heard: Callable[[], None]) -> None:
        self._file, self._heard = file, heard
        self.seek, self.tell, self.close = file.seek, file.tell, file.close

    def read(self, size: int = -1) -> bytes:
        """What a request sends next."""
        self._heard()
        return self._file.read(_PIECE if size < 0 else min(size, _PIECE))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
