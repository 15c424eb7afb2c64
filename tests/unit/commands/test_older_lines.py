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
    """A backend with the log of an earlier container, and the whole log."""

    def __init__(self, previous: bytes | None, whole: bytes) -> None:
        self.previous, self.whole = previous, whole

    async def log(self, job: Job, replica: Replica, options: LogOptions) -> bytes:
        if not options.previous:
            return self.whole
        if self.previous is None:
            raise BackendError("worker-0 was not restarted.", "Omit --previous.")
        return self.previous


@pytest.mark.parametrize(
    ("previous", "whole", "older"),
    [
        (None, b"1\n2\n3\n", 2),
        (b"1\n2\n", b"3\n4\n", 3),
        (b"1\n2\n", b"0\n1\n2\n3\n4\n", 4),  # the log saved on this machine has all containers
        (b"1\n", b"2\n3", 2),
        (b"", b"", 0),
    ],
)
def test_lines_before_the_tail_count_once(previous: bytes | None, whole: bytes, older: int) -> None:
    backend: Any = Logs(previous, whole)
    found = logs._old(cast(Backend, backend), JOB, [ZERO], 1)
    assert asyncio.run(found) == {ZERO: older}
