"""Content of the live table: one row per replica, and one line for the job.

Renderers call :meth:`Table.rows` and draw the rows; this module draws nothing.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ciao_kernel.display.lines import plain
from ciao_kernel.model import Job, Output, Replica, ReplicaStatus, State, Status, exit_text
from ciao_kernel.model.times import clock_time

_COLUMNS = {
    "replica": "replica",
    "state": "detail",
    "since": "since",
    "node": "node",
    "restarts": "restarts",
    "last line": "last_line",
    "lines/s": "rate",
    "log": "log",
}
"""Headings, and the field of a row below each heading."""
_ON_CLUSTERS = ("node", "restarts")
_MOST = 100
"""Maximum number of rows; a page with a thousand rows no longer scrolls."""
_WIDTH = 80
_EMPTY = "–"


@dataclass(frozen=True, slots=True)
class Row:
    """One replica, ready to draw."""

    replica: str
    state: State
    detail: str
    """The state with its explanation, ``Failed (exit code 1)``."""
    since: str = ""
    node: str = ""
    restarts: str = ""
    last_line: str = ""
    rate: str = ""
    log: str = ""

    def cells(self, headings: Iterable[str]) -> tuple[str, ...]:
        """Return the texts below some headings."""
        return tuple(getattr(self, _COLUMNS[heading]) for heading in headings)


class Table:
    """Collects the content of the table.

    Args:
        job: The job.
        clock: Seconds, monotonic.
    """

    def __init__(self, job: Job, clock: Callable[[], float] = time.monotonic) -> None:
        self.job = job
        self.status: Status | None = None
        self._clock = clock
        self._last: dict[Replica, bytes] = {}
        self._rates: dict[Replica, _Rate] = {}
        self._drawn: list[_Rate] = []
        """Rates of the rows that were drawn last."""

    def output(self, event: Output) -> None:
        """Note the last line of a replica, finished or not, and the number of new lines."""
        self._rate(event.replica).add(event.lines)
        end = event.tail if event.tail.strip() else event.data[-4096:].rstrip()
        if end:
            self._last[event.replica] = end[-4096:]

    def title(self) -> str:
        """Return the line of the job: ``tensorflow-x7k2f: Running``."""
        status = self.status
        text = f"{self.job.name}: {status.state if status else State.PENDING}"
        if status and status.message:
            text += f" ({status.message.rstrip('.')})"
        return text

    def headings(self) -> tuple[str, ...]:
        """Return the column headings; nodes and restarts only if there are any."""
        known = self.status.replicas if self.status else ()
        empty = {heading for heading in _ON_CLUSTERS if not any(getattr(r, heading) for r in known)}
        return tuple(heading for heading in _COLUMNS if heading not in empty)

    def rows(self) -> list[Row]:
        """Return one row per replica, in the job's order; of many replicas, the most important."""
        self._drawn.clear()
        known = {one.replica: one for one in self.status.replicas} if self.status else {}
        all_of_them = [known.pop(one, ReplicaStatus(one)) for one in self.job.replicas]
        all_of_them += known.values()  # replicas that someone has added
        if len(all_of_them) <= _MOST:
            return [self._row(one) for one in all_of_them]
        in_trouble = (State.FAILED, State.LOST)
        troubled_first = sorted(all_of_them, key=lambda one: one.state not in in_trouble)
        chosen = {one.replica for one in troubled_first[:_MOST]}
        rest = Counter(str(one.state) for one in all_of_them if one.replica not in chosen)
        states = ", ".join(f"{count} {state}" for state, count in rest.most_common())
        rows = [self._row(one) for one in all_of_them if one.replica in chosen]
        return [*rows, Row(f"… {rest.total()} more", State.PENDING, states)]

    def grid(self) -> list[tuple[str, ...]]:
        """Return the table as texts, headings first."""
        headings = self.headings()
        return [headings, *(row.cells(headings) for row in self.rows())]

    def places(self) -> list[tuple[str, str]]:
        """Return the locations of the job's files and logs, for a reader."""
        known = self.status.replicas if self.status else ()
        logs = sorted({one.log.rpartition("/")[0] for one in known if one.log})
        return [(self.job.kind_of_place, self.job.place), *(("logs", place) for place in logs)]

    def is_changing(self) -> bool:
        """Return whether a displayed rate would change even without new lines."""
        return any(rate.is_changing for rate in self._drawn)

    def _rate(self, replica: Replica) -> _Rate:
        return self._rates.setdefault(replica, _Rate(self._clock))

    def _row(self, one: ReplicaStatus) -> Row:
        last = self._last.get(one.replica, b"").rsplit(b"\n", 1)[-1]
        text = plain(last.decode("utf-8", "replace")).strip()
        self._drawn.append(self._rate(one.replica))
        rate = self._drawn[-1].value()
        return Row(
            replica=str(one.replica),
            state=one.state,
            detail=str(one.state) + (f" ({why})" if (why := _why(one)) else ""),
            since=clock_time(one.since),
            node=one.node,
            restarts=str(one.restarts or ""),
            last_line=text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…",
            rate=f"{rate:,.0f}" if rate >= 0.5 and not one.state.over else _EMPTY,
            log=one.log,
        )


class _Rate:
    """Lines per second over the last few seconds."""

    _SPAN = 3.0

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._marks: deque[tuple[float, int]] = deque()

    def add(self, lines: int) -> None:
        now = self._forget()
        if lines:
            if self._marks and now - self._marks[-1][0] < 0.1:
                self._marks[-1] = (self._marks[-1][0], self._marks[-1][1] + lines)
            else:
                self._marks.append((now, lines))

    def value(self) -> float:
        now = self._forget()
        if not self._marks:
            return 0.0
        span = max(0.5, min(self._SPAN, now - self._marks[0][0]))
        return sum(lines for _, lines in self._marks) / span

    @property
    def is_changing(self) -> bool:
        """Return whether some counted lines will soon be too old."""
        return bool(self._marks)

    def _forget(self) -> float:
        """Drop lines that are too old, even if nobody asks for the rate; return the time."""
        now = self._clock()
        while self._marks and now - self._marks[0][0] > self._SPAN:
            self._marks.popleft()
        return now


def _why(one: ReplicaStatus) -> str:
    """Explain how a replica ended, or why it waits, in the cluster's words."""
    ended = ending(one)
    said = one.reason if one.state in (State.PENDING, State.FAILED) else ""
    text = f"{said}, {ended}" if said and ended else said or ended
    return plain(text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…")


def ending(one: ReplicaStatus) -> str:
    """Explain how a replica ended, if necessary: ``exit code 1``, ``SIGKILL``."""
    if one.exit_code is None or one.state is State.SUCCEEDED:
        return ""
    if one.state is State.STOPPED:
        return ""
    return exit_text(one.exit_code)


def columns(rows: Iterable[Iterable[str]], gap: str = "  ") -> str:
    """Align texts in columns: the plain table for pipes and for ``text/plain``."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        gap.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )
