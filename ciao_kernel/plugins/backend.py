"""Protocol of backends, and the plan that a backend receives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ciao_kernel.model import Event, Job, JobSpec, Owner, Replica, Source, Status
from ciao_kernel.model.queries import HERE, WHOLE_LOG, Details, LogOptions, Streams, Where
from ciao_kernel.model.spec import OutputWay
from ciao_kernel.model.stacks import ReplicaSamples, ReplicaStacks
from ciao_kernel.model.usage import Usage, UsageReport
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


@runtime_checkable
class Suspending(Protocol):
    """A backend that can take the replicas of a job away for a while."""

    async def set_suspended(self, job: Job, *, suspended: bool) -> None:
        """End all replicas of a job, or start them again from the beginning.

        Args:
            job: The job, which is not over; it keeps its name.
            suspended: What it is to be.

        Raises:
            BackendError: It is so already, or the user may not do that.
        """


class Backend(Protocol):
    """Runs jobs. All methods may be called from any process of the same user."""

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


@runtime_checkable
class Feeding(Protocol):
    """The optional part of a :class:`Backend` whose replicas take input while they run (``%warm``).

    The replicas run the agent of :mod:`ciao_kernel.delivery.warm`, which reads commands.
    """

    keeps_runs: bool
    """True if the agents run on this machine: their folders are kept, and their input is a pipe in
    the job's folder. Otherwise it is the standard input of their container."""

    async def check_feeding(self, plan: Plan) -> None:
        """Raise an error that can be predicted, such as a missing right."""

    async def send(self, job: Job, replica: Replica, data: bytes) -> None:
        """Write a command to the input of a replica.

        It may arrive not at all or in part if the connection breaks: the sender repeats it until
        the log of the replica answers.

        Raises:
            BackendError: It cannot be delivered.
        """

    async def stop_feeding(self, job: Job) -> None:
        """Release what :meth:`send` keeps open for a job, which has ended."""


@dataclass(frozen=True, slots=True)
class WayBack:
    """How the files of one run leave warm replicas, which live on after it."""

    way: OutputWay
    limit: int
    """Largest number of bytes of a replica's files."""
    notice: str = ""
    """What a user has to know before the run."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Words about the limit for :class:`ciao_kernel.delivery.fetch.Fetch`."""
    addresses: Mapping[Replica, str] = field(default_factory=dict, repr=False)
    """Where each replica writes its files in a bucket. Who has an address can write that object."""
    read: Callable[[Replica, Callable[[bytes], object]], Awaitable[None]] | None = None
    """Passes on what a replica has written there."""


@runtime_checkable
class Returning(Protocol):
    """The optional part of a :class:`Feeding` backend whose replicas have their files elsewhere."""

    async def way_back(self, plan: Plan) -> WayBack:
        """Return how the files of a run come back.

        Args:
            plan: The cell, which has paths in ``%output``; the backend's ``check`` has accepted it.

        Raises:
            BackendError: There are no credentials for the bucket.
        """


@dataclass(frozen=True, slots=True)
class SentFiles:
    """The files of ``%output`` that a replica has sent by itself."""

    way: OutputWay
    limit: int
    """Largest number of bytes."""
    pod: str
    """Uid of its pod; "" if that is gone."""
    options: Mapping[str, Any]
    """More arguments for :class:`ciao_kernel.delivery.fetch.Fetch`."""
    execute: Callable[[Sequence[str], Streams], Awaitable[int]]
    """Passes them on, in place of a command."""
    remove: Callable[[], Awaitable[str]] | None = None
    """Removes them where they are, once they are here; returns what to tell, or ""."""


@runtime_checkable
class Sending(Protocol):
    """The optional part of a :class:`Backend` that has files of replicas that have ended."""

    async def sent(self, job: Job, replica: Replica) -> SentFiles | None:
        """Return the files that a replica has sent by itself.

        Args:
            job: The job.
            replica: The replica.

        Returns:
            None if they can be had by :meth:`Backend.execute`, now or later.

        Raises:
            BackendError: They cannot be had any more; the error says why.
        """


@runtime_checkable
class Inspecting(Protocol):
    """The optional part of a :class:`Backend` that looks into the processes of its replicas."""

    async def stacks(self, job: Job, replicas: Sequence[Replica]) -> list[ReplicaStacks]:
        """Return where the processes of some replicas stand, in the order of the replicas.

        Args:
            job: The job.
            replicas: Replicas of the job; one that does not answer has a ``fault``.

        Raises:
            BackendError: No replica can be asked.
        """


@runtime_checkable
class Profiling(Protocol):
    """The optional part of a :class:`Backend` that counts where its replicas spend their time."""

    async def samples(
        self, job: Job, replicas: Sequence[Replica], seconds: float
    ) -> list[ReplicaSamples]:
        """Return where the processes of some replicas stood, in the order of the replicas.

        Cancellation ends the sampling.

        Args:
            job: The job.
            replicas: Replicas of the job; one that does not answer has a ``fault``.
            seconds: How long they are sampled.

        Raises:
            BackendError: No replica can be asked.
        """


@runtime_checkable
class Debugging(Protocol):
    """The optional part of a :class:`Backend` that connects a person with a process's debugger."""

    async def why_not_debugged(self, spec: JobSpec) -> str:
        """Return why no prompt can be opened in a job, to end a sentence; "" if one can."""

    async def debug(
        self, job: Job, replica: Replica, pid: int, streams: Streams, rank: str = ""
    ) -> bool:
        """Carry a conversation until one side ends it; return at once if no process waits.

        Args:
            job: The job.
            replica: The replica whose process waits.
            pid: Number of the process, as the replica sees it; 0 means any that waits.
            streams: One JSON object a line either way (:mod:`ciao_kernel.delivery.inspection`).
            rank: Number of the process among those of its replica, if it was named; "" means any.

        Returns:
            False if the prompt of the process is open elsewhere.

        Raises:
            BackendError: There is no connection.
        """

    async def halt(self, job: Job, replica: Replica, rank: str = "") -> str:
        """Let a process of a replica stop at the next line of its program, at a prompt.

        Args:
            job: The job.
            replica: The replica.
            rank: Number of the process in it, if it was named; "" means the first that stops.

        Returns:
            ``stops``, ``open`` if its prompt is open, ``elsewhere`` if it runs no line of the
            program, ``silent`` if it has not answered, ``none`` if it has no debugger; "" if there
            is no process.

        Raises:
            BackendError: It cannot be asked.
        """


@runtime_checkable
class Measuring(Protocol):
    """The optional part of a :class:`Backend` that measures what its replicas use."""

    async def usage(self, job: Job, replicas: Sequence[Replica]) -> UsageReport:
        """Return what some replicas use now.

        Args:
            job: The job.
            replicas: Replicas of the job; one that does not answer has a ``fault``.

        Raises:
            BackendError: No replica can be measured.
        """


@runtime_checkable
class LimitingMemory(Protocol):
    """The optional part of a :class:`Backend` that kills a replica which exceeds its %memory."""

    async def watch_usage(
        self, job: Job, replica: Replica, note: Callable[[Usage], None], *, gpus: bool = False
    ) -> None:
        """Measure a replica every few seconds until it ends or this is cancelled.

        Args:
            job: The job.
            replica: The replica, which runs.
            note: Receives each reading.
            gpus: Measure GPUs too, which costs more.

        Raises:
            BackendError: The replica cannot be measured, or not any more.
        """
