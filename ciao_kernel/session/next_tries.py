"""Failed tries of jobs with ``%retries``: another one may follow, from any process."""

from __future__ import annotations

from ciao_kernel.model import Job, State, Status

_USUAL = 120.0
"""Seconds beyond the grace period of its pods in which a next try usually follows a failed one."""


def may_follow(job: Job, status: Status) -> bool:
    """Return whether a failed job may be started again.

    The followers of a job on a cluster decide that, also one that begins much later. The state is
    Failed until then. The supervisor of a local job tells its failure only when it is final: the
    job that is found there does not count its tries.

    Args:
        job: Its newest known try.
        status: The status of that try.
    """
    return job.on_cluster and status.state is State.FAILED and job.tries <= job.retries


def is_due(job: Job, status: Status, grace: float, now: float) -> bool:
    """Return whether a next try may be on its way: the job has failed only a short time ago.

    Args:
        job: Its newest known try.
        status: The status of that try.
        grace: Seconds that its pods may take to end.
        now: Seconds since the epoch.
    """
    return may_follow(job, status) and now - status.since < grace + _USUAL
