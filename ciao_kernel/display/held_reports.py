"""Holds what torchrun reports about a failed process, for a terminal window.

A window cannot take lines back. The first line of a report is unmistakable, so the lines of this
replica wait from there until the report is complete, or clearly something else; one line stands for
it. Files of logs have all lines, and so has a pipe.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ciao_kernel.display.held_tracebacks import folded_reports, split_lines
from ciao_kernel.frameworks import torchrun_report
from ciao_kernel.model import Output, Replica

_PATIENCE = 2.0
"""Seconds in which torchrun completes a report; it ends some processes meanwhile."""
_MOST_BYTES = 64 * 1024
"""Maximum bytes held of one replica."""
_ENDS = (b"====", b"SignalException")
"""Parts of the last lines of reports, for a fast search."""


@dataclass(slots=True)
class _Held:
    """Lines of one replica from the first line of a report on."""

    since: float
    data: bytes


class HeldReports:
    """The reports of a job's replicas.

    Args:
        clock: Seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: dict[Replica, _Held] = {}

    def add(self, event: Output) -> list[Output]:
        """Take the output of a replica, and return what is to be shown now.

        Returns:
            Outputs. One that stands for a report has its number of lines, but one line of text.
        """
        held = self._held.get(event.replica)
        if held is None:
            if torchrun_report.SIGN not in event.data:  # the usual case, much faster
                return [event]
            start = torchrun_report.START.search(event.data)
            if start is None:
                return [event]
            before, data = event.data[: start.start()], event.data[start.start() :]
            held = self._held[event.replica] = _Held(self._clock(), data)
        else:
            before = b""
            held.data += event.data
        shown = [_output(event.replica, split_lines(before))] if before else []
        at_end = any(end in event.data for end in _ENDS)
        if len(held.data) > _MOST_BYTES or (at_end and _is_complete(held.data)):
            shown += self._release(event.replica)
        return shown

    def due(self) -> list[Output]:
        """Return lines that have waited long enough: no report follows them."""
        latest = self._clock() - _PATIENCE
        late = [replica for replica, held in self._held.items() if held.since < latest]
        return [output for replica in late for output in self._release(replica)]

    def close(self) -> list[Output]:
        """Return all held lines, because the job has ended."""
        return [output for replica in list(self._held) for output in self._release(replica)]

    def _release(self, replica: Replica) -> list[Output]:
        shown: list[Output] = []
        run: list[bytes] = []
        for line, count in folded_reports(split_lines(self._held.pop(replica).data)):
            if count == 1:
                run.append(line)
                continue
            shown += [_output(replica, run)] if run else []
            run = []
            shown.append(Output(replica, line + b"\n", count))
        return [*shown, _output(replica, run)] if run else shown


def _is_complete(data: bytes) -> bool:
    return bool(torchrun_report.reports(split_lines(data)))


def _output(replica: Replica, lines: list[bytes]) -> Output:
    return Output(replica, b"".join(line + b"\n" for line in lines), len(lines))
