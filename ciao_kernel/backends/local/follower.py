"""Follows a local job: yields its log lines and its status, exactly once and in order.

It polls, because the standard library has no file events. A read of a file that did not grow takes
a few microseconds; :mod:`.polling` says when it reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from ciao_kernel.backends.local import hosts, sweeps, views
from ciao_kernel.backends.local.log_reader import LogReader
from ciao_kernel.backends.local.polling import PollPauses
from ciao_kernel.backends.local.record import Folder
from ciao_kernel.backends.local.try_lines import TryLines
from ciao_kernel.errors import JobLost, JobStopped
from ciao_kernel.model import Event, Job, Notice, Output, Status

_CHECK = 0.5
"""Seconds between two checks that the supervisor is alive."""
_PATIENCE = 10.0
"""Seconds in which the ends of logs are read again if that fails."""


async def follow(job: Job, folder: Folder, host: hosts.Host) -> AsyncGenerator[Event, None]:
    """Yield a job's output and states until it is settled.

    Raises:
        JobLost: The supervisor died before it settled the job; remaining processes are ended.
        JobStopped: The job was deleted in the meantime.
    """
    readers = [LogReader(replica, folder.log(str(replica))) for replica in job.replicas]
    tries = TryLines(job.name)
    watch = _Watch(folder, host)
    pauses = PollPauses(len(readers))
    checked = time.monotonic()
    held: Status | None = None
    runs = (1, 0)
    with contextlib.ExitStack() as opened:
        for reader in readers:
            opened.callback(reader.close)
        while True:
            # Status first: if it is settled, the logs, read after it, are complete.
            changed = watch.look()
            if watch.over:
                break
            if changed is not None and (held or _runs(changed) > runs):
                held = changed  # behind the lines of the runs before
            elif changed is not None:
                yield changed
            found = False
            for reader in readers:
                for read in reader.read():
                    found = True
                    for event in tries.pass_on(read):
                        yield event
            if held and not any(reader.more for reader in readers):
                yield held
                runs, held = _runs(held), None
            now = time.monotonic()
            if now - checked > _CHECK:
                checked = now
                if watch.is_lost():
                    break
            more = any(reader.more for reader in readers)
            pause = pauses.after(found=found)
            await asyncio.sleep(0 if more else pause)
        if watch.lost and not watch.elsewhere:
            # No other process would end the remaining processes.
            with contextlib.suppress(OSError, ValueError):
                await sweeps.sweep(folder.read_job()["id"])
        async with contextlib.aclosing(_rest(readers, tries)) as rest:
            async for event in rest:
                yield event
        if watch.deleted:
            raise JobStopped(f"{job.name} was deleted while it was followed; its files are gone.")
        assert watch.status is not None
        if watch.lost:
            yield views.lost(folder, watch.status, silent=watch.may_sleep)
            raise _lost(job, folder, watch.elsewhere if watch.may_sleep else "")
        yield watch.status


async def _rest(
    readers: Sequence[LogReader], tries: TryLines
) -> AsyncGenerator[Output | Notice, None]:
    """Yield the lines that are left at the end of a job, and say which logs end too early."""
    until = time.monotonic() + _PATIENCE
    for reader in readers:
        last = False
        while not last:
            last = time.monotonic() > until
            for read in reader.rest(last=last):
                for event in tries.pass_on(read):
                    yield event
                await asyncio.sleep(0)
            last = last or not reader.failed
            await asyncio.sleep(0 if last else _CHECK)
        if reader.failed:
            yield Notice(
                f"the log of {reader.replica} cannot be read to its end; lines may be missing."
            )


def _runs(status: Status) -> tuple[int, int]:
    """Return how often the job was tried, and its replicas were started again."""
    return status.tries, sum(one.restarts for one in status.replicas)


class _Watch:
    """Watches a job's status file and its supervisor."""

    def __init__(self, folder: Folder, host: hosts.Host) -> None:
        self.status: Status | None = None
        self.deleted = False
        self.lost = False
        self._folder = folder
        self._host = host
        self._record: dict[str, Any] = {}
        self._stamp: tuple[int, ...] = ()

    @property
    def over(self) -> bool:
        """Return whether no more events can follow."""
        return self.deleted or (self.status is not None and self.status.settled)

    @property
    def elsewhere(self) -> str:
        """Return the name of the machine that runs the job; empty for this machine."""
        supervisor = self._record.get("supervisor", {})
        return "" if self._host.has(supervisor) else hosts.name(supervisor)

    @property
    def may_sleep(self) -> bool:
        """Return whether the job runs on another machine, which may only be silent."""
        return self._host.may_sleep(self._record.get("supervisor", {}))

    def look(self, *, stamp_counts: bool = True) -> Status | None:
        """Return the status if it changed."""
        try:
            stat = self._folder.status_file.lstat()
            stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size)
            if stamp == self._stamp and stamp_counts:
                return None
            record = self._folder.read_status()
        except (FileNotFoundError, NotADirectoryError):
            self.deleted = True
            return None
        except (OSError, ValueError):
            # As after a power cut. The next read may succeed. No first status means no job.
            self.deleted = self.status is None
            return None
        before = self._record
        if record is None or (before and record["supervisor"] != before["supervisor"]):
            self.deleted = True  # It may belong to a later job of the same name.
            return None
        self._stamp, self._record = stamp, record
        if record == before:
            return None  # Only a heartbeat.
        self.status = views.status(self._folder, record)
        return self.status

    def is_lost(self) -> bool:
        """Return whether the supervisor died without a last status; also sets :attr:`lost`."""
        if self.status is None or self._host.is_supervisor_alive(self._folder, self._record):
            return False
        # It may have settled the job just before it ended, and the file's times may be equal for
        # two records written within one tick of the file system's clock.
        self.look(stamp_counts=False)
        self.lost = not self.over
        return self.lost


def _lost(job: Job, folder: Folder, elsewhere: str) -> JobLost:
    with contextlib.suppress(OSError, ValueError):
        if said := folder.supervisor_said():
            return JobLost(
                f"the process that runs {job.name} failed: {said[-1]}",
                f"Its full output is in {folder.supervisor_log}.",
            )
    if elsewhere:
        return JobLost(
            f"the process that runs {job.name} on {elsewhere} gives no sign of life.",
            f"Check {elsewhere}. `%ciao delete {job.name}` removes what is left here.",
        )
    return JobLost(
        f"the process that runs {job.name} is gone: it was killed, or this machine was restarted.",
        f"Run the job again. `%ciao delete {job.name}` removes what is left.",
    )
