"""Which replicas of a local job are started again, and when: the rules of a cluster.

Facts: training-operator release-1.9, pkg/core/job.go (``PastBackoffLimit``: the job fails as soon
as the restarts of all replicas reach the limit, or with the first one if the limit is 0) and
pkg/util/train/train_util.go (``IsRetryableExitCode``: 128 and more). Kubernetes, "Pod Lifecycle",
container restart policy: the first restart is made at once, later ones after a growing delay, which
is reset after ten minutes without a failure. The delays here are shorter: they only keep a program
that fails at once from using up the machine.

Standard library only, as in :mod:`.supervisor`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # not from typing, whose import takes a tenth of the start
if TYPE_CHECKING:
    from typing import Any

_RETRYABLE = 128
_FIRST_DELAY, _LONGEST_DELAY = 1.0, 60.0
"""Seconds before the second restart of a replica, and the most before any restart."""
_RESET = 600.0
"""Seconds that a replica must run until its next restart is made at once again."""


class Restarts:
    """Counts the restarts of a job, and says when the next ones are due.

    Args:
        policy: ``Never``, ``OnFailure``, ``ExitCode`` or ``Always``.
        limit: The number of restarts that fails the job; None: no limit.
    """

    def __init__(self, policy: str, limit: int | None) -> None:
        self.policy = policy
        self.limit = limit
        self._made = 0
        self._due: dict[str, float] = {}
        self._delay: dict[str, float] = {}
        self._started: dict[str, float] = {}

    @classmethod
    def of(cls, job: dict[str, Any]) -> Restarts:
        """Return the restarts that a job's record asks for; an old record asks for none."""
        return cls(job.get("restart", "Never"), job.get("backoff_limit"))

    @property
    def possible(self) -> bool:
        """Return whether any replica may be started again."""
        return self.policy in ("OnFailure", "ExitCode", "Always")

    def wants(self, exit_code: int) -> bool:
        """Return whether the policy restarts a replica that ended so.

        Args:
            exit_code: A negative one is a signal; a pod's would be 128 more than its number.
        """
        if self.policy == "ExitCode":
            return exit_code < 0 or exit_code >= _RETRYABLE
        return self.policy == "Always" or (self.policy == "OnFailure" and exit_code != 0)

    def is_used_up(self) -> bool:
        """Return whether the next restart is the one that fails the job."""
        return self.limit is not None and self._made + 1 >= max(1, self.limit)

    def started(self, name: str, now: float) -> None:
        """Note that a replica was started."""
        self._started[name] = now

    def add(self, name: str, now: float) -> None:
        """Plan a restart."""
        self._made += 1
        if now - self._started.get(name, now) >= _RESET:
            self._delay.pop(name, None)
        delay = self._delay.get(name, 0.0)
        self._delay[name] = min(_LONGEST_DELAY, delay * 2 or _FIRST_DELAY)
        self._due[name] = now + delay

    @property
    def next_at(self) -> float | None:
        """Return the time of the next planned restart; None if there is none."""
        return min(self._due.values(), default=None)

    def take_due(self, now: float) -> list[str]:
        """Return the replicas that must be started now; they are no longer planned."""
        names = [name for name, at in self._due.items() if at <= now]
        for name in names:
            del self._due[name]
        return names

    def drop(self) -> None:
        """Forget all planned restarts: the job is decided."""
        self._due.clear()
