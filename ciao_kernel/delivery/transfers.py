"""Moves files between a replica and this machine, over the input and output of a command there.

The command is a Python that gets :mod:`.replica_files` by its standard input, so nothing but Python
is needed in the replica. A connection that is cut is opened again, and the file goes on where it
stopped; a file gets its name when its digest is right.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
import json
import logging
import os
import posixpath
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from ciao_kernel import private_files
from ciao_kernel.delivery import replica_files
from ciao_kernel.delivery.replica_files import (
    CHANGED,
    DATA,
    DONE,
    END,
    FAULT,
    FILE,
    HEADER,
    LIST,
    RELEASE,
)
from ciao_kernel.errors import BackendError, ClusterFault, Refused
from ciao_kernel.model import Job
from ciao_kernel.model.queries import Streams
from ciao_kernel.visible_text import short, visible

_log = logging.getLogger(__name__)

Execute = Callable[[Sequence[str], Streams], Awaitable[int]]
"""Runs a command in a replica, and returns its exit code."""

_LOADER = (
    "import os,sys\nn=int(sys.argv[1]);b=b''\nwhile len(b)<n:\n d=os.read(0,n-len(b))\n"
    " if not d: sys.exit(3)\n b+=d\nexec(compile(b,'ciao','exec'),{'__name__':'ciao'})"
)
_TRIES = 6
"""Connections in a row that may bring nothing, and files that may arrive damaged."""
_SILENT = 60.0
"""Seconds without a byte after which a replica is given up: a frozen one answers nothing, while its
connection lives."""
_ALIVE, _UNHEARD = 5.0, 30.0
"""Seconds between two signs of life to a replica that keeps its files, and seconds without one
after which it keeps them no longer: whoever asked may be frozen, with the connection open."""
_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
_LARGEST = 1 << 24
"""Bytes of a message; a pod's bytes are foreign input."""
_LONGEST_PATH = 1024
_LONGEST_REASON = 120
_MOST_FILES = 100_000
_WORDS = 2000
_SAID = 3
"""So many cut connections are told."""


class Damaged(BackendError):
    """A replica sent something else than whole files."""


class _WrongDigest(ClusterFault):
    """A file arrived damaged, perhaps on the way."""


class Receiver(Protocol):
    """Takes the files of a replica."""

    def part(self) -> Path:
        """Return the path for a file that is not whole yet."""

    def place(self, path: str, part: Path, digest: str) -> None:
        """Give a whole file its name.

        Args:
            path: Its path in the replica, relative and without ``..``.
            part: The file.
            digest: Its SHA-256.
        """


@dataclass
class Listing:
    """What a replica has."""

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


