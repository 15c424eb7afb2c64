"""How a job and its replicas are at one moment."""

from __future__ import annotations

import enum
import signal
from dataclasses import dataclass

from ciao_kernel.model.replica import Replica


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
        """Whether nothing more can happen."""
        return self not in (State.PENDING, State.RUNNING)


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One replica at one moment. Times are seconds since the epoch."""

    replica: Replica
    state: State = State.PENDING
    since: float = 0.0
    exit_code: int | None = None
    """As the shell counts: negative is the number of the signal that killed it."""
    reason: str = ""
    log: str = ""
    """Where the whole output is kept, for a reader: a path, or an address."""
    node: str = ""
    """The machine that it runs on, where there are several."""
    restarts: int = 0
    """How often it was started again."""


@dataclass(frozen=True, slots=True)
class Status:
    """A job at one moment.

    ``state`` is the job's condition. It can be over while some replicas still are not:
    ``settled`` is true once nothing more will come, neither lines nor states.
    """

    state: State
    replicas: tuple[ReplicaStatus, ...]
    since: float = 0.0
    reason: str = ""
    message: str = ""
    settled: bool = False
    decided_by: Replica | None = None
    """The replica whose end decided the job's."""
    hopeless: bool = False
    """It has not started and never will: whoever submitted it should remove it."""

    @property
    def over(self) -> bool:
        """Whether nothing of the job runs; under ``%cleanPolicy=none`` that may be later."""
        return self.settled and all(one.state.over for one in self.replicas)


def exit_text(code: int) -> str:
    """Name an exit code as :class:`ReplicaStatus` counts it: ``exit code 1``, ``SIGKILL``."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
