"""Sentences about turns in the life of replicas: a restart, and a stop by their job's success.

A table shows only numbers and states; these sentences are lines of the cell, and are kept with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ciao_kernel.model import Job, Replica, ReplicaStatus, State, Status, exit_text
from ciao_kernel.visible_text import listed, visible

_LISTED = 8


class Restarts:
    """Recognizes restarts of replicas in the statuses of a followed job."""

    def __init__(self) -> None:
        self._last: dict[Replica, ReplicaStatus] = {}
        self._tries = 1

    def sentences(self, status: Status) -> Iterator[str]:
        """Yield a sentence for each replica that was restarted since the last status."""
        if status.tries != self._tries:  # the whole job, of which the backend has told
            self._tries = status.tries
            self._last = {one.replica: one for one in status.replicas}
        for new in status.replicas:
            old = self._last.get(new.replica, ReplicaStatus(new.replica))
            self._last[new.replica] = new
            code, reason = new.last_exit, ""
            if _is_replaced(old, new):
                code, reason = old.exit_code, old.reason
            elif new.restarts <= old.restarts:
                continue
            why = exit_text(code) if code is not None else visible(reason)
            yield f"{new.replica} was restarted{f' ({why})' if why else ''}, try {new.restarts + 1}"


def _is_replaced(old: ReplicaStatus, new: ReplicaStatus) -> bool:
    return old.state in (State.FAILED, State.STOPPED) and not new.state.over


def stopped_by_success(job: Job, status: Status, endless: Collection[str]) -> str:
    """Return a sentence about replicas that their job's success stopped, or "" if there are none.

    Args:
        job: The job, which is over.
        status: Its last status.
        endless: Roles that never end by themselves, such as parameter servers.
    """
    by = status.decided_by
    if status.state is not State.SUCCEEDED or by is None:
        return ""
    replicas = (one for one in status.replicas if one.state is State.STOPPED)
    stopped = [str(one.replica) for one in replicas if one.replica.role not in endless]
    if not stopped:
        return ""
    verb = "was" if len(stopped) == 1 else "were"
    # The policy is the training operator's, and counts workers only where no chief decides.
    policy = job.on_cluster and by.role == "worker" and job.framework == "tensorflow"
    remedy = (
        "%successPolicy=allWorkers waits for all"
        if policy
        else "the setting linger gives others more time"
    )
    return (
        f"Succeeded with {by}; {listed(stopped, _LISTED)} {verb} still at work and {verb} stopped "
        f"({remedy})."
    )