class Fetch:
    """Fetches the files that some words name from one replica.

    Args:
        execute: Runs a command in the replica.
        python: Its interpreter.
        words: Paths, relative to ``base``.
        receiver: Takes the files.
        limit: Largest number of bytes in all.
        base: Folder in the replica; by default that in which commands run.
        waits: Keep the connection until :meth:`release`, so that the replica keeps its files.
        on_progress: Called with the bytes that have come, and all.
        on_cut: Called with a reason when a connection has failed and another one is opened.
        pause: Seconds before the first new try.
        silent: Seconds without a byte after which the replica is given up.
        limit_name: What the limit is, for the error if the files are larger.
        hint: What helps then.
        alive: Seconds between two signs of life to a replica that keeps its files.
        unheard: Seconds without one after which it keeps them no longer.
        again: Whether a command that has ended too early may send more when it runs again; a log
            or an object is the same each time.
    """

    def __init__(
        self,
        execute: Execute,
        python: str,
        words: Sequence[str],
        receiver: Receiver,
        limit: int,
        *,
        base: str = ".",
        waits: bool = False,
        on_progress: Callable[[int, int], object] = lambda *_: None,
        on_cut: Callable[[str], object] = lambda _: None,
        pause: float = _PAUSE,
        silent: float = _SILENT,
        limit_name: str = "fetchLimit is",
        hint: str = "`%ciao config fetchLimit=…` raises the limit.",
        again: bool = True,
        alive: float = _ALIVE,
        unheard: float = _UNHEARD,
    ) -> None:
        self._again = again
        self._execute, self._python, self._words = execute, python, tuple(words)
        self._receiver, self._limit, self._base = receiver, limit, base
        self._waits, self._on_progress, self._pause = waits, on_progress, pause
        self._on_cut, self._cuts = on_cut, 0
        self._silent, self._heard = silent, 0.0
        self._alive, self._unheard = alive, unheard
        self._limit_name, self._hint = limit_name, hint
        self._release = asyncio.Event()
        self.arrived = asyncio.Event()
        """Set when all files are here."""
        self.listing = Listing()
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
        self._placed = set[str]()
        """Paths of the files that are whole."""
        self._begun = 0
        """Files that have begun, on all connections."""
        self._furthest = 0
        """Largest number of bytes that were here at one time."""
        self._news = False
        """Whether the current connection has brought something new."""
        self._words_of_replica = bytearray()

    def release(self) -> None:
        """Let the replica end."""
        self._release.set()

    async def run(self) -> None:
        """Fetch the files; with ``waits`` return after :meth:`release`.

        Raises:
            BackendError: They cannot be fetched. What is whole stays.
        """
        failed = damaged = 0
        pause = self._pause
        try:
            while True:
                self._news = False
                try:
                    await self._once()
                    return
                except (ClusterFault, Refused) as error:
                    failed = 0 if self._news else failed + 1
                    damaged += isinstance(error, _WrongDigest)
                    known = isinstance(error, Refused) and error.code < 500
                    if self.arrived.is_set() and (known or self._release.is_set()):
                        return  # the replica has ended meanwhile
                    if known or max(failed, damaged) >= _TRIES:
                        raise
                    pause = self._pause if self._news else min(pause * 2, _LONGEST_PAUSE)
                    _log.info("a transfer was cut, and goes on: %s", error.message)
                    self._cuts += 1
                    if self._cuts <= _SAID and not self.arrived.is_set():
                        self._on_cut(error.message)
                    await asyncio.sleep(pause)
        finally:
            self._close()

    async def _once(self) -> None:
        del self._buffer[:], self._words_of_replica[:]
        whole = self.arrived.is_set()
        request = {
            "do": "send",
            "base": self._base,
            "words": self._words,
            "after": self._told.get("path", ""),
            "offset": self._offset,
            "limit": self._limit,
            "waits": self._waits,
            "waits_only": whole,
            "unheard": self._unheard,
        }
        streams = called(self._python, request, self._out, self._err, self._rest())
        code = await self._end_of(self._execute(*streams))
        if code:
            raise Damaged(failed(code, bytes(self._words_of_replica)))
        if not self.arrived.is_set():
            if not self._again:
                raise BackendError("what was sent ended too early.")
            raise ClusterFault("the connection ended before the files were here.")

    async def _end_of(self, work: Awaitable[int]) -> int:
        """Wait for a command's end, and give up if its replica is silent before all is here."""
        command = asyncio.ensure_future(work)
        self._heard = time.monotonic()
        try:
            while not command.done():
                left = self._heard + self._silent - time.monotonic()
                if left <= 0 and not self.arrived.is_set():
                    raise BackendError(f"the replica has sent nothing for {self._silent:g} s.")
                await asyncio.wait({command}, timeout=None if self.arrived.is_set() else left)
            return command.result()
        finally:
            command.cancel()
            await asyncio.gather(command, return_exceptions=True)

    async def _rest(self) -> AsyncIterator[bytes]:
        while self._waits and not self._release.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._alive):
                    await self._release.wait()
            if not self._release.is_set():
                yield b"\n"
        await self._release.wait()
        yield RELEASE

    def _err(self, data: bytes) -> None:
        self._words_of_replica += data
        del self._words_of_replica[:-_WORDS]

    def _out(self, data: bytes) -> None:
        self._heard = time.monotonic()
        self._buffer += data
        try:
            for kind, body in messages(self._buffer):
                self._take(kind, body)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise Damaged(f"the replica sent something else than files: {error!r}.") from error
        except (OSError, private_files.Untrusted) as error:
            words = getattr(error, "strerror", None) or error
            raise BackendError(f"they cannot be saved on this machine: {words}.") from error

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
                self._furthest, self._news = self._done + self._offset, True
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
        self.listing = Listing(
            int(told["files"]),
            int(told["bytes"]),
            tuple(map(str, told["missing"])),
            tuple(map(str, told["left_out"]))[:_WORDS],
            self.listing.faults,
            self.listing.changed,
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
        self._close()
        # The next connection begins behind this file.
        self._told = {"path": str(told["path"]) + "\0"}

    def _note_fault(self, path: Any, why: Any) -> None:
        if len(self.listing.faults) < _WORDS:
            self.listing.faults[_named(path)] = short(str(why), _LONGEST_REASON)

    @property
    def current(self) -> str:
        """Return the path of the file that is coming; "" between two files."""
        return str(self._told.get("path", "")) if self._file is not None else ""

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
        if path in self._placed:  # a replica could keep the fetch going with it
            raise Damaged("the replica sent a file twice.")
        same = self._file is not None and self._told.get("path") == path
        if not same or offset != self._offset:
            self._close()
            self._begun += 1
            if self._begun > _MOST_FILES:
                raise self._too_many(self._begun)
            self._part = self._receiver.part()
            self._file = private_files.create(self._part, executable=bool(told["runs"]))
            self._digest = hashlib.sha256()
            if offset:
                raise Damaged("the replica went on at another place than the one asked for.")
        self._told, self._offset = {**told, "path": path}, offset

    def _end(self, digest: str) -> None:
        assert self._file is not None
        assert self._part is not None
        self._file.close()
        if digest and digest == self._digest.hexdigest():
            self._receiver.place(self._told["path"], self._part, digest)
            self._placed.add(self._told["path"])
            self._done += self._offset
            self.whole += 1
            self._news = True
        self._close()
        if digest and digest != self._digest.hexdigest():
            raise _WrongDigest(f"{visible(self._told['path'])} arrived damaged.")
        # The next connection begins behind this file.
        self._told, self._offset = {"path": self._told["path"] + "\0"}, 0

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        if self._part is not None:
            with contextlib.suppress(OSError):
                self._part.unlink(missing_ok=True)
        self._file = self._part = None
        self._offset = 0


def _named(path: Any) -> str:
    """Return a path of a replica for a text; pods may send anything."""
    return short(str(path), _LONGEST_PATH)


def messages(buffer: bytearray) -> Iterator[tuple[bytes, bytes]]:
    """Take the whole messages out of what a replica has sent: their kinds and bodies.

    Args:
        buffer: What has come; the begin of a message stays in it.

    Raises:
        Damaged: It is something else than messages.
    """
    while len(buffer) >= HEADER.size:
        kind, size = HEADER.unpack_from(buffer)
        if size > _LARGEST:
            raise Damaged(failed(0, bytes(buffer[:200])))
        if len(buffer) < HEADER.size + size:
            return
        body = bytes(buffer[HEADER.size : HEADER.size + size])
        del buffer[: HEADER.size + size]
        yield kind, body


def called(
    python: str,
    request: dict[str, Any],
    out: Callable[[bytes], object],
    err: Callable[[bytes], object],
    rest: AsyncIterator[bytes] | None = None,
) -> tuple[list[str], Streams]:
    """Return a command for a replica, and its streams.

    Args:
        python: The replica's interpreter.
        request: What it does (:func:`.replica_files.main`).
        out: Receives its output.
        err: Receives its words.
        rest: Its input after the request.
    """
    script = f"{inspect.getsource(replica_files)}\nmain({json.loads(json.dumps(request))!r})\n"
    data = script.encode("utf-8", "surrogateescape")

    async def given() -> AsyncIterator[bytes]:
        yield data
        if rest is not None:
            async for piece in rest:
                yield piece
        # Its end would end the connection to clusters before Kubernetes 1.30.
        await asyncio.Event().wait()

    return [python, "-I", "-S", "-c", _LOADER, str(len(data))], Streams(out, err, given())


async def send(execute: Execute, python: str, source: Path, target: str) -> int:
    """Send a file or a folder to a replica; return the number of its files.

    Args:
        execute: Runs a command in the replica.
        python: Its interpreter.
        source: File or folder of this machine.
        target: Path in the replica; with a slash at its end a folder to put it into.

    Raises:
        BackendError: It could not be sent whole; no file has a part of its content.
    """
    words, done = bytearray(), bytearray()
    base, name = str(source.absolute().parent), source.absolute().name
    paths = list(replica_files.find(base, [_literal(name)]).sizes)

    async def rest() -> AsyncIterator[bytes]:
        for path in paths:
            digest = hashlib.sha256()
            place = Path(base, path)
            below = path.removeprefix(name)
            with place.open("rb") as file:
                runs = bool(os.fstat(file.fileno()).st_mode & 0o100)
                told = {"path": path, "below": below, "runs": runs}
                yield _message(FILE, json.dumps(told).encode())
                while data := await asyncio.to_thread(file.read, 1 << 18):
                    digest.update(data)
                    yield _message(DATA, data)
            yield _message(END, digest.hexdigest().encode())
        yield _message(DONE, b"")

    request = {"do": "receive", "path": target}
    code = await execute(*called(python, request, done.extend, words.extend, rest()))
    if code or done[:1] != DONE:
        raise BackendError(failed(code, bytes(words)))
    return len(paths)


def _literal(name: str) -> str:
    if any(sign in name for sign in "*?"):
        raise BackendError(f"{visible(name)} has a star or a question mark in its name.")
    return name


def _message(kind: bytes, body: bytes) -> bytes:
    return HEADER.pack(kind, len(body)) + body


def failed(code: int, words: bytes) -> str:
    """Return why a command of a replica has failed, as a sentence.

    Args:
        code: Its exit code.
        words: What it wrote to standard error.
    """
    last = words.decode(errors="replace").strip().rpartition("\n")[2]
    text = visible(short(last, 200)) if last else f"its Python ended with exit code {code}"
    return f"{text}."


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
        or len(str(path)) > _LONGEST_PATH
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


def python_of(job: Job, default: str) -> str:
    """Return the interpreter in a job's pods.

    Args:
        job: The job.
        default: That of jobs without ``%python``.
    """
    lines = (line.partition("=") for line in job.header.splitlines())
    return next((value for name, _, value in lines if name == "%python"), default)


def size_text(size: float) -> str:
    """Return a size for people: ``1.2 MB``."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
