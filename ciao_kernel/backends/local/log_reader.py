"""Reads the growing log of one replica of a local job, and cuts it into whole lines."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from ciao_kernel import private_files
from ciao_kernel.model import Notice, Output, Replica

_READ = 256 * 1024
_LONGEST = 16 << 20
"""Bytes after which an endless line is cut, to limit the memory."""
_BAR = 1 << 16
_TAIL = 4096
"""Bytes of an unfinished line that are passed to a live view."""
_KNOWN = 64
"""Bytes at the start and at the end of what was read that are compared: another text in one of both
places means that the log was written anew, perhaps with the same first words."""


class LogReader:
    """Reads one growing file and cuts it into whole lines.

    Args:
        replica: Replica that writes the log.
        path: The file; it may not exist yet.
    """

    def __init__(self, replica: Replica, path: Path) -> None:
        self.replica = replica
        self.more = False
        """True if the last read did not reach the end."""
        self.failed = False
        """True if the last read failed, as on a file server that is away; the next may succeed."""
        self._path = path
        self._descriptor: int | None = None
        self._offset = 0
        self._line = b""
        """The unfinished line."""
        self._head = b""
        """The first bytes that were read."""
        self._last = b""
        """The last ones."""
        self._told = False
        """True if it was said that the file was truncated; a program may do it for each line."""

    def read(self) -> Iterator[Output | Notice]:
        """Yield new output: at most one chunk, so that other replicas get their turn."""
        self.more, self.failed = False, False
        try:
            if self._descriptor is None:
                self._descriptor = private_files.open_file(self._path)
                os.lseek(self._descriptor, self._offset, os.SEEK_SET)
            chunk = os.read(self._descriptor, _READ)
            kept = self._kept(self._descriptor)
        except (FileNotFoundError, private_files.Untrusted):
            return  # Nothing that a replica writes to: a pipe would block all followers.
        except OSError:
            # A training must not end because its log cannot be read for a while.
            self.failed = True
            self.close()
            return
        self.more = len(chunk) == _READ
        if kept < self._offset:
            yield from self._start_again(kept)
            return
        if not chunk:
            return
        self._head += chunk[: _KNOWN - len(self._head)]
        self._last = (self._last + chunk[-_KNOWN:])[-_KNOWN:]
        self._offset += len(chunk)
        cut = chunk.rfind(b"\n") + 1
        if cut:
            data, self._line = self._line + chunk[:cut], chunk[cut:]
        else:
            data, self._line = b"", self._line + chunk
        if len(self._line) > _BAR:
            self._line = _last_state(self._line)
        if len(self._line) > _LONGEST:
            data, self._line = data + self._line + b"\n", b""
        yield Output(self.replica, data, data.count(b"\n"), self._line[-_TAIL:])

    def rest(self, *, last: bool = True) -> Iterator[Output | Notice]:
        """Yield all output up to the current end; an unfinished last line counts as a line.

        Args:
            last: Nothing is read after this call, so that line counts after a failed read too.
        """
        yield from self.read()
        end = self._size() if self.more else 0
        while self.more and self._offset < end:
            yield from self.read()
        if self._line and (last or not self.failed):
            line, self._line = self._line, b""
            yield Output(self.replica, line, 1)

    def close(self) -> None:
        """Close the file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):  # a file server that is away
                os.close(descriptor)

    def _size(self) -> int:
        with contextlib.suppress(OSError):  # the next read tells
            return os.fstat(self._descriptor).st_size if self._descriptor is not None else 0
        return self._offset

    def _kept(self, descriptor: int) -> int:
        """Return how much of the file, from its start, is still as it was read, as far as known.

        A file that was truncated may already be as long as before, or longer. Other text at the end
        alone is what a program has written there, which opened the file anew before its last lines.
        To start again from the beginning would repeat all that is above, each time.
        """
        if os.pread(descriptor, len(self._head), 0) != self._head:
            return 0
        begin = self._offset - len(self._last)
        now = os.pread(descriptor, len(self._last), begin)
        if now == self._last:
            return self._offset
        if self._size() < self._offset:
            return 0
        pairs = enumerate(zip(self._last, now, strict=False))
        other = next((at for at, (old, new) in pairs if old != new), len(now))
        return _line_begin(descriptor, begin + other)  # a whole line again

    def _start_again(self, kept: int) -> Iterator[Output | Notice]:
        """Go back in the file, which was truncated or overwritten; say so the first time."""
        assert self._descriptor is not None
        self._last = self._last[: max(0, len(self._last) - (self._offset - kept))]
        self._head = self._head[:kept]
        self._offset = os.lseek(self._descriptor, kept, os.SEEK_SET)
        line, self._line = self._line, b""
        self.more = True
        told, self._told = self._told, True
        if line:  # the file has it no more
            yield Output(self.replica, line + b"\n", 1)
        if not told:
            # Linux opens the log file itself there; on a cluster it would be a pipe.
            yield Notice(
                f"the log of {self.replica} was truncated; lines may be missing. `> /dev/stdout` "
                "or `> /dev/stderr` empties it, `>&1` or `>&2` does not."
            )


def _line_begin(descriptor: int, at: int) -> int:
    """Return where the line begins that has the byte ``at`` of a file, or a part of a long one."""
    begin = max(0, at - _BAR)
    return begin + os.pread(descriptor, at - begin, begin).rfind(b"\n") + 1


def _last_state(line: bytes) -> bytes:
    """Return the visible state of a progress bar: the part after its last carriage return."""
    start = line.rstrip(b"\r").rfind(b"\r")
    return line[start + 1 :] if start >= 0 else line
