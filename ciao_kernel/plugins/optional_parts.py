"""Optional parts of backends: a protocol for each, which the session asks for.

A backend has such a part if it has the methods. The session looks by :func:`isinstance`, and says
in the cell what is not possible without.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ciao_kernel.model import Job, JobSpec, Replica, Volume
from ciao_kernel.model.outputs import OutputWay
from ciao_kernel.model.queries import WHOLE_LOG, LogOptions, Streams
from ciao_kernel.model.usage import Usage, UsageReport
from ciao_kernel.plugins.backend import Plan

if TYPE_CHECKING:
    from ciao_kernel.model.stacks import ReplicaSamples, ReplicaStacks


@runtime_checkable
class Streaming(Protocol):
    """A backend that reads a log in pieces: it may have gigabytes."""

    def log_pieces(
        self, job: Job, replica: Replica, options: LogOptions = WHOLE_LOG
    ) -> AsyncGenerator[bytes, None]:
        """Yield what :meth:`ciao_kernel.plugins.Backend.log` returns, in pieces that end anywhere.

        Args:
            job: The job.
            replica: The replica.
            options: The part to read.

        Raises:
            UsageError: As for :meth:`ciao_kernel.plugins.Backend.log`.
            BackendError: The requested log does not exist, or its rest cannot be read.
        """


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


@runtime_checkable
class LackingVolumes(Protocol):
    """A backend that has the sources of some volumes only, such as this machine."""

    def check_volume(self, volume: Volume) -> None:
        """Check that jobs can have a volume.

        Raises:
            SpecError: They cannot.
        """


@runtime_checkable
class Feeding(Protocol):
    """A backend whose replicas take input while they run (``%warm``).

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
    """The way by which files of one run leave warm replicas, which live on after it."""

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
    """A :class:`Feeding` backend whose replicas have their files elsewhere."""

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
    close: Callable[[], Awaitable[None]] | None = None
    """Ends what was started to read them."""


@runtime_checkable
class Sending(Protocol):
    """A backend that has files of replicas that have ended."""

    async def sent(self, job: Job, replica: Replica) -> SentFiles | None:
        """Return the files that a replica has sent by itself.

        Args:
            job: The job.
            replica: The replica.

        Returns:
            None if they can be had by :meth:`ciao_kernel.plugins.Backend.execute`, now or later.

        Raises:
            BackendError: They cannot be had any more; the error says why.
        """


@runtime_checkable
class Inspecting(Protocol):
    """A backend that looks into the processes of its replicas."""

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
    """A backend that counts where its replicas spend their time."""

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
    """A backend that connects a person with a process's debugger."""

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
    """A backend that measures what its replicas use."""

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
    """A backend that kills a replica which exceeds its %memory."""

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


OPTIONAL_BACKEND_PARTS = (
    Suspending, LackingVolumes, Feeding, Returning, Sending, Inspecting, Profiling, Debugging,
    Measuring, LimitingMemory, Streaming,
)  # fmt: skip
"""All protocols of this module."""
