"""Runs the command in a replica that sends or takes files, and sends files of this machine.

The command is a Python that gets :mod:`.replica_files` by its standard input, so nothing but Python
is needed in the replica. :mod:`.fetch` takes what it sends.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ciao_kernel.delivery import replica_files, replica_program
from ciao_kernel.delivery.replica_files import DATA, DONE, END, FAULT, FILE, HEADER, Found
from ciao_kernel.errors import BackendError, ClusterFault, Refused
from ciao_kernel.magics import stored_header
from ciao_kernel.magics.value_types import Word
from ciao_kernel.model import Job
from ciao_kernel.model.queries import Streams
from ciao_kernel.visible_text import short, visible

Execute = Callable[[Sequence[str], Streams], Awaitable[int]]
"""Runs a command in a replica, and returns its exit code."""

_LOADER = (
    "import os,sys\nn=int(sys.argv[1]);b=b''\nwhile len(b)<n:\n d=os.read(0,n-len(b))\n"
    " if not d: sys.exit(3)\n b+=d\nexec(compile(b,'ciao','exec'),{'__name__':'ciao'})"
)
_LARGEST = 1 << 24
"""Bytes of a message; a pod's bytes are foreign input."""
_PASSING = frozenset({401, 408, 425, 429})
"""Refusals below 500 that may pass: a gateway limits requests, or its session is being renewed."""


class Damaged(BackendError):
    """A replica sent something else than whole files."""


def is_final(error: BackendError) -> bool:
    """Return whether another try would fail too: the pod is gone, or may not be entered."""
    if isinstance(error, Refused):
        return error.code < 500 and error.code not in _PASSING
    return not isinstance(error, ClusterFault)


def final(out: Callable[[bytes], object]) -> Callable[[bytes], None]:
    """Return what passes data on that is the same when it is read again: a fault of it is final.

    Args:
        out: Takes the data.

    Raises:
        BackendError: In place of a ClusterFault, after which the transfer would begin again.
    """

    def pass_on(data: bytes) -> None:
        try:
            out(data)
        except ClusterFault as error:
            raise BackendError(error.message, error.hint) from error

    return pass_on


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
        with memoryview(buffer) as view:  # a slice of the buffer itself would be one more copy
            body = bytes(view[HEADER.size : HEADER.size + size])
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
    script = f"{replica_program.text()}\nmain({json.loads(json.dumps(request))!r})\n"
    data = script.encode("utf-8", "surrogateescape")

    async def given() -> AsyncIterator[bytes]:
        yield data
        if rest is not None:
            async for piece in rest:
                yield piece
        # Its end would end the connection to clusters before Kubernetes 1.30.
        await asyncio.Event().wait()

    return [python, "-I", "-S", "-c", _LOADER, str(len(data))], Streams(out, err, given())


async def send(execute: Execute, python: str, source: Path, target: str) -> Found:
    """Send a file or a folder to a replica; return the files that went.

    Those that cannot be read are among the faults, and the others go.

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
    found = await asyncio.to_thread(replica_files.find, base, [_literal(name)])
    if not found.sizes:
        return found
    faults = dict(found.faults)

    async def rest() -> AsyncIterator[bytes]:
        for path in found.sizes:
            try:
                file = Path(base, path).open("rb")  # noqa: SIM115
            except OSError as error:
                faults[path] = replica_files.reason(error)
                continue
            with file:
                mode = os.fstat(file.fileno()).st_mode & 0o777
                told = {"path": path, "below": path.removeprefix(name), "mode": mode}
                yield _message(FILE, json.dumps(told).encode())
                digest = hashlib.sha256()
                try:
                    while data := await asyncio.to_thread(file.read, 1 << 18):
                        digest.update(data)
                        yield _message(DATA, data)
                except OSError as error:
                    faults[path] = replica_files.reason(error)
                    yield _message(FAULT, b"")
                    continue
            yield _message(END, digest.hexdigest().encode())
        yield _message(DONE, b"")

    request = {"do": "receive", "path": target}
    code = await execute(*called(python, request, done.extend, words.extend, rest()))
    if code or done[:1] != DONE:
        raise BackendError(failed(code, bytes(words)))
    sizes = {path: size for path, size in found.sizes.items() if path not in faults}
    return found._replace(sizes=sizes, faults=faults)


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


def python_of(job: Job, default: str) -> str:
    """Return the interpreter in a job's pods.

    Args:
        job: The job.
        default: That of jobs without ``%python``.
    """
    return stored_header.value(job.header, "python", Word(), default)


def size_text(size: float) -> str:
    """Return a size for people: ``1.2 MB``."""
    if size == 1:
        return "1 byte"
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
