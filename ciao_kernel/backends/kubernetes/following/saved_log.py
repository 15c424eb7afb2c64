"""The saved log of one replica, and a stream of it that begins somewhere in the file.

A follower reads a log from the first line that the node still has, so it reads again what is saved.
Only what the file does not have is appended. A stream that differs from the file is another log, as
of a pod that was created again, or a part whose place nobody knows: it gets a file of its own, and
the old one stays beside it. So nothing that was saved is lost, whenever a follower is interrupted.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ciao_kernel import private_files

ENOUGH = 1 << 16
"""Bytes from whose place in a file that of the stream is certain."""
_PIECE = 1 << 16
_LINE = 4096
"""Bytes of its first line by which the place of a stream is looked for."""
_CANDIDATES = 10_000
"""Lines like it that are looked at."""


class SavedLog:
    """One file, and the stream of one follower.

    Args:
        path: The file; it may exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        """Descriptor of the file; None as long as there is none."""
        self._placed = False
        self._begin = self._at = 0
        """Where the stream begins in the file, and how far it is the same."""
        self._ahead = bytearray()
        """The rest of the stream, which the file does not have."""
        self._differs = False
        self._unlike: tuple[int, int] | None = None
        """Device and inode of a file that took the place of this one and is of another stream."""

    def add(self, data: bytes, *, write: bool) -> None:
        """Take the next bytes of the stream.

        Args:
            data: The bytes.
            write: Whether they are appended to the file if it does not have them. Otherwise another
                process is to do that; they are held until it has, or until this one may.

        Raises:
            OSError, private_files.Untrusted: The file cannot be read or written.
        """
        self._ahead += data
        if not self._open(create=write):
            return
        self._compare()
        if self._differs:
            self._follow_replacement()
        if write:
            if self._differs:
                self._begin_anew()
                self._open(create=True)
            self._append()

    @property
    def held(self) -> int:
        """Bytes that neither the file has nor this process may write."""
        return len(self._ahead)

    def close(self, *, complete: bool) -> None:
        """End the stream.

        Args:
            complete: Whether it was a whole log: a file that has more then is another log.

        Raises:
            OSError: The file of another log cannot be put aside.
        """
        try:
            more = 0 if self._file is None else os.fstat(self._file).st_size - self._at
            if complete and more > 0 and not self._differs:
                self._begin_anew()
        finally:
            self._release()

    def _open(self, *, create: bool) -> bool:
        """Open the file, and return whether there is one."""
        if self._file is None:
            with contextlib.suppress(FileNotFoundError):
                self._file = private_files.open_to_append(self._path, read=True, create=create)
        return self._file is not None

    def _follow_replacement(self) -> None:
        """Go on in the file by which another process has replaced this one, if it has the stream.

        A file that was only renamed, as by the next try of the job, is written to its end.
        """
        assert self._file is not None  # it is open
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return
        place, own = (now.st_dev, now.st_ino), os.fstat(self._file)
        if place in ((own.st_dev, own.st_ino), self._unlike):
            return
        other = private_files.open_to_append(self._path, read=True, create=False)
        length = self._at - self._begin
        if not _same(self._file, self._begin, other, length):
            os.close(other)
            self._unlike = place
            return
        self._release()
        self._file, self._differs, self._begin, self._at = other, False, 0, length
        self._compare()

    def _compare(self) -> None:
        """Skip the bytes that the file has."""
        assert self._file is not None  # it is open
        if not self._placed and self._ahead:
            found = _place(self._file, bytes(self._ahead[:ENOUGH]))
            self._placed, self._differs = True, found is None
            self._begin = self._at = found or 0
        while self._ahead and not self._differs:
            part = os.pread(self._file, min(len(self._ahead), _PIECE), self._at)
            if not part:
                return
            same = len(part)
            if not self._ahead.startswith(part):
                pairs = enumerate(zip(part, self._ahead, strict=False))
                same = next(at for at, (one, other) in pairs if one != other)
                self._differs = True
            del self._ahead[:same]
            self._at += same

    def _append(self) -> None:
        assert self._file is not None  # it is open
        with memoryview(self._ahead) as text:
            done = 0
            while done < len(text):
                done += os.write(self._file, text[done:])
        self._at += done
        self._ahead.clear()

    def _begin_anew(self) -> None:
        """Give the stream a file of its own; the old one stays beside it."""
        assert self._file is not None  # something differs from it
        own = self._path.with_suffix(".part")
        own.unlink(missing_ok=True)
        try:
            with private_files.create(own) as new:
                for at in range(self._begin, self._at, _PIECE):
                    new.write(os.pread(self._file, min(_PIECE, self._at - at), at))
        except OSError:
            own.unlink(missing_ok=True)
            raise
        with contextlib.suppress(FileNotFoundError):  # another follower has named it after its try
            self._path.replace(_earlier(self._path))
        own.replace(self._path)
        self._release()
        self._differs, self._begin, self._at = False, 0, self._at - self._begin

    def _release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _earlier(path: Path) -> Path:
    """Return a free name for a file that a new one replaces."""
    found, number = path.with_suffix(".earlier.log"), 1
    while found.exists():
        number += 1
        found = path.with_suffix(f".earlier-{number}.log")
    return found


def beginning(path: Path, data: bytes, *, whole: bool = False) -> int:
    """Return the bytes that a file has before a stream; 0 if it has none, or that is not certain.

    It is certain if all of the file's end is the beginning of the stream, or much of it.

    Args:
        path: The file; it may be missing.
        data: The first bytes of the stream, :data:`ENOUGH` of them if it has so many.
        whole: Whether they are all that the stream has, and the file may have newer ones.
    """
    with contextlib.suppress(OSError, private_files.Untrusted):
        saved = private_files.open_file(path)
        try:
            place = _place(saved, data[:ENOUGH]) or 0
            reaches = place + len(data) >= os.fstat(saved).st_size
            return place if whole or reaches or len(data) >= ENOUGH else 0
        finally:
            os.close(saved)
    return 0


def _place(saved: int, data: bytes) -> int | None:
    """Return where a stream begins in a file; None if it does not, or may at several places.

    Args:
        saved: Descriptor of the file.
        data: The first bytes of the stream.
    """
    import mmap

    size = os.fstat(saved).st_size
    if not size:
        return 0
    if _is_at(saved, data, 0, size):
        return 0  # almost always: the node still has the first line
    line = data[: data.find(b"\n", 0, _LINE) + 1] or data[:_LINE]
    found: list[int] = []
    with mmap.mmap(saved, 0, access=mmap.ACCESS_READ) as text:
        at = 0
        for _ in range(_CANDIDATES):
            if (at := text.find(b"\n" + line, at)) < 0:
                return found[0] if len(found) == 1 else None
            at += 1
            if _is_at(saved, data, at, size):
                found.append(at)
    return None


def _is_at(saved: int, data: bytes, at: int, size: int) -> bool:
    return os.pread(saved, min(len(data), size - at), at) == data[: size - at]


def _same(one: int, begin: int, other: int, length: int) -> bool:
    """Return whether a file begins with a part of another one.

    Args:
        one: Descriptor of the file with the part.
        begin: Where the part begins.
        other: Descriptor of the file that may begin so.
        length: Bytes of the part.
    """
    for at in range(0, length, _PIECE):
        size = min(_PIECE, length - at)
        if os.pread(one, size, begin + at) != os.pread(other, size, at):
            return False
    return True
