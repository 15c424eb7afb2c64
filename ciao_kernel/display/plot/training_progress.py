"""Progress of a training, and the time left, from the lines of its replicas alone.

Of the work only a share is known: steps of an epoch, epochs of the training. The time left is the
time of the work so far, in proportion. So it is right when later work is like earlier work, which a
validation after the first epoch is not. replica_progress.py reads the lines of one replica.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from ciao_kernel.display.plot.bar_states import ENDS, newest_states, newest_step
from ciao_kernel.display.plot.replica_progress import ReplicaProgress
from ciao_kernel.model import Job, Output, Replica
from ciao_kernel.model.progress import Done

_LINES = 8
"""Newest lines of an event that are read, besides those that open an epoch."""
_VAIN = 2
"""Lines of an event without a new step after which no training is sought behind an ended bar."""
_BACKLOG = 5.0
"""Seconds after the first line of an older job in which lines may be old: their times tell nothing.
"""
_YOUNG = 30.0
"""Age of a job whose lines have all been followed."""
_PAUSE = 0.25
"""Seconds between two readings of a replica, besides lines that begin or end an epoch."""
_SPARED = frozenset({"ps", "evaluator"})
"""Roles whose lines do not tell how far the training is."""
_EPOCH = re.compile(
    rb"epochs?[ \t:=\[(]{1,4}\d{1,9}[ \t]{0,2}/[ \t]{0,2}\d{1,9}[^\r\n]{0,300}", re.I
)


def tells(replica: Replica) -> bool:
    """Return whether the lines of a replica tell how far the training is."""
    return replica.role not in _SPARED


class TrainingProgress:
    """Reads the lines of all replicas of a followed job.

    Args:
        job: The job.
        clock: Seconds, monotonic.
    """

    def __init__(self, job: Job, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        backlog = _BACKLOG if time.time() - job.created > _YOUNG else 0.0
        self._replicas: dict[Replica, ReplicaProgress] = {
            one: ReplicaProgress(backlog) for one in job.replicas if tells(one)
        }

    def output(self, event: Output) -> None:
        """Read the newest lines of an event; the others would cost more than they tell."""
        known = self._replicas.get(event.replica)
        if known is None:
            return
        now = self._clock()
        lines = event.data.rsplit(b"\n", _LINES + 1)
        before = lines.pop(0) if len(lines) > _LINES else b""
        # A regular expression that ignores case is slow, and most lines open no epoch.
        opened = _EPOCH.finditer(before) if b"epoch" in before.lower() else ()
        for match in list(opened)[-1:]:
            known.add(match[0].decode("utf-8", "replace"), now)
        vain = 0
        for line in (*lines, event.tail):
            paused = now - known.read_at < _PAUSE
            if not (states := newest_states(line)):
                sought = vain < _VAIN and not paused and line is not event.tail
                if sought and known.may_have_ended and (newest := newest_step(line)):
                    vain += not known.add_later(newest, now)
            elif paused and not _EPOCH.search(line):
                known.skipped.add(states[-1])
            else:
                known.add_states(states, now)
        if now - known.read_at >= _PAUSE:
            known.read_at = now

    def done(self) -> Done | None:
        """Return how far the slowest replica is, of those whose lines tell it."""
        now = self._clock()
        return min(_known(self._replicas.values(), now), key=lambda one: one.share, default=None)


def of_logs(logs: Iterable[bytes], seconds: float) -> Done | None:
    """Return how far the slowest replica is by its log, whose lines have no times.

    Args:
        logs: The end of the output of each replica.
        seconds: Time in which the whole work so far was done, with the start of the job.
    """
    replicas = []
    for data in logs:
        replicas.append(ReplicaProgress())
        for part in ENDS.split(data):
            if part.strip():
                replicas[-1].add(part.decode("utf-8", "replace"), 0.0)
    found = []
    for known in _known(replicas, 0.0):
        # Of a training with an unknown number of epochs, the time tells nothing of one of them.
        tells_time = known.share and not known.of_epoch
        left = seconds * (1 - known.share) / known.share if tells_time else None
        found.append(replace(known, left=left))
    return min(found, key=lambda one: one.share, default=None)


def _known(replicas: Collection[ReplicaProgress], now: float) -> list[Done]:
    """Return how far those replicas are whose lines tell it.

    Each replica shows the bar of a preparation, but often one alone logs the steps behind it.
    """
    forgotten = {total for one in replicas for total in one.forgotten}
    known = [found for one in replicas if (found := one.done(now))]
    return [
        one
        for one in known
        if one.epochs or one.step is None or one.step != one.steps or one.steps not in forgotten
    ]
