"""``ciao logs NAME``: what the replicas wrote, each line behind its replica."""

from __future__ import annotations

import argparse
import contextlib
from dataclasses import replace

from ciao_kernel.commands import Face, add_job, add_replica, chosen
from ciao_kernel.display.lines import NO_LIMIT, Prefixer
from ciao_kernel.errors import JobFailed, JobStopped, UsageError
from ciao_kernel.model import Event, Job, Output, Replica
from ciao_kernel.plugins import Backend, Display

_FIRST_LOOK = 1 << 16


def arguments(verb: argparse.ArgumentParser) -> None:
    """The job, which replicas, how much, and ``-f``."""
    add_job(verb)
    add_replica(verb)
    verb.add_argument("--tail", type=int, metavar="N", help="only the last N lines of each replica")
    verb.add_argument("-f", "--follow", action="store_true", help="go on until the job ends")


async def run(args: argparse.Namespace, face: Face) -> None:
    """Write the logs replica by replica, or follow them."""
    if args.tail is not None and args.tail < 0:
        raise UsageError(f"--tail cannot be {args.tail}.", "Give a number of lines from 0 up.")
    backend, job, _ = await face.session.find(args.name)
    wanted = chosen(args.replica, job)
    if args.follow:
        display = face.display
        if args.tail is not None:
            skip = {one: await _old(backend, job, one, args.tail) for one in wanted}
            display = _Tail(display, skip)
        # How the job ends is not what was asked for: `attach` fails as the job does.
        with contextlib.suppress(JobFailed, JobStopped):
            await face.session.attach(job.name, display, tuple(args.replica))
        return
    prefixer = Prefixer(color=face.color, limit=NO_LIMIT, replicas=job.replicas)
    for replica in wanted:
        if data := await _read(backend, job, replica, args.tail):
            face.write(prefixer.format(replica, data))


async def _read(backend: Backend, job: Job, replica: Replica, tail: int | None) -> bytes:
    """The last lines of a log, without reading all of a long one."""
    if tail is None:
        return await backend.log(job, replica)
    size = _FIRST_LOOK
    while True:
        data = await backend.log(job, replica, last=size)
        lines = data.removesuffix(b"\n").split(b"\n")
        if len(data) < size or len(lines) > tail:
            return b"\n".join(lines[len(lines) - tail :]) if tail and data else b""
        size *= 4


async def _old(backend: Backend, job: Job, replica: Replica, tail: int) -> int:
    """How many lines of a log are older than its last ones."""
    data = await backend.log(job, replica)
    return max(0, data.count(b"\n") + (data[-1:] not in (b"", b"\n")) - tail)


class _Tail:
    """Leaves out the first lines of each replica (:class:`ciao_kernel.plugins.Display`)."""

    def __init__(self, display: Display, skip: dict[Replica, int]) -> None:
        self._display = display
        self._skip = skip

    def begin(self, job: Job, follow: tuple[str, ...]) -> None:
        self._display.begin(job, follow)

    def show(self, event: Event) -> None:
        if isinstance(event, Output) and (skip := self._skip.get(event.replica, 0)):
            cut = min(skip, event.lines)
            self._skip[event.replica] = skip - cut
            place = 0
            for _ in range(cut):
                place = event.data.find(b"\n", place) + 1 or len(event.data)
            event = replace(event, data=event.data[place:], lines=event.lines - cut)
        self._display.show(event)

    async def end(self) -> None:
        await self._display.end()
