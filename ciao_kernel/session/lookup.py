"""Finds jobs in all backends, by name or all at once, for a session and for completion."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ciao_kernel.errors import BackendError, Incomplete, NoSuchJob, UsageError
from ciao_kernel.model import Job, Status
from ciao_kernel.model.queries import Where

if TYPE_CHECKING:
    from ciao_kernel.plugins import Backend

_OTHERS = 2.0
"""Maximum seconds for asking the other backends about a job of the same name."""


async def jobs(
    backends: Sequence[Backend], where: Where, faults: list[BackendError] | None
) -> list[tuple[Job, Status]]:
    """Return all jobs, oldest first; the arguments are those of :meth:`Session.jobs`."""
    found: list[tuple[Job, Status]] = []
    lacking: list[Incomplete] = []
    asked = _asked(backends, where)
    if where.is_explicit and [backend.name for backend in asked] == ["local"]:
        fault = BackendError(
            "jobs of a namespace or context cannot be listed: no cluster is configured here.",
            "Set KUBECONFIG; for jobs of this machine leave --namespace and --context out.",
        )
        if faults is None:
            raise fault
        faults.append(fault)
    for backend in asked:
        try:
            found += await backend.jobs(where)
        except Incomplete as error:
            found += error.found
            lacking.append(error)
        except BackendError as error:
            if faults is None:
                raise
            faults.append(error)
    found.sort(key=lambda pair: pair[0].created)
    if faults is None and lacking:
        raise Incomplete(lacking[0].message, lacking[0].hint, found)
    if faults is not None:
        faults += lacking
    return found


def _asked(backends: Sequence[Backend], where: Where) -> list[Backend]:
    named = [backend for backend in backends if backend.name == where.backend]
    if where.backend and not named:
        known = ", ".join(backend.name for backend in backends)
        raise UsageError(f"no backend {where.backend} is available.", f"Available: {known}.")
    return named or list(backends)


async def find(backends: Sequence[Backend], name: str, where: Where) -> tuple[Backend, Job, Status]:
    """Return one job by its name.

    Args:
        backends: The local backend is last; it answers at once and is asked first.
        name: Name of the job.
        where: Where to look for the job.

    Raises:
        NoSuchJob: No job has that name; the hint suggests the closest name.
        UsageError: Several jobs have that name.
        BackendError: A backend that may have the job does not answer.
    """
    missing: NoSuchJob | None = None
    fault: BackendError | None = None
    found: list[tuple[Backend, Job, Status]] = []
    for backend in reversed(_asked(backends, where)):
        try:
            # A job that was already found does not wait for an unreachable cluster.
            async with asyncio.timeout(_OTHERS if found else None):
                found.append((backend, *await backend.find(name, where)))
        except NoSuchJob as error:
            # A cluster's message names its namespace, which is more helpful.
            missing = missing if missing and missing.existed else error
        except BackendError as error:
            fault = error
        except TimeoutError:
            break
    if len(found) > 1:
        (first, one, _), (_, other, _) = found[:2]
        raise UsageError(
            f"there are {len(found)} jobs named {name}: in {one.place} and in {other.place}.",
            f"Write {name} --backend {first.name}, or {name} --namespace {other.place}.",
        )
    if found:
        return found[0]
    if fault is not None:
        raise fault
    assert missing is not None  # The local backend is always available.
    if missing.existed:
        raise missing
    known = {job.name: job for job, _ in await jobs(backends, where, [])}
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean {known[near[0]].reference}? {missing.hint}" if near else missing.hint
    raise NoSuchJob(missing.message, hint)
