"""Layers: packed files that are the same bytes whenever the same files are packed."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from ciao_kernel.errors import UsageError

_MTIME = 1_000_000_000
"""A moment after 1980, before which no zip file can be: Python packs some."""
_WHITEOUT = ".wh."
"""Names that begin so delete what lies below, and are never seen in the image."""


@dataclass(frozen=True, slots=True)
class File:
    """One file of a layer.

    Args:
        path: In the image, from ``/`` on, without that; one that ends with ``/`` is a folder.
        content: Its bytes, or where they lie on this machine.
        executable: Whether it may be run.
    """

    path: str
    content: bytes | Path
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """A packed layer.

    Args:
        digest: Of its packed bytes: its name in a registry.
        diff_id: Of its unpacked bytes: its name in an image's config.
        size: Packed bytes.
        content: The packed bytes, or the file that holds them.
    """

    digest: str
    diff_id: str
    size: int
    content: bytes | Path

    def open(self) -> bytes | IO[bytes]:
        """What a request takes as its body."""
        return self.content if isinstance(self.content, bytes) else self.content.open("rb")


def pack(
    files: Iterable[File],
    place: Path | None = None,
    writable: Iterable[str] = (),
    heard: Callable[[], None] = lambda: None,
) -> Layer:
    """Pack files into a layer; the folders above them belong to it, too.

    Args:
        files: In any order; of two of one path the last one counts.
        place: File that gets the layer; None keeps it in memory.
        writable: Folders that every user may write to: nobody knows as whom the image will run.
        heard: Is called for each piece that is packed; what it raises ends the work.

    Raises:
        UsageError: A path cannot be one of an image's.
        OSError: A file cannot be read, or the place is full.
    """
    import gzip  # not before it is needed: a kernel reads the builders when it starts
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
        packed = _Counted(out)
        with gzip.GzipFile(
            filename="", fileobj=packed, mode="wb", compresslevel=6, mtime=0
        ) as zipped:
            raw = _Counted(zipped, heard)
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
        raise UsageError(f"{path!r} is no path in an image.")
    if any(part.startswith(_WHITEOUT) for part in parts):
        raise UsageError(
            f"{path!r} cannot be put into an image: there, names that begin with {_WHITEOUT} "
            "delete files.",
            "Give it another name, or leave it out of %files.",
        )
    if twice:
        raise UsageError(f"{path!r} is a file and a folder at once.")


def _add(tar: Any, member: Any, file: File) -> None:
    import io

    member.mode = 0o755 if file.executable else 0o644
    if isinstance(file.content, bytes):
        member.size = len(file.content)
        tar.addfile(member, io.BytesIO(file.content))
        return
    with file.content.open("rb") as opened:
        member.size = opened.seek(0, io.SEEK_END)
        opened.seek(0)
        try:
            tar.addfile(member, opened)
        except OSError as error:
            if error.errno is not None:
                raise
            reason = "it became shorter while it was read"
            raise OSError(errno.EIO, reason, str(file.content)) from None


class _Counted:
    """A file that is written to, with the digest and size of what was."""

    def __init__(self, file: Any, heard: Callable[[], None] = lambda: None) -> None:
        self._file = file
        self._heard = heard
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def hash(self) -> str:
        return self._hash.hexdigest()

    def write(self, data: bytes) -> int:
        self._heard()
        self._hash.update(data)
        self.size += len(data)
        self._file.write(data)
        return len(data)

    def flush(self) -> None:
        self._file.flush()
