"""Sends files of a replica."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import sys
import time
from collections.abc import Callable
from typing import Any

from ciao_kernel.delivery.replica_files.finding import Found, find, joined, reason, survey
from ciao_kernel.delivery.replica_files.marks import (
    CONTACT,
    COPIED,
    FETCHING,
    HELD,
    TAKEN,
    mark,
    reading,
)
from ciao_kernel.delivery.replica_files.messages import (
    BEAT,
    CHANGED,
    DATA,
    DONE,
    END,
    FAULT,
    FILE,
    HEADER,
    LIST,
    POD,
    RELEASE,
    pieces,
)
from ciao_kernel.delivery.replica_files.on_claim import locked, own_of_claim
from ciao_kernel.delivery.replica_files.opening import open_inside

_ABOUT_FILE, _LOG_NAMES = 256, 1 << 20
"""Bytes of the messages about a file, without its path, and of all such messages in a log."""
_BEAT = 1.0


class Sender:
    """Sends files.

    Args:
        write: Takes the bytes of the messages.
    """

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._marks = os.environ.get(HELD, "")
        self._own = ""
        """Mark of the fetch that gets the files; "" if none does, but a log."""
        self._beat, self._sent = 0.0, time.monotonic()

    def send(self, request: dict[str, Any]) -> None:
        """Send the files that a request names; :class:`ciao_kernel.delivery.fetch.Fetch` asks."""
        fetch = request.get("fetch", "")
        self._own = FETCHING + fetch if fetch else ""
        with reading(self._marks):
            self._touch()  # to look through a large folder takes a while
            self._send(request)

    def _send(self, request: dict[str, Any]) -> None:
        base, after, limit = self._base(request["base"]), request["after"], request["limit"]
        if kept := request.get("kept"):
            self._pod(kept)
        if not request["waits_only"]:
            skip = request.get("skip", ())
            found, total = survey(base, request["words"], limit, kept or self._marks, skip)
            places = dict.fromkeys(found.sizes, base)
            for other in request.get("also", ()):
                more = own_of_claim(find(other, request["words"], request["without"]))
                found, total = joined(found, more, total)
                places = {**dict.fromkeys(found.sizes, other), **places}
            told = {"files": len(found.sizes), "bytes": total, **found._asdict(), "sizes": None}
            if request.get("in_log") and _names(found) > _LOG_NAMES:
                told.update(too_many=True, missing=[], left_out=[], faults={})
                total = limit + 1
            self._put(LIST, json.dumps(told).encode())
            if request["offset"] and after not in found.sizes:
                self._fault(after, "it has vanished")
            for path in found.sizes if total <= limit else ():
                if path >= after:
                    try:
                        self._file(places[path], path, request["offset"] if path == after else 0)
                    except BrokenPipeError:
                        raise  # the other side is gone
                    except OSError as error:
                        self._fault(path, reason(error))
        self._put(DONE, b"")
        if request["waits"]:
            self._wait(request["unheard"])

    def _pod(self, kept: str) -> None:
        """Say which pod has written the files of a folder."""
        try:
            uid = locked(kept, alone=False)
        except BlockingIOError:
            uid = None
        except OSError as error:
            sys.exit(reason(error))
        if uid is None:
            sys.exit("they are there no more: they were fetched, or somebody has deleted them")
        self._put(POD, uid.encode())

    def watch(self, request: dict[str, Any]) -> None:
        """Send what files gain at their ends, until the other side or the program is over."""
        base, sizes = self._base(request["base"]), dict(request["sizes"])
        held, self._marks = bool(self._marks), ""  # who only looks on does not take files
        while True:
            for path, size in find(base, request["words"]).sizes.items():
                known = sizes.get(path, 0)
                if size != known:
                    sizes[path] = known
                    with contextlib.suppress(OSError):
                        sizes[path] = self._gain(base, path, known)
            self._put(DONE, b"")
            if held or (select.select([0], [], [], request["pause"])[0] and not os.read(0, 64)):
                return

    def _gain(self, base: str, path: str, known: int) -> int:
        """Send the end of a file, or all if it has become shorter; return its size."""
        with open_inside(base, path) as file:
            about = os.fstat(file.fileno())
            offset = known if known <= about.st_size else 0
            self._put(FILE, json.dumps({"path": path, "offset": offset}).encode())
            file.seek(offset)
            for data in pieces(file, about.st_size - offset):
                self._put(DATA, data)
                offset += len(data)
            return offset

    def _base(self, base: str) -> str:
        """Return the folder with the files; where the program's cannot be seen, their copies."""
        return os.environ.get(COPIED, base) if base == "." else base

    def _file(self, base: str, path: str, offset: int) -> None:
        with open_inside(base, path) as file:
            about = os.fstat(file.fileno())
            offset = offset if offset <= about.st_size else 0
            digest = hashlib.sha256()
            for data in pieces(file, offset):
                digest.update(data)
                self._live()
            told = {"path": path, "size": about.st_size, "offset": offset}
            told.update(runs=bool(about.st_mode & 0o100), mode=about.st_mode & 0o777)
            self._put(FILE, json.dumps(told).encode())
            for data in pieces(file, about.st_size - offset):
                digest.update(data)
                self._put(DATA, data)
                offset += len(data)
            if offset != about.st_size:
                self._fault(path, "it has become shorter while it was fetched")
                return
            self._put(END, digest.hexdigest().encode())
            now = os.fstat(file.fileno())
            if (now.st_size, now.st_mtime_ns) != (about.st_size, about.st_mtime_ns):
                self._put(CHANGED, json.dumps({"path": path}).encode())

    def _fault(self, path: str, why: str) -> None:
        """Say that a file does not come, also if a part of it was sent."""
        self._put(FAULT, json.dumps({"path": path, "why": why}).encode())

    def _put(self, kind: bytes, body: bytes) -> None:
        self._write(HEADER.pack(kind, len(body)))
        self._write(body)
        self._sent = time.monotonic()
        self._touch()

    def _live(self) -> None:
        """Show while nothing else is sent that the replica is alive."""
        if time.monotonic() - self._sent > _BEAT:
            self._put(BEAT, b"")

    def _touch(self) -> None:
        now = time.monotonic()
        if self._marks and now - self._beat > _BEAT:
            self._beat = now
            mark(self._marks, CONTACT)
            if self._own:
                mark(self._marks, self._own)

    def _forget(self) -> None:
        """Remove the mark of a fetch that has all files.

        One that does not say so may be cut after the last byte was sent: its mark ages.
        """
        if self._marks and self._own:
            with contextlib.suppress(OSError):
                os.remove(os.path.join(self._marks, self._own))

    def _wait(self, unheard: float) -> None:
        """Keep the files until the other side has them all, or is gone.

        Args:
            unheard: Seconds without a byte after which it counts as gone: the connection of a
                process that was stopped, or of a machine that sleeps, may live on.
        """
        data, heard = b"", time.monotonic()
        while RELEASE not in data:
            if select.select([0], [], [], _BEAT)[0]:
                piece = os.read(0, 64)
                if not piece:
                    return
                data, heard = (data + piece)[-64:], time.monotonic()
            elif time.monotonic() - heard > unheard:
                return
            self._touch()
        if self._marks:
            mark(self._marks, TAKEN)
        self._forget()


def _names(found: Found) -> int:
    """Return about how many bytes the messages about files have, without what is in the files."""
    names = [*found.sizes, *found.missing, *found.left_out, *found.faults]
    return sum(len(json.dumps(name)) + _ABOUT_FILE for name in names)


def write_stream(write: Callable[[bytes], object], words: list[str], limit: int, pod: str) -> None:
    """Write what a connection would carry, for somebody who reads it later.

    Args:
        write: Takes the bytes.
        words: Paths of files.
        limit: Largest number of bytes of files.
        pod: Uid of this pod.
    """
    write(HEADER.pack(POD, len(pod.encode())) + pod.encode())
    request = {"base": ".", "words": words, "limit": limit, "after": "", "offset": 0}
    Sender(write).send({**request, "waits": False, "waits_only": False})
