"""Content of the live table: one row per replica, and one line for the job.

Renderers call :meth:`Table.rows` and draw the rows; this module draws nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ciao_kernel.display.line_rate import LineRate
from ciao_kernel.display.lines import plain
from ciao_kernel.display.plotting import progress_of
from ciao_kernel.display.table_columns import COLUMNS, Column
from ciao_kernel.display.training_text import progress_text
from ciao_kernel.display.usage_cells import UsageCells
from ciao_kernel.frameworks import torchrun_report
from ciao_kernel.model import Job, Output, Replica, ReplicaStatus, State, Status, exit_text
from ciao_kernel.model.progress import best_known
from ciao_kernel.model.times import clock_time, span
from ciao_kernel.model.usage import UsageReport
from ciao_kernel.visible_text import short, visible

_FIELDS = {column.heading: column.field for column in COLUMNS}
_SEPARATING = b"-=*_#~ \t\r"
"""Characters of lines that only separate, such as the last one of torchrun's report."""
_MOST = 100
"""Maximum number of replicas that all have a row."""
_CHOSEN = 40
"""Number of rows of a job with more replicas: its lines come below, on the same page."""
_FEW = 16
"""Maximum number of replicas whose states a reader sees at a glance, without a sum."""
_ORDER = (
    State.FAILED, State.LOST, State.PENDING, State.RUNNING, State.SUCCEEDED, State.STOPPED,
)  # fmt: skip
"""Order of states in a sum: first what needs attention."""
_WIDTH = 80
_FULL = 400
"""Maximum length of a last line in a tooltip; each redraw sends it again."""
_EMPTY = "–"


@dataclass(frozen=True, slots=True)
class Row:
    """One replica, ready to draw."""

    replica: str
    state: State
    detail: str
    """The state with its explanation, ``Failed (exit code 1)``."""
    time: str = ""
    """Time since the job's submission, ``1m 20s``, or how long it took, ``took 1m 20s``."""
    moment: str = ""
    """Date of the last change of the state, ``Running since Nov 21 14:02:11``; "" if unknown."""
    node: str = ""
    restarts: str = ""
    cpu: str = ""
    memory: str = ""
    peak: str = ""
    """The highest memory so far, with its limit: ``95Mi of 256Mi``."""
    gpu: str = ""
    last_line: str = ""
    full_line: str = ""
    """The last line at its full length, up to a limit."""
    rate: str = ""
    log: str = ""
    who: Replica | None = None
    """The replica; None for a row that stands for several."""
    expected: bool = False
    """The replica was stopped because its job has succeeded, so its state is no warning."""

    def cells(self, headings: Iterable[str]) -> tuple[str, ...]:
        """Return the texts below some headings."""
        return tuple(getattr(self, _FIELDS[heading]) for heading in headings)

    def last_text(self, fits: int) -> str:
        """Return the last line; without lines, the reason why the replica waits, if it is long.

        Args:
            fits: Characters of the state that its column shows.
        """
        return self.last_line or (self.detail if len(self.detail) > fits else "")


