"""A log of gigabytes is written while it is read, and looks as if it had been read as a whole."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel import commands
from ciao_kernel.backends.kubernetes.backend import KubernetesBackend
from ciao_kernel.backends.local.backend import LocalBackend
from ciao_kernel.commands import logs
from ciao_kernel.commands.read_ahead import ReadAhead
from ciao_kernel.config import Settings
from ciao_kernel.delivery.inspection import breakpoints, debug_wire
from ciao_kernel.delivery.warm import marks
from ciao_kernel.delivery.warm.marks import marker
from ciao_kernel.errors import BackendError, ClusterFault
from ciao_kernel.model import Event, Job, Notice, Replica, State, Status
from ciao_kernel.model.log_pieces import last, whole_lines
from ciao_kernel.model.queries import WHOLE_LOG, LogOptions, last_lines
from ciao_kernel.plugins import Streaming
from ciao_kernel.session.warm import logs as warm_logs

ZERO, ONE, TWO = (Replica("worker", number) for number in range(3))
JOB = Job("mine", "kubernetes", "tensorflow", (ZERO, ONE, TWO), 1.0, "team")
LONG = b"".join(b"line %06d %b\n" % (number, b"x" * 40) for number in range(10_000))
"""More than a reader takes together."""

Log = Callable[[LogOptions], AsyncGenerator[bytes, None]]


class Place:
    """A session with one job, and its backend, which reads logs in pieces alone."""

    def __init__(self, **logs: Log) -> None:
        self.logs = {name.replace("_", "-"): log for name, log in logs.items()}
        self.settings = Settings()
        self.shown: list[Event] = []
        self.written: list[str] = []
        self.closed: list[str] = []

    async def find(self, *_: object) -> tuple[Place, Job, Status]:
        return self, JOB, Status(State.RUNNING, ())

    async def log_pieces(
        self, job: Job, replica: Replica, options: LogOptions = WHOLE_LOG
    ) -> AsyncGenerator[bytes, None]:
        try:
            async for piece in self.logs[str(replica)](options):
                yield piece
        finally:
            self.closed.append(str(replica))

    def show(self, event: Event) -> None:
        self.shown.append(event)

    def write(self, text: str) -> None:
        self.written.append(text)

    @property
    def text(self) -> str:
        return "".join(self.written)

    async def ask(self, *words: str, terminal: bool = True) -> None:
        verb = argparse.ArgumentParser()
        logs.arguments(verb)
        here: Any = self
        caller = commands.Caller(here, here, self.write, Path(), terminal=terminal)
        await logs.run(verb.parse_args(["mine", *words]), caller)

    async def until(self, done: Callable[[], bool]) -> None:
        """Wait until something is so; what has ended by itself without it would wait for ever."""
        async with asyncio.timeout(60):
            while not done():
                await asyncio.sleep(0.001)


def of(*pieces: bytes) -> Log:
    async def log(options: LogOptions) -> AsyncGenerator[bytes, None]:
        for piece in pieces:
            yield piece

    return log


def prefixed(replica: Replica, data: bytes) -> str:
    lines = data.decode().removesuffix("\n").split("\n")
    return "".join(f"[{replica}] {line}\n" for line in lines) if data else ""


def failing(*pieces: bytes) -> Log:
    async def log(options: LogOptions) -> AsyncGenerator[bytes, None]:
        for piece in pieces:
            yield piece
        raise ClusterFault("the connection was closed.")

    return log


@pytest.mark.parametrize("terminal", [True, False])
def test_lines_are_written_before_the_rest_of_the_log_is_there(terminal: bool) -> None:
    async def main() -> None:
        async def second_half_later(options: LogOptions) -> AsyncGenerator[bytes, None]:
            yield LONG + b"half a "
            await place.until(lambda: "line 000000" in place.text)
            yield b"line, and\nthe end"

        place = Place(worker_0=second_half_later, worker_1=of(b"one\n"), worker_2=of())
        await place.ask(terminal=terminal)
        wanted = prefixed(ZERO, LONG + b"half a line, and\nthe end") + prefixed(ONE, b"one\n")
        assert place.text == wanted
        assert place.closed == ["worker-1", "worker-2", "worker-0"]

    asyncio.run(main())


def test_logs_that_wait_are_read_ahead_up_to_a_limit() -> None:
    read = 0

    async def long() -> AsyncGenerator[bytes, None]:
        nonlocal read
        while read < 1_000_000:
            read += 1
            yield b"1234"

    async def main() -> None:
        ahead = ReadAhead(long(), 10)
        for _ in range(100):
            await asyncio.sleep(0)
        assert read == 3
        pieces = ahead.pieces()
        found = await anext(pieces)
        assert found == b"1234" * (len(found) // 4)
        assert read < len(found) // 4 + 5
        await ahead.close()

    asyncio.run(main())


@pytest.mark.parametrize(("end", "tail", "older"), [(b"", 2, 0), (b"rest", 2, 1), (b"rest", 0, 2)])
def test_a_followed_tail_counts_lines_without_holding_the_log(
    end: bytes, tail: int, older: int
) -> None:
    many = 200

    class Local(Place):
        async def log(self, job: Job, replica: Replica, options: LogOptions) -> bytes:
            assert options.previous
            raise BackendError("on this machine a replica's log has all its runs.")

    async def long(options: LogOptions) -> AsyncGenerator[bytes, None]:
        assert options == LogOptions(followed=True)
        for _ in range(many):
            yield b"x" * (len(LONG) // 2) + b"\n"
        yield b"the last\nof them\n" + end

    place: Any = Local(worker_0=long)
    tracemalloc.start()
    try:
        found = asyncio.run(logs._old(place, JOB, [ZERO], tail))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == {ZERO: many + older}
    assert peak < 10 * len(LONG)


def test_a_followed_tail_of_an_answer_that_breaks_off_counts_what_is_saved() -> None:
    class Saved(Place):
        async def log(self, job: Job, replica: Replica, options: LogOptions) -> bytes:
            if options.previous:
                raise BackendError("it was not restarted.")
            return b"1\n2\n3\n"

    place: Any = Saved(worker_0=failing(b"1\n"))
    assert asyncio.run(logs._old(place, JOB, [ZERO], 2)) == {ZERO: 1}
    assert place.closed == ["worker-0"]
    place = Place(worker_0=failing())
    place.log = failing_log
    with pytest.raises(ClusterFault):
        asyncio.run(logs._old(place, JOB, [ZERO], 2))


async def failing_log(*_: object) -> bytes:
    raise ClusterFault("the connection was closed.")


def test_a_log_that_breaks_off_is_shown_so_far_and_is_a_failure() -> None:
    async def main() -> None:
        place = Place(worker_0=of(b"a\n"), worker_1=failing(LONG, b"1"), worker_2=of(b"b\n"))
        for words in ((), ("--previous",)):
            place.written.clear()
            with pytest.raises(ClusterFault, match="the connection was closed"):
                await place.ask(*words)
            told = prefixed(ZERO, b"a\n") + prefixed(ONE, LONG) + prefixed(TWO, b"b\n")
            assert place.text == told
        assert not place.shown

    asyncio.run(main())


def test_an_error_of_one_log_stands_beside_the_others_and_their_notices() -> None:
    async def tells(options: LogOptions) -> AsyncGenerator[bytes, None]:
        options.tell("these lines may be old.")
        yield b"a\n"

    async def main() -> None:
        place = Place(worker_0=failing(), worker_1=tells, worker_2=failing())
        with pytest.raises(ClusterFault):
            await place.ask()
        assert place.text == prefixed(ONE, b"a\n")
        notices = ["these lines may be old.", "the connection was closed."]
        assert place.shown == [Notice(text) for text in notices]
        place = Place(worker_0=failing(), worker_1=tells, worker_2=failing())
        await place.ask("--previous")

    asyncio.run(main())


def test_nothing_is_read_for_a_reader_that_is_gone() -> None:
    """As in ``ciao logs mine | head``."""

    async def endless(options: LogOptions) -> AsyncGenerator[bytes, None]:
        while True:
            yield LONG
            await asyncio.sleep(0)

    class Gone(Place):
        def write(self, text: str) -> None:
            super().write(text)
            raise BrokenPipeError

    async def main() -> None:
        place = Gone(worker_0=endless, worker_1=endless, worker_2=endless)
        with pytest.raises(BrokenPipeError):
            await place.ask()
        assert len(place.written) == 1
        assert sorted(place.closed) == ["worker-0", "worker-1", "worker-2"]

    asyncio.run(main())


@pytest.mark.parametrize("terminal", [True, False])
def test_an_interrupt_ends_all_reading(terminal: bool) -> None:
    async def hangs(options: LogOptions) -> AsyncGenerator[bytes, None]:
        yield LONG
        await asyncio.Event().wait()

    async def main() -> None:
        place = Place(worker_0=hangs, worker_1=hangs, worker_2=of())
        asking = asyncio.create_task(place.ask(terminal=terminal))
        await place.until(lambda: place.text == prefixed(ZERO, LONG))
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert place.text == prefixed(ZERO, LONG)
        assert sorted(place.closed) == ["worker-0", "worker-1", "worker-2"]

    asyncio.run(main())


def test_an_interrupt_tells_in_a_cell_what_it_does_not_show() -> None:
    async def main() -> None:
        place = Place(worker_0=of(LONG), worker_1=of(), worker_2=of())
        place.settings = replace(place.settings, output_rate=1000.0)
        asking = asyncio.create_task(place.ask(terminal=False))
        await place.until(lambda: bool(place.text))
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert place.text.endswith(" more bytes are not shown.\n")

    asyncio.run(main())


def test_a_full_cell_counts_what_comes_after_it() -> None:
    async def main() -> None:
        place = Place(worker_0=of(*[LONG] * 9), worker_1=of(LONG), worker_2=of())
        place.settings = replace(place.settings, output_limit=len(prefixed(ZERO, LONG)))
        await place.ask(terminal=False)
        shown, _, said = place.text.partition("\n…")
        assert prefixed(ZERO, LONG).startswith(shown)
        left = int(said.split()[0].replace(",", ""))
        # Behind the limit only the bytes of the logs count.
        assert len(LONG) * 10 <= left + len(shown) < len(prefixed(ZERO, LONG)) * 10

    asyncio.run(main())


MARKER = debug_wire.MARKER.encode()
STOP = json.dumps(
    {"pid": 7, "at": "line 3", "again": False, "asked": False, "over": False, "failed": ""}
).encode()


def mark(**what: object) -> bytes:
    return b"\n" + marker("0" * 16) + json.dumps(what).encode() + b"\n"


def random_log(chance: random.Random, *, is_warm: bool) -> bytes:
    """Lines, empty ones, open ones before a marker, and a last one with or without its end."""
    words = [
        b"a line\n",
        b"\n",
        b"open",
        b"",
        MARKER + STOP + b"\n",
        b"[1] " + MARKER + STOP + b"\n",
    ]
    parts = [chance.choice(words) for _ in range(chance.randrange(30))]
    if is_warm:
        for number in range(1, 4):
            parts.insert(chance.randrange(len(parts) + 1), mark(ev="begin", id=number))
            parts.insert(chance.randrange(len(parts) + 1), mark(ev="end", id=number))
        parts.insert(0, chance.choice([b"", mark(ev="ready", root="/x")]))
    return b"".join(parts)


class Cut:
    """A backend whose log comes in pieces that end anywhere, or as a whole."""

    def __init__(self, data: bytes, chance: random.Random) -> None:
        self.data, self.chance = data, chance

    async def log(self, job: Job, replica: Replica, options: LogOptions = WHOLE_LOG) -> bytes:
        return self.data if options.tail is None else last_lines(self.data, options.tail)

    async def log_pieces(
        self, job: Job, replica: Replica, options: LogOptions = WHOLE_LOG
    ) -> AsyncGenerator[bytes, None]:
        data, at = await self.log(job, replica, options), 0
        while at < len(data):
            size = self.chance.choice((1, 2, 5, 30, 300))
            yield data[at : at + size]
            at += size


def shown(data: bytes, tail: int | None, run: int | None, *, is_warm: bool) -> bytes:
    """What a person sees of a log that is there as a whole."""
    if is_warm:
        lines = breakpoints.without(marks.lines(data, run))
        return lines if tail is None else last_lines(lines, tail)
    part = data if tail is None else last_lines(data, tail)
    if tail is None or breakpoints.without(part) == part:
        return breakpoints.without(part)
    return last_lines(breakpoints.without(data), tail)


@pytest.mark.parametrize("seed", range(60))
def test_pieces_are_the_log_whatever_is_cut(seed: int) -> None:
    chance = random.Random(seed)
    is_warm = seed % 2 == 1
    job = replace(JOB, header="%warm=10m\n") if is_warm else JOB
    data = random_log(chance, is_warm=is_warm)
    backend: Any = Cut(data, chance)
    whole: Any = WholeOnly(data)

    async def main() -> None:
        for tail in (None, 0, 1, 3, 100):
            for run in (None, 1, 2, 9) if is_warm else (None,):
                options = LogOptions(tail=tail)
                wanted = shown(data, tail, run, is_warm=is_warm)
                assert await warm_logs.read(whole, job, ZERO, options, run) == wanted
                found = [one async for one in warm_logs.pieces(backend, job, ZERO, options, run)]
                assert b"".join(found) == wanted
                assert all(one.endswith(b"\n") for one in found[:-1])
        timed = LogOptions(since=1.0)
        wanted = breakpoints.without(marks.without(data) if is_warm else data)
        assert await warm_logs.read(whole, job, ZERO, timed) == wanted
        pieces = warm_logs.pieces(backend, job, ZERO, timed)
        assert b"".join([one async for one in pieces]) == wanted

    asyncio.run(main())


class WholeOnly:
    """A backend that does not stream, such as one of another package."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    async def log(self, job: Job, replica: Replica, options: LogOptions = WHOLE_LOG) -> bytes:
        return self.data if options.tail is None else last_lines(self.data, options.tail)


def test_the_backends_of_ciao_stream() -> None:
    assert isinstance(LocalBackend(Settings()), Streaming)
    assert isinstance(KubernetesBackend(Settings()), Streaming)


def test_a_backend_that_does_not_stream_is_read_as_a_whole() -> None:
    async def main() -> None:
        backend: Any = WholeOnly(LONG + b"end")
        assert [one async for one in warm_logs.pieces(backend, JOB, ZERO)] == [LONG, b"end"]

    asyncio.run(main())


@pytest.mark.parametrize("data", [b"", b"a", b"a\n", b"a\n\n", b"a\nb\nc\nd", b"a\nb\nc\nd\n"])
@pytest.mark.parametrize("size", [1, 2, 3, 99])
def test_the_last_lines_of_pieces_are_those_of_the_log(data: bytes, size: int) -> None:
    async def pieces() -> AsyncGenerator[bytes, None]:
        for start in range(0, len(data), size):
            yield data[start : start + size]

    async def main() -> None:
        for number in range(6):
            assert await last(whole_lines(pieces()), number) == last_lines(data, number)
        assert b"".join([one async for one in whole_lines(pieces())]) == data

    asyncio.run(main())
