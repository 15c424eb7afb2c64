"""``ciao logs NAME``: show the output of the replicas, with the replica before each line."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import replace

from ciao_kernel import log
from ciao_kernel.commands import Caller
from ciao_kernel.commands.cell_output import CellOutput
from ciao_kernel.commands.read_ahead import ReadAhead
from ciao_kernel.commands.shared_arguments import (
    add_member,
    add_since,
    chosen,
    moment,
    take_replica,
    where,
)
from ciao_kernel.display.lines import NO_LIMIT, Prefixer
from ciao_kernel.errors import BackendError, JobFailed, JobStopped, UsageError
from ciao_kernel.model import ALL_LINES, Event, Job, Notice, Output, Replica
from ciao_kernel.model.queries import LogOptions, count_lines, last_lines
from ciao_kernel.plugins import Backend, Display
from ciao_kernel.session.warm import logs as warm_logs
from ciao_kernel.session.warm.found_runs import find_run

_log = logging.getLogger(__name__)

_PIECE = 1 << 18
_AT_ONCE = 16
"""Number of logs that are requested at a time."""
_AHEAD = 12 << 20
"""Bytes of each of them that may wait in memory for those before it. A node keeps 10 MiB of a log,
and what is read to its end is not lost with a connection that waits for long."""


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the job, ``--replica``, the options for a part of the log, and ``-f``."""
    add_member(verb)
    verb.add_argument("--tail", type=int, metavar="N", help="only the last N lines of each replica")
    add_since(verb)
    verb.add_argument(
        "--previous",
        "-p",
        action="store_true",
        help="show the run before the last restart (jobs on a cluster)",
    )
    verb.add_argument(
        "--run",
        dest="number",
        type=int,
        metavar="N",
        help="only the lines of one run of a job with %%warm",
    )
    verb.add_argument(
        "--timestamps", action="store_true", help="show the time of each line (jobs on a cluster)"
    )
    verb.add_argument("-f", "--follow", action="store_true", help="continue until the job ends")


async def run(args: argparse.Namespace, caller: Caller) -> None:
    """Write the logs replica by replica, or follow them.

    Raises:
        UsageError: The options cannot be combined, or the job has no run with that number.
        BackendError: A log cannot be read; the others are written. With ``--previous``: none can.
    """
    since = _checked(args)
    take_replica(args)
    place = where(args)
    backend, job, _ = await caller.session.find(args.name, place)
    wanted = chosen(args.replica, job)
    if args.follow:
        display = caller.display
        if args.tail is not None:
            display = _Tail(display, await _old(backend, job, wanted, args.tail))
        # The result of the job does not matter here; `attach` fails if the job fails.
        with contextlib.suppress(JobFailed, JobStopped):
            follow = tuple(args.replica)
            await caller.session.attach(
                job.name,
                display,
                follow,
                where=place,
                since=since,
                folder=caller.folder,
                lines=ALL_LINES,
                found=(backend, job),
            )
    else:
        await _write(args, caller, backend, job, wanted, since)


async def _write(
    args: argparse.Namespace,
    caller: Caller,
    backend: Backend,
    job: Job,
    wanted: Sequence[Replica],
    since: float,
) -> None:
    """Write the logs of some replicas as they are now."""
    notices: dict[str, None] = {}
    options = LogOptions(
        tail=args.tail,
        previous=args.previous,
        timestamps=args.timestamps,
        since=since,
        tell=notices.setdefault,
    )
    prefixer = Prefixer(color=caller.color, limit=NO_LIMIT)
    cell = None if caller.terminal else CellOutput.of(caller.write, caller.session.settings)

    async def show(replica: Replica, data: bytes) -> None:
        if cell is not None:
            await _show(cell, prefixer, replica, data)
            return
        for piece in _pieces(data):
            caller.write(prefixer.format(replica, piece))

    faults: list[BackendError] = []
    is_empty, is_cut = True, False
    for some in _groups(wanted):
        asked = [warm_logs.pieces(backend, job, one, options, args.number) for one in some]
        found = [ReadAhead(one, _AHEAD) for one in asked]
        try:
            for replica, one in zip(some, found, strict=True):
                shown = 0
                try:
                    async with contextlib.aclosing(one.pieces()) as pieces:
                        async for data in pieces:
                            shown += len(data)
                            await show(replica, data)
                except BackendError as error:  # the other logs are shown anyway
                    faults.append(error)
                    is_cut |= shown > 0
                is_empty &= not shown
        except asyncio.CancelledError:
            if cell is not None:
                cell.stop()
            raise
        finally:
            await asyncio.gather(*(one.close() for one in found))
    if cell is not None:
        await cell.end()
    if len(faults) == len(wanted):
        raise faults[0]
    if args.number is not None and is_empty and not faults:
        await find_run(backend, job, args.number)  # a run may have no lines, unlike a wrong number
    for notice in notices:
        caller.display.show(Notice(notice))
    # With --previous, only a few replicas have restarted; the others are not an error.
    if faults and (is_cut or not args.previous):
        for fault in faults[1:]:
            caller.display.show(Notice(fault.message))
        raise faults[0]  # the other logs are shown, but an incomplete output is a failure


