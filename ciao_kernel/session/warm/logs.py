"""Logs and events of jobs without markers: those of warm runs, and those of breakpoints."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from ciao_kernel import log, private_files
from ciao_kernel.delivery.inspection import breakpoints
from ciao_kernel.delivery.inspection.breakpoints import Breakpoint, MarkerFilter
from ciao_kernel.delivery.output import results, values_message
from ciao_kernel.delivery.warm import marks
from ciao_kernel.delivery.warm.marks import MarkReader
from ciao_kernel.errors import UsageError
from ciao_kernel.magics.directives import outputs, warm
from ciao_kernel.model import Event, Job, Output, Replica, Status
from ciao_kernel.model.log_pieces import last, whole_lines
from ciao_kernel.model.queries import WHOLE_LOG, LogOptions, count_lines
from ciao_kernel.plugins import Backend, Streaming
from ciao_kernel.session.warm.found_runs import refuse_unless_warm
from ciao_kernel.session.warm.logged_files import LoggedFiles

_log = logging.getLogger(__name__)

_Log = Callable[[LogOptions], AsyncGenerator[bytes, None]]
"""Returns a part of one log, in pieces that end anywhere."""


async def read(
    backend: Backend,
    job: Job,
    replica: Replica,
    options: LogOptions = WHOLE_LOG,
    run: int | None = None,
) -> bytes:
    """Return the log of a replica, or the lines of one run in it.

    Args:
        backend: The job's backend.
        job: The job.
        replica: The replica.
        options: The part to return.
        run: Number of a run of a warm job; None means all lines.

    Raises:
        UsageError: The job has no runs, or an option cannot be combined with one.
        BackendError: The log does not exist.
    """
    return b"".join(
        [piece async for piece in _shown(_whole(backend, job, replica), job, options, run)]
    )


async def pieces(
    backend: Backend,
    job: Job,
    replica: Replica,
    options: LogOptions = WHOLE_LOG,
    run: int | None = None,
) -> AsyncGenerator[bytes, None]:
    """Yield what :func:`read` returns, in pieces of whole lines, as the backend reads them.

    Only the last lines that ``options.tail`` asks for are held, and all of a log whose backend is
    not :class:`~ciao_kernel.plugins.Streaming`.

    Raises:
        UsageError: As :func:`read`.
        BackendError: The log does not exist, or its rest cannot be read.
    """
    log = _whole(backend, job, replica)
    if isinstance(backend, Streaming):
        log = partial(backend.log_pieces, job, replica)
    async with aclosing(_shown(log, job, options, run)) as found:
        async for piece in found:
            yield piece


def _whole(backend: Backend, job: Job, replica: Replica) -> _Log:
    async def log(options: LogOptions) -> AsyncGenerator[bytes, None]:
        yield await backend.log(job, replica, options)

    return log


async def _shown(
    log: _Log, job: Job, options: LogOptions, run: int | None
) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a log that a person may see, in pieces of whole lines."""
    if not warm.is_warm(job.header):
        if run is not None:
            refuse_unless_warm(job)
        lines = _lines(log(options)) if options.tail is None else _last_lines(log, options)
    elif options.timestamps or options.since:
        if run is not None:
            raise UsageError(
                "--run cannot be combined with --timestamps or --since.", "Leave one of them out."
            )
        # Here an empty line belongs to the marker after it, which may be that of the next piece.
        data = b"".join([piece async for piece in log(options)])
        lines = _each([breakpoints.without(marks.without(data))])
    else:
        # Following shows all of it.
        asked = LogOptions(previous=options.previous, tell=options.tell)
        lines = _lines(_of_runs(log(asked), run))
        if options.tail is not None:
            lines = _each([await last(lines, options.tail)])
    async with aclosing(lines):
        async for piece in lines:
            if piece:
                yield piece


async def _last_lines(log: _Log, options: LogOptions) -> AsyncGenerator[bytes, None]:
    held = [piece async for piece in whole_lines(log(options))]
    if options.tail is not None and any(breakpoints.without(one) != one for one in held):
        # Without its markers it has fewer lines than were asked for.
        held = [await last(_lines(log(replace(options, tail=None))), options.tail)]
    for piece in held:
        yield piece


