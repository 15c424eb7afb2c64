"""Finds the jobs of all backends, by name or all of them, for a session and for Tab."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from ciao_kernel.errors import BackendError, NoSuchJob
from ciao_kernel.model import Job, Status
from ciao_kernel.plugins import Backend
from ciao_kernel.queries import Where


async def jobs(
    backends: Sequence[Backend], where: Where, faults: list[BackendError] | None
) -> list[tuple[Job, Status]]:
    """All jobs, oldest first; the arguments are :meth:`ciao_kernel.session.Session.jobs`'s."""
    found = []
    for backend in backends:
        try:
            found += await backend.jobs(where)
        except BackendError as error:
            if faults is None:
                raise
            faults.append(error)
    return sorted(found, key=lambda pair: pair[0].created)


async def find(backends: Sequence[Backend], name: str, where: Where) -> tuple[Backend, Job, Status]:
    """One job by its name.

    Args:
        backends: The local one is the last; it answers at once and is asked first.
        name: Of the job.
        where: Where it is looked for.

    Raises:
        NoSuchJob: There is none; the hint offers the nearest one.
        BackendError: It may be where nobody answers.
    """
    missing: NoSuchJob | None = None
    fault: BackendError | None = None
    for backend in reversed(backends):
        try:
            return (backend, *await backend.find(name, where))
        except NoSuchJob as error:
            # What a cluster says names its namespace, which tells more.
            missing = error
        except BackendError as error:
            fault = error
    if fault is not None:
        raise fault
    assert missing is not None  # The local backend is always available.
    known = {job.name: job for job, _ in await jobs(backends, where, [])}
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean {known[near[0]].reference}? {missing.hint}" if near else missing.hint
    raise NoSuchJob(missing.message, hint)
