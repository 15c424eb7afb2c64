"""``ciao exec NAME/worker-0 -- COMMAND …``: run a command in a replica."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import os
import shlex
import signal
import sys
import termios
import threading
import tty
from collections.abc import AsyncIterator, Callable

from ciao_kernel.commands import Caller, completion
from ciao_kernel.commands.cell_output import CellOutput
from ciao_kernel.commands.shared_arguments import add_job, named_replica, where
from ciao_kernel.errors import CommandFailed, EnvironmentFault, UsageError
from ciao_kernel.model.queries import Streams

_PIECE = 1 << 15
_AHEAD = 4
"""Pieces of standard input that are read before the command has taken the first piece."""


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the replica, ``--stdin`` and ``--tty``; the command follows ``--``."""
    verb.usage = "%(prog)s [options] NAME/REPLICA -- COMMAND [ARGUMENT ...]"
    verb.epilog = (
        "The command runs without a shell, in the folder of the program and with the replica's "
        "variables: in the replica's container, or as an additional process on this machine. "
        "On a cluster it requires the right to create and get pods/exec."
    )
    text = "the replica; NAME alone if the job has only one replica"
    add_job(verb, completion.members, metavar="NAME/REPLICA", help=text)
    verb.add_argument(
        "-i", "--stdin", action="store_true", help="pass standard input to the command"
    )
    verb.add_argument(
        "-t", "--tty", action="store_true", help="give the command a terminal (with -i)"
    )


async def run(args: argparse.Namespace, caller: Caller) -> None:
    """Run the command, and fail with its exit code."""
    if not args.behind:
        raise UsageError(
            "there is no command.", "Write it after --, as in: exec NAME/worker-0 -- nvidia-smi"
        )
    _check_input(args, caller)
    name, slash, member = args.name.partition("/")
    backend, job, _ = await caller.session.find(name, where(args))
    replica = named_replica(job, member, slash)
    async with _streams(args, caller) as streams:
        code = await backend.execute(job, replica, args.behind, streams)
    if code:
        text = shlex.join(args.behind)
        text = text if len(text) <= 60 else text[:59] + "…"
        raise CommandFailed(f"{text} ended with exit code {code} in {replica}.", code=code)


def _check_input(args: argparse.Namespace, caller: Caller) -> None:
    if not (args.stdin or args.tty):
        return
    if not caller.terminal:
        raise UsageError(
            "a cell has no standard input: -i and -t work only in a terminal.",
            "Leave them out, or open a terminal.",
        )
    typed = args.stdin and sys.stdin is not None and sys.stdin.isatty()
    if args.tty and not (typed and sys.stdout.isatty()):
        raise UsageError(
            "-t connects the command to a terminal: it needs a terminal and -i.",
            "Use -i -t in a terminal; leave -t out in a pipe.",
        )


# ---------------------------------------------------------------------------------- streams


@contextlib.asynccontextmanager
async def _streams(args: argparse.Namespace, caller: Caller) -> AsyncIterator[Streams]:
    """Provide input and output of the command, and restore the terminal afterwards."""
    if not caller.terminal:
        cell = CellOutput.of(caller.write, caller.session.settings)
        try:
            yield Streams(cell.stream(), cell.stream())
        except asyncio.CancelledError:
            cell.stop()
            raise
        except BaseException:
            await cell.end()
            raise
        await cell.end()
        return
    data = _typed() if args.stdin else None
    out_bytes, err_bytes = _writer(sys.stdout.fileno()), _writer(sys.stderr.fileno())
    if not args.tty:
        yield Streams(out_bytes, err_bytes, data)
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor, termios.TCSADRAIN)  # the command receives each key, Ctrl-C too
    try:
        yield Streams(out_bytes, err_bytes, data, _sizes())
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _writer(descriptor: int) -> Callable[[bytes], None]:
    def write(data: bytes) -> None:
        while data:
            data = data[os.write(descriptor, data) :]

    return write


async def _typed() -> AsyncIterator[bytes]:
    """Yield the data of standard input, whatever kind of file it is.

    Standard input that is not open for reading, as under ``nohup``, counts as empty.

    Raises:
        EnvironmentFault: A read failed. Without an error, the input would seem complete.
    """
    if sys.stdin is None:  # closed at the start: another file may have its descriptor now
        return
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(_AHEAD)

    def read() -> None:
        end: bytes | OSError = b""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            try:
                while room.acquire() and (data := os.read(0, _PIECE)):
                    loop.call_soon_threadsafe(pieces.put_nowait, data)
            except OSError as error:
                end = end if error.errno == errno.EBADF else error
            finally:
                loop.call_soon_threadsafe(pieces.put_nowait, end)

    # Not a thread of the loop: Python would wait for its end, and a read may never end.
    threading.Thread(target=read, daemon=True).start()
    while data := await pieces.get():
        if isinstance(data, OSError):
            raise EnvironmentFault(f"standard input cannot be read: {data.strerror}.") from data
        yield data
        room.release()


async def _sizes() -> AsyncIterator[tuple[int, int]]:
    """Yield the window's columns and rows, at once and after each change."""
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    loop.add_signal_handler(signal.SIGWINCH, changed.set)
    try:
        while True:
            size = os.get_terminal_size(sys.stdout.fileno())
            yield size.columns, size.lines
            await changed.wait()
            changed.clear()
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