async def _each(held: list[bytes]) -> AsyncGenerator[bytes, None]:
    for piece in held:
        yield piece


def _lines(log: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Return whole lines without the markers of breakpoints."""

    async def stripped() -> AsyncGenerator[bytes, None]:
        async with aclosing(whole_lines(log)) as found:
            async for piece in found:
                yield breakpoints.without(piece)

    return whole_lines(stripped())  # a marker may have been behind the begin of a line


async def _of_runs(
    log: AsyncGenerator[bytes, None], run: int | None
) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a warm replica without its markers, or those of one run."""
    reader = marks.RunReader(run)
    async with aclosing(whole_lines(log)) as found:
        async for piece in found:
            yield reader.read(piece)
    yield reader.rest()


def follow(
    backend: Backend,
    job: Job,
    since: float = 0.0,
    at_breakpoint: Callable[[Replica, Breakpoint], None] = lambda *_: None,
) -> AsyncIterator[Event]:
    """Follow a job as its backend does; the markers in its lines are left out.

    What the markers of a warm job bring is kept: values and files of ``%output``.

    Args:
        backend: The job's backend.
        job: The job.
        since: Seconds since the epoch; older lines are left out.
        at_breakpoint: Receives what the markers of breakpoints say.
    """
    events = backend.follow(job, since=since)
    # A run in warm replicas has its own events, which have no markers.
    strips = warm.is_warm(job.header) and not job.warm_run
    events = _without_markers(events, job, backend) if strips else events
    return _without_breakpoints(events, at_breakpoint)


def keep_values(job: Job, replica: Replica, marker: Mapping[str, Any]) -> None:
    """Save the values of ``%output`` that the end marker of a run in a pod has.

    Args:
        job: The job, or the run.
        replica: The replica that wrote the marker.
        marker: Its content; it is foreign input.
    """
    run, text = marker.get("id"), marker.get("values")
    if marker.get("ev") != "end" or not isinstance(run, int) or not isinstance(text, str):
        return
    if outputs.words_in(job.header):
        with log.ignored(_log, "saving values", OSError, private_files.Untrusted):
            values_message.unpack(text, results.folder(job.files, replica, run))


async def _without_markers(
    events: AsyncIterator[Event], job: Job, backend: Backend
) -> AsyncIterator[Event]:
    readers: defaultdict[Replica, MarkReader] = defaultdict(MarkReader)
    files = LoggedFiles(job, backend)
    try:
        async for event in events:
            if not isinstance(event, Output):
                yield event
                continue
            parts = readers[event.replica].read(event.data)
            data = b""
            for part in parts:
                if isinstance(part, bytes):
                    data += part
                else:
                    keep_values(job, event.replica, part)
                    for notice in await files.take(event.replica, part):
                        yield notice
            tail = b"" if event.tail.startswith(b"\x1e") else event.tail
            if data or tail:
                lines = count_lines(data)
                yield Output(event.replica, data, lines, tail)
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()


async def _without_breakpoints(
    events: AsyncIterator[Event], receive: Callable[[Replica, Breakpoint], None]
) -> AsyncIterator[Event]:
    # Replicas may be added to an elastic job.
    filters: defaultdict[Replica, MarkerFilter] = defaultdict(MarkerFilter)
    begun: dict[Replica, tuple[int, int]] = {}
    try:
        async for event in events:
            if isinstance(event, Output):
                data, tail, found = filters[event.replica].read(event.data, event.tail)
                if data is event.data and tail == event.tail:
                    yield event
                elif data or tail:
                    lines = count_lines(data)
                    yield Output(event.replica, data, lines, tail)
                for one in found:
                    receive(event.replica, one)
                continue
            if isinstance(event, Status):
                for one_status in event.replicas:
                    replica, start = one_status.replica, (event.tries, one_status.restarts)
                    is_new = begun.get(replica, start) != start
                    begun[replica] = start
                    # Who left a line open is gone, and cannot go on with it.
                    if is_new and (rest := filters[replica].rest()):
                        yield Output(replica, rest + b"\n", 1)
            if isinstance(event, Status) and event.state.over:
                for replica, one_filter in filters.items():
                    if rest := one_filter.rest():
                        yield Output(replica, rest, 1)
            yield event
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
