"""Jobs of which some replicas hold nodes while no node takes the others.

The scheduler places each pod by itself. Two jobs that share a cluster can so hold a part each, and
neither begins; the replicas that run are no sign of that, and may hold GPUs for hours.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from ciao_kernel.backends.kubernetes.states import queues
from ciao_kernel.kube.client import Object
from ciao_kernel.model import ReplicaStatus, State, Status
from ciao_kernel.visible_text import short

_LONG = 60.0
"""Seconds after which it is said: a node may come, or a pod go."""
_NAMED = 3
"""Most replicas that are named."""
_LONGEST = 200
_SIGN = "unschedulable"
"""Begin of the reason of a pod that no node takes (:func:`.status.waiting_reason`)."""


class PartialStart:
    """Notices that a part of a job waits for nodes while the rest holds some.

    Args:
        clock: Seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None
        """When the wait began; None while there is none."""
        self._said = False
        self._notice: str | None = None

    def look(self, now: Status, item: Object) -> Status:
        """Return the status, whose message tells of a long wait while it lasts.

        Args:
            now: The job's status.
            item: The job's object.
        """
        waiting = [one for one in now.replicas if _waits(one)]
        holding = [one for one in now.replicas if _holds(one)]
        # A reason of the whole job: it waits in a queue, or is suspended, and its pods go.
        if now.state.over or now.reason or not waiting or not holding:
            self._since = None
            return now
        began = self._clock()
        self._since = began if self._since is None else self._since
        if began - self._since < _LONG:
            return now
        hold = "hold nodes" if len(holding) > 1 else "holds a node"
        held = f"{len(holding)} of {len(now.replicas)} replicas {hold}"
        names = _names(waiting)
        if not self._said:
            self._said = True
            self._notice = f"{held}, and no node takes {names}{_why(waiting)}.{_remedy(item)}"
        return replace(now, message=f"{held}, {names} {'wait' if len(waiting) > 1 else 'waits'}")

    def notice(self) -> str | None:
        """Return the sentence about the wait, once."""
        text, self._notice = self._notice, None
        return text


def _waits(one: ReplicaStatus) -> bool:
    return one.state is State.PENDING and one.reason.startswith(_SIGN)


def _holds(one: ReplicaStatus) -> bool:
    return one.state is State.RUNNING or (one.state is State.PENDING and bool(one.node))


def _names(waiting: list[ReplicaStatus]) -> str:
    if len(waiting) > _NAMED:
        return f"{len(waiting)} others"
    *most, last = [str(one.replica) for one in waiting]
    return f"{', '.join(most)} and {last}" if most else last


def _why(waiting: list[ReplicaStatus]) -> str:
    """Return the scheduler's words, without those about preemption, which follow them."""
    words = waiting[0].reason.removeprefix(_SIGN).removeprefix(":").partition(" preemption:")[0]
    said = " ".join(words.split()).rstrip(".")
    return f": {short(said, _LONGEST)}" if said else ""


def _remedy(item: Object) -> str:
    if queues.queue_of(item):
        return ""
    return " With a queue (%queue) a job starts as a whole, or waits without holding anything."
