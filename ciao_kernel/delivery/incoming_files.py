"""Files that come from a replica as messages: checks what a pod sends, and gives whole files names.

A pod's bytes are foreign input: paths, sizes and numbers of files are what was asked for, or an
error. A file gets its name when its digest is right.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from ciao_kernel import private_files
from ciao_kernel.delivery import replica_files
from ciao_kernel.delivery.replica_files import CHANGED, DATA, DONE, END, FAULT, FILE, LIST
from ciao_kernel.delivery.transfers import Damaged, messages, size_text
from ciao_kernel.errors import BackendError, ClusterFault
from ciao_kernel.visible_text import short, visible

_LONGEST_REASON = 120
_MOST_FILES = 100_000
_WORDS = 2000


class WrongDigest(ClusterFault):
    """A file arrived damaged, perhaps on the way."""


class Receiver(Protocol):
    """Takes the files of a replica."""

    def part(self, path: str) -> Path:
        """Return the path for a file that is not whole yet.

        Args:
            path: Its path in the replica, relative and without ``..``.
        """

    def place(self, path: str, part: Path, digest: str, mode: int) -> None:
        """Give a whole file its name.

        Args:
            path: Its path in the replica, relative and without ``..``.
            part: The file.
            digest: Its SHA-256.
            mode: Its permissions in the replica.
        """


@dataclass
class Listing:
    """The files that a replica has, and those that it could not send."""

    files: int = 0
    size: int = 0
    missing: tuple[str, ...] = ()
    """Words that name nothing."""
    left_out: tuple[str, ...] = ()
    """Links and others that are not followed."""
    faults: dict[str, str] = field(default_factory=dict)
    """Files and folders that could not be read or have vanished, and why."""
    changed: tuple[str, ...] = ()
    """Files that are here and were written while they were fetched."""
    asked: tuple[str, ...] = ()
    """The words that were asked for."""
    came: set[str] = field(default_factory=set)
    """The files that are here."""


class IncomingFiles:
    """The files of one replica, over all connections to it.

    Args:
        words: Paths, relative to the folder of the files.
        receiver: Takes the files.
        limit: Largest number of bytes in all.
        on_progress: Called with the bytes that have come, and all.
        limit_name: What the limit is, for the error if the files are larger.
        hint: What helps then.
    """

    def __init__(
        self,
        words: Sequence[str],
        receiver: Receiver,
        limit: int,
        on_progress: Callable[[int, int], object],
        limit_name: str,
        hint: str,
    ) -> None:
        self._words, self._receiver, self._limit = tuple(words), receiver, limit
        self._on_progress = on_progress
        self._limit_name, self._hint = limit_name, hint
        self.arrived = asyncio.Event()
        """Set when all files are here."""
        self.listing = Listing(asked=self._words)
        self._buffer = bytearray()
        self._file: BinaryIO | None = None
        self._part: Path | None = None
        self._told: dict[str, Any] = {}
        self._digest = hashlib.sha256()
        self._offset = 0
        """Bytes of the current file that are here."""
        self._done = 0
        """Bytes of files that are whole."""
        self.whole = 0
        """Files that are whole."""
        self._begun = 0
        """Files that have begun, on all connections."""
        self._furthest = 0
        """Largest number of bytes that were here at one time."""
        self.news = False
        """Whether the current connection has brought something new."""

    def begin_connection(self) -> dict[str, Any]:
        """Return where a new connection goes on, as a part of its request."""
        del self._buffer[:]
        self.news = False
        return {"after": self._told.get("path", ""), "offset": self._offset}

    def take(self, data: bytes) -> None:
        """Take what a replica has sent.

        Raises:
            BackendError: It is something else than the files, or they cannot be saved.
            ClusterFault: A file arrived damaged.
        """
        self._buffer += data
        try:
            for kind, body in messages(self._buffer):
                self._take(kind, body)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise Damaged(f"the replica sent something else than files: {error!r}.") from error
        except (OSError, private_files.Untrusted) as error:
            words = getattr(error, "strerror", None) or error
            raise BackendError(f"they cannot be saved on this machine: {words}.") from error

    @property
    def current(self) -> str:
        """Return the path of the file that is coming; "" between two files."""
        return str(self._told.get("path", "")) if self._file is not None else ""

    def _take(self, kind: bytes, body: bytes) -> None:
        if kind == LIST:
            self._list(json.loads(body))
        elif kind == FILE:
            self._begin(json.loads(body))
        elif kind == DATA and self._file is not None:
            self._file.write(body)
            self._digest.update(body)
            self._offset += len(body)
            if self._done + self._offset > self._furthest:
                self._furthest, self.news = self._done + self._offset, True
            if self._offset > int(self._told["size"]):
                raise Damaged("the replica sent more than it had announced.")
            self._on_progress(self._done + self._offset, self.listing.size)
        elif kind == END and self._file is not None:
            self._end(body.decode())
        elif kind == FAULT:
            self._fault(json.loads(body))
        elif kind == CHANGED:
            path = _named(json.loads(body)["path"])
            self.listing.changed = (*self.listing.changed, path)[:_WORDS]
        elif kind == DONE:
            self.arrived.set()

    def _list(self, told: dict[str, Any]) -> None:
        self.listing = replace(
            self.listing,
            files=int(told["files"]),
            size=int(told["bytes"]),
            missing=tuple(map(str, told["missing"])),
            left_out=tuple(map(str, told["left_out"]))[:_WORDS],
        )
        for path, why in dict(told.get("faults", {})).items():
            self._note_fault(path, why)
        if self.listing.size > self._limit:
            raise self._too_large(self.listing.size)
        if told.get("too_many"):
            raise BackendError(
                f"it has {self.listing.files:,} files, too many for a log.",
                "Let the program pack them into an archive.",
            )
        if self.listing.files > _MOST_FILES:
            raise self._too_many(self.listing.files)

    def _fault(self, told: dict[str, Any]) -> None:
        """Take the word that the current file, or one that has not begun, does not come."""
        self._note_fault(told["path"], told["why"])
        self.close()
        # The next connection begins behind this file.
        self._told = {"path": str(told["path"]) + "\0"}

    def _note_fault(self, path: Any, why: Any) -> None:
        if len(self.listing.faults) < _WORDS:
            self.listing.faults[_named(path)] = short(str(why), _LONGEST_REASON)

    def _too_large(self, size: int) -> BackendError:
        return BackendError(
            f"its files have {size_text(size)}, and {self._limit_name} {size_text(self._limit)}.",
            self._hint,
        )

    def _too_many(self, files: int) -> BackendError:
        return BackendError(
            f"it has {files:,} files, and at most {_MOST_FILES:,} are fetched.",
            "Let the program pack them into an archive.",
        )

    def _begin(self, told: dict[str, Any]) -> None:
        path, offset = checked(told["path"], self._words), int(told["offset"])
        if int(told["size"]) < offset:
            raise Damaged("the replica announced a file of a wrong size.")
        # What it announces is checked too, but a replica may send something else.
        if self._done + int(told["size"]) > self._limit:
            raise self._too_large(self._done + int(told["size"]))
        if path in self.listing.came:  # a replica could keep the fetch going with it
            raise Damaged("the replica sent a file twice.")
        same = self._file is not None and self._told.get("path") == path
        if not same or offset != self._offset:
            self.close()
            self._begun += 1
            if self._begun > _MOST_FILES:
                raise self._too_many(self._begun)
            self._part = self._receiver.part(path)
            self._file = private_files.create(self._part)
            self._digest = hashlib.sha256()
            if offset:
                raise Damaged("the replica went on at another place than the one asked for.")
        self._told, self._offset = {**told, "path": path}, offset

    def _end(self, digest: str) -> None:
        assert self._file is not None
        assert self._part is not None
        runs = bool(self._told["runs"])
        if runs:
            private_files.let_run(self._file)
        self._file.close()
        if digest and digest == self._digest.hexdigest():
            mode = int(self._told.get("mode", 0o755 if runs else 0o644)) & 0o777
            self._receiver.place(self._told["path"], self._part, digest, mode)
            self.listing.came.add(self._told["path"])
            self._done += self._offset
            self.whole += 1
            self.news = True
        self.close()
        if digest and digest != self._digest.hexdigest():
            raise WrongDigest(f"{visible(self._told['path'])} arrived damaged.")
        # The next connection begins behind this file.
        self._told, self._offset = {"path": self._told["path"] + "\0"}, 0

    def close(self) -> None:
        """Remove what is not whole."""
        if self._file is not None:
            self._file.close()
        if self._part is not None:
            with contextlib.suppress(OSError):
                self._part.unlink(missing_ok=True)
        self._file = self._part = None
        self._offset = 0


def _named(path: Any) -> str:
    """Return a path of a replica for a text; pods may send anything."""
    return short(str(path), replica_files.LONGEST_PATH)


def checked(path: Any, words: Sequence[str]) -> str:
    """Return a path that a replica names if it is what was asked for; pods may name anything.

    Args:
        path: The path.
        words: The paths and patterns that were asked for.

    Raises:
        Damaged: It is another one, or leads out of the folder.
    """
    parts = path.split("/") if isinstance(path, str) else [""]
    if (
        any(part in ("", ".", "..") for part in parts)
        or "\0" in str(path)
        or len(str(path)) > replica_files.LONGEST_PATH
        or parts[0] == replica_files.OWN
        or posixpath.normpath(path) != path
        or not is_asked(path, words)
    ):
        named = short(visible(repr(path)), 80)
        raise Damaged(f"the replica sent {named}, which nobody has asked for.")
    return str(path)


def is_asked(path: str, words: Sequence[str]) -> bool:
    """Return whether a path is what some words name, or in a folder that they name."""
    return any(replica_files.pattern(word).fullmatch(path) for word in words)
