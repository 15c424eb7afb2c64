"""Image layers, packed reproducibly: the same files always give the same bytes."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from ciao_kernel.delivery.input.held_file import open_checked
from ciao_kernel.errors import UsageError

_MTIME = 1_000_000_000
"""A time after 1980, the earliest time in zip files: Python programs may zip the files."""
_WHITEOUT = ".wh."
"""Prefix of names that delete files of the layers below, and are not visible in the image."""


@dataclass(frozen=True, slots=True)
class File:
    """One file of a layer.

    Args:
        path: Path in the image, without the leading ``/``; a path that ends with ``/`` is a folder.
        content: Bytes of the file, or the path of a file on this machine, without links: a file
            that has become a link is not read.
        executable: The file may be executed.
        writable: Every user may write to the file, since the image's user is not known.
    """

    path: str
    content: bytes | Path
    executable: bool = False
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """A packed layer.

    Args:
        digest: Digest of the packed bytes, which is the layer's name in a registry.
        diff_id: Digest of the unpacked bytes, which is the layer's name in an image's config.
        size: Number of packed bytes.
        content: The packed bytes, or the file that holds them.
    """

    digest: str
    diff_id: str
    size: int
    content: bytes | Path

    def open(self, start: int = 0) -> bytes | IO[bytes]:
        """Return the body for a request, from a byte on."""
        if isinstance(self.content, bytes):
            return self.content[start:]
        opened = self.content.open("rb")
        opened.seek(start)
        return opened


def pack(
    files: Iterable[File],
    place: Path | None = None,
    writable: Iterable[str] = (),
    on_progress: Callable[[int], None] = lambda done: None,
) -> Layer:
    """Pack files and their parent folders into a layer.

    Args:
        files: The files, in any order; if two have the same path, the last one counts.
        place: File for the layer; None keeps it in memory.
        writable: Folders that every user may write to, since the image's user is not known.
        on_progress: Called with the bytes so far for each packed piece; an exception that it
            raises ends the work.

    Raises:
        UsageError: A path is not valid in an image.
        OSError: A file cannot be read, or the disk is full.
    """
    import gzip  # imported late: a kernel imports the builders when it starts
    import io
    import tarfile

    given = {file.path.lstrip("/"): file for file in files}
    by_path = {path: file for path, file in given.items() if not path.endswith("/")}
    open_to_all = {path.strip("/") for path in writable}
    folders = {str(up) for path in given for up in PurePosixPath(path).parents} | open_to_all
    folders |= {path.rstrip("/") for path in given.keys() - by_path.keys()}
    for path in folders - {"."} | by_path.keys():
        _check(path, path in folders and path in by_path)
    out: IO[bytes] = place.open("w+b") if place else io.BytesIO()
    try:
        packed = _HashingWriter(out)
        with gzip.GzipFile(
            filename="", fileobj=packed, mode="wb", compresslevel=6, mtime=0
        ) as zipped:
            raw = _HashingWriter(zipped, on_progress)
            target = cast(IO[bytes], raw)
            with tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as tar:
                for path in sorted((folders - {".", ""}) | by_path.keys()):
                    member = tarfile.TarInfo(path)
                    member.mtime = _MTIME
                    if path in by_path:
                        _add(tar, member, by_path[path])
                    else:
                        member.type = tarfile.DIRTYPE
                        member.mode = 0o777 if path in open_to_all else 0o755
                        tar.addfile(member)
        content = place or out.getvalue()  # type: ignore[attr-defined]
    finally:
        if place:
            out.close()
    return Layer(f"sha256:{packed.hash}", f"sha256:{raw.hash}", packed.size, content)


def _check(path: str, twice: bool) -> None:
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise UsageError(f"{path!r} is not a valid path in an image.")
    if any(part.startswith(_WHITEOUT) for part in parts):
        raise UsageError(
            f"{path!r} cannot be put into an image: names that begin with {_WHITEOUT} "
            "delete files there.",
            "Give it another name, or leave it out of %files.",
        )
    if twice:
        raise UsageError(f"{path!r} is a file and a folder at once.")


def _add(tar: Any, member: Any, file: File) -> None:
    import io

    member.mode = (0o755 if file.executable else 0o644) | (0o222 if file.writable else 0)
    if isinstance(file.content, bytes):
        member.size = len(file.content)
        tar.addfile(member, io.BytesIO(file.content))
        return
    with open_checked(file.content) as opened:
        member.size = opened.seek(0, io.SEEK_END)
        opened.seek(0)
        try:
            tar.addfile(member, opened)
        except OSError as error:
            if error.errno is not None:
                raise
            reason = "it became shorter while it was read"
            raise OSError(errno.EIO, reason, str(file.content)) from None


class _HashingWriter:
    """A file for writing that computes the digest and the size of its data."""

    def __init__(self, file: Any, on_progress: Callable[[int], None] = lambda done: None) -> None:
        self._file = file
        self._on_progress = on_progress
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def hash(self) -> str:
        return self._hash.hexdigest()

    def write(self, data: bytes) -> int:
        self._on_progress(self.size)
        self._hash.update(data)
        self.size += len(data)
        self._file.write(data)
        return len(data)

    def flush(self) -> None:
        self._file.flush()
