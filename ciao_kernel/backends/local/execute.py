"""Runs a command in a job's folder, with the environment variables of a replica."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import Any

from ciao_kernel.backends.local import hosts, processes
from ciao_kernel.backends.local.machine import isolation
from ciao_kernel.backends.local.machine.private_network import Network
from ciao_kernel.backends.local.record import Folder
from ciao_kernel.backends.local.replica import inherited
from ciao_kernel.backends.local.store import describe_untrusted
from ciao_kernel.background import cancel_all
from ciao_kernel.errors import BackendError, NoSuchJob, UsageError
from ciao_kernel.model import Replica
from ciao_kernel.model.queries import Streams
from ciao_kernel.private_files import Untrusted

_PIECE = 1 << 16
_GRACE = 2.0
"""Seconds from SIGTERM to SIGKILL for an abandoned command."""
_LOOK = 0.02
_LAST_WORDS = 1.0
"""Seconds after a command's end in which output of its surviving children is still read, and the
rest of its own. The time in which our reader lets us wait does not count for the rest."""
_REST = 1 << 19
"""Bytes that a command can have written before its end and that are not read: those in two pipes
and in the buffers of asyncio."""


async def execute(
    folder: Folder,
    host: hosts.Host,
    replica: Replica,
    command: Sequence[str],
    streams: Streams,
) -> int:
    """Run a command and return its exit code.

    The command carries the job's mark, so it ends with the job, as in a pod.

    Raises:
        BackendError: The command cannot be started.
        UsageError: The replica runs on another machine.
    """
    try:
        job, status = folder.read_job(), folder.read_status()
        away = status is not None and not host.has(status["supervisor"])
        if status is not None and away and host.is_supervisor_alive(folder, status):
            name = hosts.name(status["supervisor"])
            raise UsageError(
                f"{folder.path.name} runs on {name}, and a command must run on the same machine.",
                f"Run it in a terminal of {name}.",
            )
        own = next(one["env"] for one in job["replicas"] if one["name"] == str(replica))
    except Untrusted as error:
        raise BackendError(*describe_untrusted(str(error))) from None
    except (OSError, ValueError, KeyError, StopIteration):
        raise NoSuchJob(f"the folder of {folder.path.name} is gone.") from None
    environment = {**inherited(os.environ), **own, processes.MARK: job["id"]}
    run = _in_terminal if streams.sizes is not None else _in_pipes
    network = isolation.find(job, status) if status else None
    try:
        return await run(command, job["workdir"], environment, streams, network)
    finally:
        if network:
            network.close()


@contextlib.contextmanager
def _starting(command: Sequence[str]) -> Iterator[None]:
    """Report an OSError while the command is started as an error of the command."""
    try:
        yield
    except OSError as error:
        raise BackendError(
            f"{command[0]} cannot be run: {error.strerror or error}.",
            "The program must be installed on this machine; it is started without a shell.",
        ) from error
    except subprocess.SubprocessError:
        raise BackendError(
            f"{command[0]} cannot enter the network of the job.", "The job may have just ended."
        ) from None


async def _in_pipes(
    command: Sequence[str],
    folder: str,
    environment: dict[str, str],
    streams: Streams,
    network: Network | None,
) -> int:
    pipe = asyncio.subprocess.PIPE
    with _starting(command):
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL if streams.input is None else pipe,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,  # Ctrl-C reaches only us, as a cancellation
            preexec_fn=network.enter if network else None,
        )
    assert process.stdout
    assert process.stderr
    writing = _Stopwatch()
    readers = [
        asyncio.ensure_future(_copy(process.stdout, writing.of(streams.out))),
        asyncio.ensure_future(_copy(process.stderr, writing.of(streams.err))),
    ]
    writer = asyncio.ensure_future(_feed(process.stdin, streams.input))
    async with _ended(process, [*readers, writer]):
        return await _code(process, readers, [writer], writing)


async def _in_terminal(
    command: Sequence[str],
    folder: str,
    environment: dict[str, str],
    streams: Streams,
    network: Network | None,
) -> int:
    assert streams.sizes is not None
    sizes = aiter(streams.sizes)
    size = await anext(sizes)
    with _starting(command):
        master, slave = pty.openpty()
        try:
            _resize(master, size)  # before the command reads it
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=folder,
                env=environment,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
                preexec_fn=partial(_take_terminal, network),
            )
        except BaseException:
            os.close(master)
            raise
        finally:
            os.close(slave)
    os.set_blocking(master, False)
    writing = _Stopwatch()
    reader = asyncio.ensure_future(_copy_terminal(master, writing.of(streams.out)))
    tasks = [
        asyncio.ensure_future(_type(master, streams.input)),
        asyncio.ensure_future(_follow_size(master, sizes)),
    ]
    try:
        async with _ended(process, [reader, *tasks]):
            return await _code(process, [reader], tasks, writing)
    finally:
        os.close(master)


class _Stopwatch:
    """Measures functions that write.

    Attributes:
        seconds: The time that they took so far.
        size: The bytes that they got.
    """

    def __init__(self) -> None:
        self.seconds, self.size = 0.0, 0

    def of(self, write: Callable[[bytes], object]) -> Callable[[bytes], None]:
        """Return a function whose calls are measured."""

        def measured(data: bytes) -> None:
            began = time.monotonic()
            try:
                write(data)
            finally:
                self.seconds += time.monotonic() - began
                self.size += len(data)

        return measured


async def _code(
    process: asyncio.subprocess.Process,
    readers: list[asyncio.Task[None]],
    senders: list[asyncio.Task[None]],
    writing: _Stopwatch,
) -> int:
    """Wait for a command's end and its last output, and return its exit code.

    An error of a reader or a sender ends the wait: otherwise the command would wait for ever for
    input, or at a full pipe.
    """
    waiting = asyncio.ensure_future(_returned(process))
    pending: set[asyncio.Task[Any]] = {waiting, *readers, *senders}
    try:
        while not waiting.done():
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        waiting.cancel()
    size, until = writing.size, time.monotonic() - writing.seconds + _LAST_WORDS
    pending = set(readers)
    while pending and (left := until + writing.seconds - time.monotonic()) > 0:
        if writing.size - size > _REST:
            break  # the output of survivors alone
        # In short turns, since what is read meanwhile may end the wait.
        done, pending = await asyncio.wait(
            pending, timeout=min(left, _LOOK), return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            task.result()
    return _as_shell(waiting.result())


async def _returned(process: asyncio.subprocess.Process) -> int:
    """Wait for a process; its own ``wait()`` also waits for what its children hold open."""
    while process.returncode is None:
        await asyncio.sleep(_LOOK)
    return process.returncode


@contextlib.asynccontextmanager
async def _ended(
    process: asyncio.subprocess.Process, tasks: list[asyncio.Task[None]]
) -> AsyncIterator[None]:
    """End the command when the block is left: SIGTERM, and SIGKILL after a grace period."""
    try:
        yield
    finally:
        await cancel_all(tasks)
        try:
            if process.returncode is None:
                await _end(process)
        finally:
            # A surviving child of the command may hold a pipe open. A transport that is closed
            # only after the loop would print an error.
            process._transport.close()  # type: ignore[attr-defined]


async def _end(process: asyncio.subprocess.Process) -> None:
    # The command may write until its end: a full pipe would block it, and this function too.
    streams = [stream for stream in (process.stdout, process.stderr) if stream]
    emptying = [asyncio.ensure_future(_copy(stream, lambda data: None)) for stream in streams]
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.returncode is None:
                _signal(process, number)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_GRACE):
                        await process.wait()
    finally:
        if process.returncode is None:  # the wait itself was cancelled
            _signal(process, signal.SIGKILL)
        await cancel_all(emptying)


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


async def _copy(stream: asyncio.StreamReader, write: Callable[[bytes], object]) -> None:
    while data := await stream.read(_PIECE):
        write(data)


async def _feed(stream: asyncio.StreamWriter | None, data: AsyncIterator[bytes] | None) -> None:
    if stream is None or data is None:
        return
    async for piece in data:
        stream.write(piece)
        try:
            await stream.drain()
        except ConnectionError:  # the command reads no more input
            break
    stream.close()


async def _copy_terminal(master: int, write: Callable[[bytes], object]) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(master, ready.set)
    try:
        while True:
            await ready.wait()
            ready.clear()
            try:
                data = os.read(master, _PIECE)
            except BlockingIOError:
                continue
            except OSError:  # EIO: the last process has closed the terminal
                return
            if not data:
                return
            write(data)
    finally:
        loop.remove_reader(master)


async def _type(master: int, data: AsyncIterator[bytes] | None) -> None:
    if data is None:
        return
    async for piece in data:
        while piece:
            try:
                piece = piece[os.write(master, piece) :]
            except BlockingIOError:  # the command reads more slowly than the user pastes
                await asyncio.sleep(0.02)
            except OSError:  # the command has ended
                return


async def _follow_size(master: int, sizes: AsyncIterator[tuple[int, int]]) -> None:
    async for size in sizes:
        _resize(master, size)


def _resize(master: int, size: tuple[int, int]) -> None:
    columns, rows = size
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _take_terminal(network: Network | None) -> None:
    if network:
        network.enter()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _as_shell(code: int) -> int:
    return code if code >= 0 else 128 - code
