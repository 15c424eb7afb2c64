"""What a backend promises, and the plan that it gets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ciao_kernel.model import Event, Job, JobSpec, Owner, Replica, Source, Status
from ciao_kernel.model.queries import HERE, WHOLE_LOG, Details, LogOptions, Streams, Where
from ciao_kernel.plugins.builder import Builder, Emit
from ciao_kernel.plugins.framework import Framework


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a backend needs to submit a job; made by the session, checked before use."""

    name: str | None
    """The name that the user gave, or None. The backend adds to it what makes it unique."""
    spec: JobSpec
    framework: Framework
    source: Source
    folder: Path
    """Where the user works: the folder of the notebook, or of the file."""
    header: str
    owner: Owner


class Backend(Protocol):
    """Runs jobs somewhere. All methods may be called from any process of the same user."""

    name: str
    outlives_kernel: bool
    """Whether a job goes on when the kernel that made it ends, if no setting says otherwise."""

    def available(self) -> bool:
        """Whether ``auto`` may choose this backend here. Cheap, and asks nobody."""

    async def check(self, plan: Plan) -> None:
        """Raise what can be known to go wrong, before anything exists."""

    async def preview(self, plan: Plan, builder: Builder) -> str:
        """What :meth:`submit` would do, for a reader; creates nothing.

        With ``DryRun.SERVER`` it raises what a submission would.
        """

    async def submit(self, plan: Plan, builder: Builder, emit: Emit, *, outlive: bool) -> Job:
        """Build and start; the job exists when this returns, or nothing of it does.

        Args:
            plan: What to run; :meth:`check` has accepted it.
            builder: Makes the artifact.
            emit: Shows sentences about slow steps.
            outlive: The job goes on when ``plan.owner`` ends.
        """

    def follow(self, job: Job, *, since: float = 0.0) -> AsyncIterator[Event]:
        """Yield all output from the start, and states as they change; ends when settled.

        Every line comes exactly once, and all of them before the last :class:`Status`.

        Args:
            job: What to follow.
            since: Seconds since the epoch; lines that are known to be older are left out.

        Raises:
            UsageError: Nobody knows how old lines are here.
            JobLost: What runs the job is gone.
        """

    async def host_ends(self, job: Job) -> bool:
        """Whether the place of a job knows that this process is about to be ended.

        Asked before an interrupt stops a job, for it may begin such an end. Answers soon.
        """

    async def stop(
        self, job: Job, reason: str, *, certain: Callable[[], None] = lambda: None
    ) -> None:
        """End all replicas; returns when they have ended.

        Args:
            job: Which job.
            reason: For others who follow it.
            certain: Called, once or more, soon after it is certain to end, whatever becomes of
                this process.
        """

    async def delete(self, job: Job) -> None:
        """Stop the job and remove what it left, its files included."""

    async def jobs(self, where: Where = HERE) -> list[tuple[Job, Status]]:
        """Every job that the backend knows there, oldest first."""

    async def find(self, name: str, where: Where = HERE) -> tuple[Job, Status]:
        """One job by its name.

        Raises:
            NoSuchJob: There is none.
            UsageError: There are several, in different places.
        """

    async def details(self, job: Job) -> Details:
        """All that is known of a job beside its status."""

    async def log(self, job: Job, replica: Replica, options: LogOptions = WHOLE_LOG) -> bytes:
        """The output of one replica so far, or a part of it.

        Raises:
            UsageError: This backend does not know what is asked for, such as lines' times.
            BackendError: What is asked for does not exist.
        """

    async def execute(
        self, job: Job, replica: Replica, command: Sequence[str], streams: Streams
    ) -> int:
        """Run a command beside a replica, as if it were part of it; return its exit code.

        A cancellation leaves nothing open here; in a pod the command may go on.

        Args:
            job: Which job.
            replica: Where.
            command: An argument vector: never a shell.
            streams: What it reads and writes.

        Raises:
            BackendError: It could not be started, or nobody knows how it ended.
        """

    def remains(self, job: Job) -> str:
        """What is left of a job that was stopped, as the end of a sentence.

        While :meth:`stop` works on it: what it still waits for.
        """

    async def close(self) -> None:
        """Give back what was opened for several calls, such as connections."""
