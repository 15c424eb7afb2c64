"""Protocol of backends, and the plan that a backend receives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ciao_kernel.model import Event, Job, JobSpec, Owner, Replica, Source, Status
from ciao_kernel.model.queries import HERE, WHOLE_LOG, Details, LogOptions, Streams, Where
from ciao_kernel.plugins.builder import Builder, Emit
from ciao_kernel.plugins.framework import Framework


@dataclass(frozen=True, slots=True)
class Plan:
    """Input for submitting a job; made by the session and checked before use."""

    name: str | None
    """The name that the user gave, or None. The backend makes it unique."""
    spec: JobSpec
    framework: Framework
    source: Source
    folder: Path
    """The user's folder: the one that contains the notebook or the file."""
    header: str
    owner: Owner
    written: Mapping[str, str] = field(default_factory=dict)
    """Directives as the user finds them, ``%image (line 3)``, by field (``cluster.image``)."""
    made_of: tuple[tuple[str, str], ...] = ()
    """Names and values that describe the source, for `ciao describe`."""


class Backend(Protocol):
    """Runs jobs. All methods may be called from any process of the same user.

    What only some backends can do is in :mod:`ciao_kernel.plugins.optional_parts`.
    """

    name: str
    outlives_kernel: bool
    """True if a job keeps running when its kernel ends, unless a setting overrides it."""

    def available(self) -> bool:
        """Return whether ``auto`` may choose this backend here. Cheap; sends no requests."""

    async def check(self, plan: Plan) -> None:
        """Raise an error that can be predicted, before anything is created."""

    async def preview(self, plan: Plan, builder: Builder) -> str:
        """Describe what :meth:`submit` would do, without creating anything.

        With ``DryRun.SERVER``, raise the errors that a submission would raise.
        """

    async def submit(self, plan: Plan, builder: Builder, emit: Emit, *, outlive: bool) -> Job:
        """Build and start the job. It exists when this returns; after an error nothing is left.

        Args:
            plan: The job; :meth:`check` has accepted it.
            builder: Makes the artifact.
            emit: Shows messages about slow steps.
            outlive: Keep the job running when ``plan.owner`` ends.
        """

    def follow(self, job: Job, *, since: float = 0.0) -> AsyncIterator[Event]:
        """Yield all output from the start and each change of state, until the job is settled.

        Every line is yielded exactly once, before the last :class:`Status`.

        Args:
            job: The job to follow.
            since: Seconds since the epoch; lines that are certainly older are left out.

        Raises:
            UsageError: This backend does not record the times of lines.
            JobLost: The process that runs the job is gone.
        """

    async def is_host_terminating(self, job: Job) -> bool:
        """Return whether the job's host reports that it is about to terminate this process.

        Called before an interrupt stops a job, because the interrupt may be the start of that
        termination. Returns quickly.
        """

    async def stop(
        self, job: Job, reason: str, *, stop_certain: Callable[[], None] = lambda: None
    ) -> None:
        """Stop all replicas and wait until they have ended.

        Args:
            job: The job to stop.
            reason: Shown to others who follow the job.
            stop_certain: Called at least once, as soon as the job will end whatever happens to this
                process.
        """

    async def delete(self, job: Job) -> None:
        """Stop the job and remove everything that it left, including its files.

        Called for many jobs at the same time, as tasks of one event loop.
        """

    async def jobs(self, where: Where = HERE) -> list[tuple[Job, Status]]:
        """Return all jobs in the scope of ``where``, oldest first."""

    async def find(self, name: str, where: Where = HERE) -> tuple[Job, Status]:
        """Return the job with a name.

        Raises:
            NoSuchJob: No job has this name.
            UsageError: Several jobs in different places have this name.
        """

    async def details(self, job: Job) -> Details:
        """Return the details of a job besides its status."""

    async def log(self, job: Job, replica: Replica, options: LogOptions = WHOLE_LOG) -> bytes:
        """Return the output of one replica so far, or a part of it.

        Raises:
            UsageError: This backend does not support an option, such as times of lines.
            BackendError: The requested log does not exist.
        """

    async def execute(
        self, job: Job, replica: Replica, command: Sequence[str], streams: Streams
    ) -> int:
        """Run a command next to a replica, as if it were part of it; return its exit code.

        Cancellation closes everything on this side; in a pod the command may keep running.

        Args:
            job: The job.
            replica: The replica in whose environment the command runs.
            command: An argument vector; no shell is involved.
            streams: Input and output of the command.

        Raises:
            BackendError: The command could not be started, or its exit code is unknown.
        """

    def describe_leftovers(self, job: Job) -> str:
        """Return a phrase that describes what is left of a stopped job, to end a sentence.

        While :meth:`stop` is in progress, return what it still waits for.
        """

    async def close(self) -> None:
        """Release resources that were opened for several calls, such as connections."""