class Table:
    """Collects the content of the table.

    Args:
        job: The job.
        clock: Seconds, monotonic.
        now: Seconds since the epoch.
        usage: Whether there are columns for what the replicas use.
    """

    def __init__(
        self,
        job: Job,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        *,
        usage: bool = False,
    ) -> None:
        self.job = job
        self.status: Status | None = None
        self._clock = clock
        self._watched_since = clock()
        self._now = now
        self._progress = progress_of(job, clock)
        self._last: dict[Replica, bytes] = {}
        self._exceptions: Mapping[Replica, str] = {}
        self._usage = UsageCells(job, wanted=usage)
        self._rates: dict[Replica, LineRate] = {}
        self._drawn: list[LineRate] = []
        """Rates of the rows that were drawn last."""
        self._grows = False
        """Whether a row that was drawn last shows a time that still grows."""

    def output(self, event: Output) -> None:
        """Note the last line of a replica, finished or not, and the number of new lines."""
        self._rate(event.replica).add(event.lines)
        self._progress.output(event)
        data = event.data
        if torchrun_report.SIGN in data:  # its last line, of a frame, says nothing
            data = b"\n".join(torchrun_report.without_reports(data.split(b"\n"))[0])
        end = event.tail if event.tail.strip() else _without_rules(data[-4096:])
        if end:
            self._last[event.replica] = end[-4096:]

    def note_usage(self, report: UsageReport) -> None:
        """Note what replicas use."""
        self._usage.note(report)

    def note_exceptions(self, known: Mapping[Replica, str]) -> None:
        """Show, as the last lines of replicas, the exceptions that ended them.

        What torchrun and the interpreter write behind them tells less.
        """
        self._exceptions = known

    def title(self) -> str:
        """Return the line of the job: ``tensorflow-x7k2f: Running``, and how far it is."""
        status = self.status
        run = f", run {self.job.warm_run}, warm" if self.job.warm_run else ""
        text = f"{self.job.name}{run}: {status.word if status else State.PENDING}"
        if status and status.message:
            text += f" ({status.message.rstrip('.')})"
        if status and status.state is State.RUNNING:
            done = best_known(self._progress.done(), status.told)
            text += f"  {progress_text(done)}" if done else ""
        return visible(text)

    def headings(self, *, fixed: bool = False) -> tuple[str, ...]:
        """Return the column headings; nodes and restarts only if there are any.

        Args:
            fixed: Return the columns of a cluster's job from the start, so that none appears later.
        """
        known = self.status.replicas if self.status else ()
        measured = self._usage.headings()

        def is_shown(column: Column) -> bool:
            if column.usage:
                return column.heading in measured
            if column.cluster_only and not (fixed and self.job.on_cluster):
                return any(getattr(one, column.field) for one in known)
            return True

        return tuple(column.heading for column in COLUMNS if is_shown(column))

    def summary_lines(self) -> list[str]:
        """Return a line with the number of replicas in each state, if there are many replicas."""
        replicas = self._replicas()
        if len(replicas) <= _FEW:
            return []
        restarted = sum(one.restarts > 0 for one in replicas)
        also = f"; {restarted:,} restarted" if restarted else ""
        return [f"{len(replicas):,} replicas: {_sums(replicas)}{also}"]

    def rows(self) -> list[Row]:
        """Return one row per replica, in the job's order; of many replicas, the most important.

        These are, in this order: failed ones, the first of each role, those that differ from most
        others, and then the first of the others. Their number is fixed, so that nothing moves.
        """
        self._drawn.clear()
        self._grows = False
        replicas = self._replicas()
        if len(replicas) <= _MOST:
            return [self._row(one) for one in replicas]
        ((usual, _),) = Counter(one.state for one in replicas).most_common(1)
        first = {one.replica.role: one.replica for one in reversed(replicas)}

        def rank(one: ReplicaStatus) -> int:
            if one.state in (State.FAILED, State.LOST):
                return 0
            if first[one.replica.role] == one.replica:
                return 1
            return 2 if one.state is not usual or one.restarts else 3

        ranked = sorted(replicas, key=rank)
        rows, rest = [self._row(one) for one in ranked[:_CHOSEN]], ranked[_CHOSEN:]
        return [*rows, Row(f"… {len(rest):,} more", State.PENDING, _sums(rest))]

    def _replicas(self) -> list[ReplicaStatus]:
        known = {one.replica: one for one in self.status.replicas} if self.status else {}
        replicas = [known.pop(one, ReplicaStatus(one)) for one in self.job.replicas]
        return [*replicas, *known.values()]  # the last ones were added by someone

    def grid(self) -> list[tuple[str, ...]]:
        """Return the table as texts, headings first."""
        headings = self.headings()
        return [headings, *(row.cells(headings) for row in self.rows())]

    def places(self) -> list[tuple[str, str]]:
        """Return the locations of the job's files and logs, for a reader."""
        known = self.status.replicas if self.status else ()
        logs = sorted({one.log.rpartition("/")[0] for one in known if one.log})
        all_of_them = [(self.job.kind_of_place, self.job.place), *(("logs", one) for one in logs)]
        return [(visible(kind), visible(place)) for kind, place in all_of_them]

    def is_changing(self) -> bool:
        """Return whether a displayed rate would change even without new lines."""
        return any(rate.is_changing for rate in self._drawn)

    def age(self) -> float:
        """Return the seconds since the job's submission; 0 if that is unknown."""
        return max(0.0, self._now() - self.job.created) if self.job.created else 0.0

    def watch_anew(self) -> None:
        """Count :meth:`watched` from now on: the job runs, after a wait without lines."""
        self._watched_since = self._clock()

    def watched(self) -> float:
        """Return for how many seconds the running job has been shown, however old it is."""
        return self._clock() - self._watched_since

    def elapsed(self) -> float | None:
        """Return the seconds since the job's submission; None if no time that was drawn grows."""
        return self.age() if self._grows else None

    def _time(self, one: ReplicaStatus) -> str:
        """Describe how long a replica has run, or took, from the job's submission.

        The submission is known wherever the job is shown, also after a restart of the replica.
        """
        if one.state.over:
            known = self.job.created and one.since
            return f"took {span(one.since - self.job.created)}" if known else _EMPTY
        began = self.job.created or one.since
        return span(self._now() - began) if began else _EMPTY

    @property
    def _has_succeeded(self) -> bool:
        return self.status is not None and self.status.state is State.SUCCEEDED

    def _rate(self, replica: Replica) -> LineRate:
        return self._rates.setdefault(replica, LineRate(self._clock))

    def _row(self, one: ReplicaStatus) -> Row:
        last = self._last.get(one.replica, b"").rsplit(b"\n", 1)[-1].decode("utf-8", "replace")
        said = self._exceptions.get(one.replica, last)
        text = visible(plain(said).strip().expandtabs(1))
        self._drawn.append(self._rate(one.replica))
        rate = self._drawn[-1].value()
        self._grows |= bool(self.job.created) and not one.state.over
        return Row(
            replica=visible(str(one.replica)),
            state=one.state,
            detail=str(one.state) + (f" ({why})" if (why := _why(one)) else ""),
            time=self._time(one),
            moment=f"{one.state} since {clock_time(one.since)}" if one.since else "",
            node=visible(one.node),
            restarts=str(one.restarts or ""),
            **self._usage.of(one),
            last_line=text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…",
            full_line=short(text, _FULL),
            rate=f"{rate:,.0f}" if rate >= 0.5 and not one.state.over else _EMPTY,
            log=visible(one.log),
            who=one.replica,
            expected=one.state is State.STOPPED and self._has_succeeded,
        )


def _without_rules(data: bytes) -> bytes:
    """Leave out the lines at the end of an output that only separate."""
    lines = data.split(b"\n")
    while lines and not lines[-1].strip(_SEPARATING):
        lines.pop()
    return b"\n".join(lines)


def _sums(replicas: Iterable[ReplicaStatus]) -> str:
    """Return how many replicas are in each state: ``2 Failed, 998 Running``."""
    counts = Counter(one.state for one in replicas)
    return ", ".join(f"{counts[state]:,} {state}" for state in _ORDER if counts[state])


def _why(one: ReplicaStatus) -> str:
    """Explain how a replica ended, or why it waits, in the cluster's words."""
    ended = ending(one)
    said = one.reason if one.state in (State.PENDING, State.FAILED) else ""
    text = f"{said}, {ended}" if said and ended else said or ended
    return visible(short(text, _WIDTH))


def ending(one: ReplicaStatus) -> str:
    """Explain how a replica ended, if necessary: ``exit code 1``, ``SIGKILL``."""
    if one.exit_code is None or one.state is State.SUCCEEDED:
        return ""
    if one.state is State.STOPPED:
        return ""
    return exit_text(one.exit_code)
