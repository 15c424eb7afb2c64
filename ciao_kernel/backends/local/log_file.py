"""Reads the log file of a replica so far; :mod:`.follower` follows it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

from ciao_kernel import file_pieces, private_files
from ciao_kernel.backends.local import try_lines
from ciao_kernel.backends.local.store import describe_untrusted
from ciao_kernel.errors import BackendError, UsageError
from ciao_kernel.model.log_pieces import whole_lines
from ciao_kernel.model.queries import LogOptions


async def read(path: Path, options: LogOptions) -> bytes:
    """Return a log, or its last lines; without a file it is empty.

    Raises:
        UsageError: An option needs information that is not recorded here.
        BackendError: Another user may have written the file.
    """
    _check(options)
    data = await asyncio.to_thread(_read, path, options.tail)
    return try_lines.without(data) if options.followed else data


async def pieces(path: Path, options: LogOptions) -> AsyncGenerator[bytes, None]:
    """Yield what :func:`read` returns, in pieces; what is written meanwhile is left out.

    The errors are those of :func:`read`.
    """
    _check(options)
    with _opened(path) as file:
        if file is None:
            return
        end = os.fstat(file).st_size
        start = await asyncio.to_thread(_start, file, end, options.tail)
        async with contextlib.aclosing(whole_lines(file_pieces.read(file, start, end))) as found:
            async for piece in found:
                yield try_lines.without(piece) if options.followed else piece


def no_timestamps_error(option: str) -> UsageError:
    """Return the error for an option that needs the times of lines."""
    return UsageError(
        f"{option} is not available: log files on this machine have no timestamps.",
        "Leave it out; --tail N of `%ciao logs` shows the last lines.",
    )


def _check(options: LogOptions) -> None:
    if options.previous:
        raise UsageError(
            "--previous is not available: on this machine a replica's log has all its runs.",
            "Leave it out.",
        )
    if options.timestamps or options.since:
        raise no_timestamps_error("--timestamps" if options.timestamps else "--since")


def _read(path: Path, tail: int | None) -> bytes:
    with _opened(path) as file:
        if file is None:
            return b""
        with os.fdopen(file, "rb", closefd=False) as stream:
            stream.seek(_start(file, os.fstat(file).st_size, tail))
            return stream.read()


def _start(file: int, end: int, tail: int | None) -> int:
    """Return where the last lines of an open file begin; None means all lines."""
    return 0 if tail is None else file_pieces.tail(file, end, tail)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    with contextlib.ExitStack() as stack:
        file = None
        try:
            file = stack.enter_context(private_files.opened_file(path))
        except private_files.Untrusted as error:
            raise BackendError(*describe_untrusted(str(error))) from None
        except FileNotFoundError:
            pass  # the replica has not begun
        yield file
