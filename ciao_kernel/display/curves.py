"""What a display keeps of a job whose cell says ``%plot``; for other jobs it is not imported."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from ciao_kernel.display.plot import describe, draw, unseen
from ciao_kernel.display.shapes import Picture
from ciao_kernel.metrics import Metrics
from ciao_kernel.model import Job, Output

_SHARE = 0.25
"""Part of the time that reading may take; of replicas that write faster only some is read."""
_BURST = 1.0
_SAMPLE = 4096
"""Bytes of an output that are read where time is short."""
_EPOCH = re.compile(rb"^\W{0,20}epoch\b[^\n]{0,200}", re.I | re.M)


class Curves:
    """The metrics of a job that is followed.

    Args:
        job: The job.
        wishes: The metrics that it asks for.
        clock: Seconds, monotonic.
    """

    def __init__(
        self, job: Job, wishes: tuple[str, ...], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.stale = False
        """Whether something changed since the last :meth:`picture`."""
        self._metrics = Metrics(wishes)
        self._job = job
        self._clock = clock
        self._credit = _BURST
        self._counted = clock()

    def output(self, event: Output) -> None:
        """Read what a replica wrote, and the bar that it is just drawing."""
        started = self._clock()
        self._credit = min(_BURST, self._credit + _SHARE * (started - self._counted))
        data = event.data if self._credit > 0 else _sample(event.data)
        if data:
            self.stale |= self._metrics.add(event.replica, data)
        if event.tail:
            self.stale |= self._metrics.peek(event.replica, event.tail)
        self._counted = self._clock()
        self._credit -= self._counted - started

    def picture(self) -> Picture | None:
        """The curves as they are now; None while there is no point."""
        self.stale = False
        names = [name for name in self._metrics.wishes if name not in self._metrics.missing]
        title = f"{' and '.join(names)} of {self._job.name}"
        return draw(self._metrics, title) if names else None

    def lines(self) -> list[str]:
        """The curves in words, one line each."""
        return describe(self._metrics)

    def waiting(self) -> str:
        """What stands in the picture's place before there is one."""
        return f"%plot: no line with {' or '.join(self._metrics.wishes)} yet"

    def closing_words(self) -> str:
        """What to say when the job is over, with a line feed; "" if all was seen."""
        missing = unseen(self._metrics)
        return f"%plot: {missing}\n" if missing else ""


def _sample(data: bytes) -> bytes:
    """The last lines, behind the last one that says which epoch they belong to."""
    if len(data) <= _SAMPLE:
        return data
    cut = data.find(b"\n", len(data) - _SAMPLE) + 1
    epochs = _EPOCH.findall(data, 0, cut)
    return b"\n".join([*epochs[-1:], data[cut:]])
