"""Tells once of each new start of a local job, whose line is in the log of every replica.

The supervisor writes the line between the tries, so that each log shows where the next one begins.
A cell with all logs would show it as often as the job has replicas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ciao_kernel.backends.local.retries import PREFIX
from ciao_kernel.model import Notice, Output
from ciao_kernel.model.queries import count_lines

_PREFIX = PREFIX.encode()
_LINE = re.compile(
    rb"^" + re.escape(_PREFIX) + rb"([a-z]+-\d{1,6} was (?:killed|ended) by \w{1,20}); "
    rb"(try \d{1,6} of (\d{1,6}))\n",
    re.M,
)


def without(data: bytes) -> bytes:
    """Return a log without the lines of new starts."""
    return _LINE.sub(b"", data)


class TryLines:
    """Takes the lines of new starts out of the output of a followed job.

    Args:
        name: Name of the job.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._told: set[bytes] = set()

    def pass_on(self, event: Output | Notice) -> Iterator[Output | Notice]:
        """Yield an event; of output with such a line its parts, and a notice for a new start."""
        if not isinstance(event, Output) or _PREFIX not in event.data:
            yield event
            return
        start = 0
        for match in _LINE.finditer(event.data):
            yield from _part(event, start, match.start())
            start = match.end()
            if match[0] not in self._told:
                self._told.add(match[0])
                why, number = match[1].decode(), match[2].decode()
                again = f"{self._name} is started again, {number} (%retries={int(match[3]) - 1})."
                yield Notice(f"{why}; {again}")
        if start:
            yield from _part(event, start, len(event.data), event.tail)
        else:
            yield event


def _part(event: Output, start: int, end: int, tail: bytes = b"") -> Iterator[Output]:
    data = event.data[start:end]
    if data or tail:
        yield Output(event.replica, data, count_lines(data), tail)
