"""Status of a job and its replicas at one moment."""

from __future__ import annotations

import enum
import signal
from dataclasses import dataclass

from ciao_kernel.model.progress import Done
from ciao_kernel.model.replica import Replica

QUEUED = "Queued"
"""The reason of a job that waits in a queue."""
SUSPENDED = "Suspended"
"""The reason of a job that somebody suspended."""
SILENT = "NoHeartbeat"
"""The reason of a job that is lost only as far as it is known: its machine may sleep."""

POD_SECURITY = "violates PodSecurity"
"""Part of a refusal of pods, by which waiting does not help (k8s.io/pod-security-admission)."""


class State(enum.StrEnum):
    """State of a job or of a replica."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"
    LOST = "Lost"

    @property
    def over(self) -> bool:
        """Return whether the state is final."""
        return self not in (State.PENDING, State.RUNNING)

    @property
    def sentence(self) -> str:
        """Return the state for the end of a sentence: ``it is Pending``."""
        return f"it has ended ({self.value})" if self.over else f"it is {self.value}"


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """Status of one replica at one moment. Times are seconds since the epoch."""

    replica: Replica
    state: State = State.PENDING
    since: float = 0.0
    exit_code: int | None = None
    """A negative number is the signal that killed the replica, as in :mod:`subprocess`."""
    reason: str = ""
    log: str = ""
    """Location of the whole output, for display: a path or an address."""
    node: str = ""
    """The machine that it runs on, if there are several."""
    restarts: int = 0
    """Number of restarts."""
    last_exit: int | None = None
    """Exit code of the run before the last restart, in the form of :attr:`exit_code`."""


@dataclass(frozen=True, slots=True)
class Status:
    """Status of a job at one moment.

    ``state`` is the state of the job itself; it can be final while some replicas still run.
    ``settled`` is true when no more lines or states will follow.
    """

    state: State
    replicas: tuple[ReplicaStatus, ...]
    since: float = 0.0
    reason: str = ""
    message: str = ""
    settled: bool = False
    decided_by: Replica | None = None
    """The replica whose end decided the state of the job."""
    hopeless: bool = False
    """The job has not started and never will; its submitter should remove it."""
    foreseen: bool = False
    """The backend concludes the failure from the replicas; the job's own record does not show it
    yet."""
    decided: bool = False
    """The job has failed, and all lines of the replicas that have ended were delivered. Its cell
    may end; lines of other replicas may follow."""
    tries: int = 1
    """Number of the job's try: 2 if the whole job was started again once."""
    told: Done | None = None
    """How far the training is, if its program tells the API of its job."""

    @property
    def over(self) -> bool:
        """Return whether all replicas have ended; ``%cleanPolicy=none`` can delay that."""
        return self.settled and all(one.state.over for one in self.replicas)

    @property
    def is_late(self) -> bool:
        """Return whether a deadline ended the job: some controllers tell it only in a message."""
        ends = (one.reason for one in self.replicas)
        return "deadline" in self.message or any("Deadline" in one for one in (self.reason, *ends))

    @property
    def word(self) -> str:
        """Return the state for display; a job that may not start yet has a word of its own."""
        held = self.state is State.PENDING and self.reason in (QUEUED, SUSPENDED)
        return self.reason if held else str(self.state)


def exit_text(code: int) -> str:
    """Describe the exit code of a :class:`ReplicaStatus`: ``exit code 1``, ``SIGKILL``."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
