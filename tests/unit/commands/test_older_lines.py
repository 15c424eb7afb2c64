"""How many lines ``ciao logs -f --tail`` leaves out: following begins with a log's first line."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from ciao_kernel.commands import logs
from ciao_kernel.errors import BackendError
from ciao_kernel.model import Job, Replica
from ciao_kernel.model.queries import LogOptions
from ciao_kernel.plugins import Backend

ZERO = Replica("worker", 0)
JOB = Job("mine", "kubernetes", "tensorflow", (ZERO,), 0.0, "team")


class Logs:
    """A backend with the log of an earlier container, and that of this one with saved lines."""

    def __init__(self, previous: bytes | None, saved: bytes, own: bytes | None) -> None:
        self.previous, self.saved, self.own = previous, saved, own

    async def log(self, job: Job, replica: Replica, options: LogOptions) -> bytes:
        if options.timestamps:
            if self.own is None:
                raise BackendError("the log cannot be read from the cluster.", "")
            return b"".join(b"2026-01-01T00:00:00Z %b" % one for one in self.own.splitlines(True))
        if not options.previous:
            return self.saved + (self.own or b"")
        if self.previous is None:
            raise BackendError("worker-0 was not restarted.", "Omit --previous.")
        return self.previous


@pytest.mark.parametrize(
    ("previous", "saved", "own", "older"),
    [
        (None, b"", b"1\n2\n3\n", 2),
        (b"1\n2\n", b"", b"3\n4\n", 3),
        # The log saved on this machine has all containers.
        (b"1\n2\n", b"0\n1\n2\n", b"3\n4\n", 4),
        (b"1\n2\n", b"0\n1\n2\n3\n", None, 3),
        (b"1\n", b"", b"2\n3", 2),
        # A program that begins anew writes what it has written before.
        (b"1\n2\n", b"", b"1\n2\n3\n", 4),
        (b"1\n2\n", b"1\n2\n", b"1\n2\n3", 4),
        (b"1\n2\n", b"0\n", b"1\n2\n", 4),
        (b"", b"", b"", 0),
    ],
)
def test_lines_before_the_tail_count_once(
    previous: bytes | None, saved: bytes, own: bytes | None, older: int
) -> None:
    backend: Any = Logs(previous, saved, own)
    found = logs._old(cast(Backend, backend), JOB, [ZERO], 1)
    assert asyncio.run(found) == {ZERO: older}
