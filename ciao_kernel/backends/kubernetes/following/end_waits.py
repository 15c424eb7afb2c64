"""How long a follower waits for the pods of a job after its end, and for which of them."""

from __future__ import annotations

from collections.abc import Callable

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.states import job_status
from ciao_kernel.config import Settings
from ciao_kernel.kube.client import Object
from ciao_kernel.kube.server_clock import ServerClock
from ciao_kernel.model import Job, Replica, Status

_LAST_WORDS = 0.5
"""Seconds after a job's end in which all replicas are read: others may fail with it."""
_SKEW = 60.0
"""Seconds by which the clocks of a cluster's machines may differ."""


class EndWaits:
    """The waiting times of one followed job.

    Args:
        job: The job.
        settings: Waiting times, and grace periods.
        clock: The clock of its API server.
    """

    def __init__(self, job: Job, settings: Settings, clock: ServerClock) -> None:
        self._job, self._settings, self._clock = job, settings, clock

    @property
    def moment(self) -> float:
        """Seconds after a job's end in which replicas end by themselves."""
        return self._settings.linger + _LAST_WORDS

    @property
    def grace(self) -> float:
        """Seconds after a job's end in which its pods end and their last lines arrive."""
        own = self._settings.grace(self._job.grace)
        return self._settings.linger + own + _LAST_WORDS

    def predicate(self, now: Status, item: Object, waited: float) -> Callable[[Replica], bool]:
        """Return a test for replicas to wait for, so many seconds after the job's end.

        Workers get a moment to end by themselves (`linger`), and then their grace period to write
        their last lines. The test is false for a PS, for pods that are kept or can never start, and
        for pods that hang since the end of a job long ago.
        """
        if waited <= _LAST_WORDS:
            return lambda _: True
        long_ago = now.since and self._clock.now() - now.since > waited + _SKEW
        if now.hopeless or job_status.keeps_pods(item) or long_ago:
            return lambda _: False
        endless, within = job_metadata.endless(item), waited <= self.grace
        return lambda replica: within and replica.role not in endless
