"""Asks the replicas of a job where they stand, or stood over some seconds, and what they use."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from ciao_kernel import log
from ciao_kernel.errors import CiaoError, UsageError
from ciao_kernel.model import Job, Replica
from ciao_kernel.model.stacks import ReplicaSamples, ReplicaStacks
from ciao_kernel.model.usage import UsageReport
from ciao_kernel.plugins import Backend, Inspecting, Measuring, Profiling

_log = logging.getLogger(__name__)


async def ask(backend: Backend, job: Job, replicas: Sequence[Replica] = ()) -> list[ReplicaStacks]:
    """Return where the processes of a job stand.

    Args:
        backend: The backend that runs the job.
        job: The job.
        replicas: The replicas to ask; empty: all.

    Raises:
        UsageError: The backend cannot look into its replicas.
        BackendError: No replica can be asked.
    """
    if not isinstance(backend, Inspecting):
        raise UsageError(
            f"the backend {backend.name} cannot look into its replicas.",
            f"`%ciao logs {job.reference}` shows what they have written.",
        )
    return await backend.stacks(job, replicas or job.replicas)


async def sample(
    backend: Backend, job: Job, replicas: Sequence[Replica], seconds: float
) -> list[ReplicaSamples]:
    """Return where the processes of a job stood, over some seconds.

    Args:
        backend: The backend that runs the job.
        job: The job.
        replicas: The replicas to sample.
        seconds: How long.

    Raises:
        UsageError: The backend cannot look into its replicas.
        BackendError: No replica can be asked.
    """
    if not isinstance(backend, Profiling):
        raise UsageError(f"the backend {backend.name} cannot look into its replicas.")
    return await backend.samples(job, replicas, seconds)


async def ask_quietly(backend: Backend, job: Job) -> list[ReplicaStacks]:
    """Return the same for a picture that nobody asked for; nothing after an error."""
    try:
        return await ask(backend, job)
    except CiaoError as error:
        _log.info("%s: no picture: %s", job.name, error.message)
    except asyncio.CancelledError:
        raise
    except Exception:
        with log.ignored(_log, "the picture of a job"):
            raise
    return []


async def usage(backend: Backend, job: Job, replicas: Sequence[Replica] = ()) -> UsageReport:
    """Return what the replicas of a job use.

    Args:
        backend: The backend that runs the job.
        job: The job.
        replicas: The replicas to ask; empty: all.

    Raises:
        UsageError: The backend cannot measure its replicas.
        BackendError: No replica can be measured.
    """
    if not isinstance(backend, Measuring):
        raise UsageError(
            f"the backend {backend.name} cannot measure what its replicas use.",
            f"`%ciao logs {job.reference}` shows what they have written.",
        )
    return await backend.usage(job, replicas or job.replicas)
