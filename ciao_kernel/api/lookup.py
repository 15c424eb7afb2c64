"""Finds jobs by their name or place, as Python objects."""

from __future__ import annotations

from collections.abc import Iterable

from ciao_kernel.api.client import Client
from ciao_kernel.api.job_handle import JobHandle
from ciao_kernel.errors import Incomplete, UsageError
from ciao_kernel.model import Job, Status
from ciao_kernel.model.queries import Where
from ciao_kernel.session.session import Session


class JobList(list[JobHandle]):
    """Several jobs, oldest first; shown one per line."""

    def __repr__(self) -> str:
        return "\n".join(map(repr, self)) or "no jobs"


def find(client: Client, name: str, where: Where) -> JobHandle:
    """Return the job with a name.

    Raises:
        NoSuchJob: No job has that name; the hint suggests the closest name.
        UsageError: Several jobs in different places have that name, or there is no such backend.
    """

    async def ask(session: Session) -> tuple[Job, Status]:
        try:
            _, job, status = await session.find(name, where)
        except UsageError as error:
            if where.backend:
                raise
            # The hint has options of a command line.
            hint = f'Name its backend: ciao_kernel.job("{name}", backend="local"), for example.'
            raise UsageError(error.message, hint) from None
        return job, status

    job, status = client.run(ask)
    return JobHandle(job, status, client)


def find_all(client: Client, where: Where, *, mine: bool) -> JobList:
    """Return all jobs in a place, oldest first.

    Args:
        client: Asks the backends.
        where: The place.
        mine: Leave out the jobs of other users of a namespace.

    Raises:
        BackendError: A backend does not answer.
        UsageError: There is no such backend.
    """

    async def ask(session: Session) -> Iterable[tuple[Job, Status]]:
        try:
            found = await session.jobs(where=where)
        except Incomplete as error:  # `%ciao jobs` names the records that are not used
            found = list(error.found)
        return [one for one in found if not mine or session.owns(one[0])]

    return JobList(JobHandle(job, status, client) for job, status in client.run(ask))