async def _show(cell: CellOutput, prefixer: Prefixer, replica: Replica, data: bytes) -> None:
    """Write lines into a cell, a piece at a time: they may be gigabytes, which nobody reads."""
    add, shown = cell.stream(), 0
    for piece in _pieces(data):
        if cell.full:
            break
        add(prefixer.format(replica, piece).encode())
        shown += len(piece)
        await cell.drain()
    cell.leave_out(len(data) - shown)


def _pieces(data: bytes) -> Iterator[bytes]:
    """Yield lines in pieces of whole ones: as one text they may take several times their memory."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start + _PIECE) + 1 or len(data)
        yield data[start:end]
        start = end


def _checked(args: argparse.Namespace) -> float:
    """Return the time of ``--since``; raise UsageError for options that cannot be combined."""
    if args.tail is not None and args.tail < 0:
        raise UsageError(f"--tail cannot be {args.tail}.", "Use a number of lines from 0 up.")
    if args.follow:
        if args.number is not None:
            raise UsageError("--run cannot be combined with -f.", "Leave -f or --run out.")
        for option in ("previous", "timestamps"):
            if getattr(args, option):
                raise UsageError(
                    f"--{option} cannot be combined with -f, which shows lines as they come.",
                    f"Leave -f or --{option} out.",
                )
        if args.since and args.tail is not None:
            raise UsageError("-f takes --since or --tail, not both.", "Leave one of them out.")
    return moment(args.since)


def _groups(replicas: Sequence[Replica]) -> Iterator[Sequence[Replica]]:
    """Yield groups of replicas whose logs are requested at once."""
    for start in range(0, len(replicas), _AT_ONCE):
        yield replicas[start : start + _AT_ONCE]


async def _old(
    backend: Backend, job: Job, replicas: Sequence[Replica], tail: int
) -> dict[Replica, int]:
    """Return the number of lines before the tail of each log; following yields them first."""
    counts: list[int] = []
    for some in _groups(replicas):
        counts += await asyncio.gather(*(_older(backend, job, one, tail) for one in some))
    return dict(zip(replicas, counts, strict=True))


async def _older(backend: Backend, job: Job, replica: Replica, tail: int) -> int:
    before = b""
    with log.ignored(_log, "reading an earlier container", BackendError, UsageError):
        before = await warm_logs.read(backend, job, replica, LogOptions(previous=True))
    lines = (
        _with_earlier(backend, job, replica, before)
        if before
        else warm_logs.pieces(backend, job, replica, LogOptions(followed=True))
    )
    try:
        whole, unfinished = await _count(lines)
    except BackendError:
        # An answer that breaks off cannot be replaced in pieces, but as a whole by the saved log.
        whole, unfinished = await _count(_with_earlier(backend, job, replica, before))
    # An unfinished line is a new line: the rest of it is still to come.
    return max(0, whole - max(0, tail - unfinished))


async def _count(pieces: AsyncGenerator[bytes, None]) -> tuple[int, bool]:
    """Return the number of line feeds, and whether a line without one is behind the last."""
    whole, unfinished = 0, False
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            whole += piece.count(b"\n")
            unfinished = not piece.endswith(b"\n")
    return whole, unfinished


async def _with_earlier(
    backend: Backend, job: Job, replica: Replica, before: bytes
) -> AsyncGenerator[bytes, None]:
    """Yield the log of a container, behind that of the one before it in its pod."""
    own = b""
    with log.ignored(_log, "reading the times of lines", BackendError, UsageError):
        # Only lines of the container itself have a time: not those that were saved here.
        own = await warm_logs.read(backend, job, replica, LogOptions(timestamps=True))
    data = await warm_logs.read(backend, job, replica, LogOptions(followed=True))
    saved = data.removesuffix(last_lines(data, count_lines(own)))
    if before not in saved:  # a saved log has the lines of all containers
        yield before
    if data:
        yield data


class _Tail:
    """Skips the first lines of each replica (:class:`ciao_kernel.plugins.Display`)."""

    def __init__(self, display: Display, skip: dict[Replica, int]) -> None:
        self._display = display
        self._skip = skip

    def begin(self, job: Job, follow: tuple[str, ...]) -> None:
        self._display.begin(job, follow)

    def show(self, event: Event) -> None:
        if isinstance(event, Output) and (skip := self._skip.get(event.replica, 0)):
            cut = min(skip, event.lines)
            self._skip[event.replica] = skip - cut
            left = event.lines - cut
            event = replace(event, data=last_lines(event.data, left), lines=left)
        self._display.show(event)

    def conclude(self, error: JobFailed) -> bool:
        return self._display.conclude(error)

    async def end(self) -> None:
        await self._display.end()
