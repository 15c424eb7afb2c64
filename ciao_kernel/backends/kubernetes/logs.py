"""Reads the output of a replica so far; :mod:`.follow` follows it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ciao_kernel.backends.kubernetes import job_metadata, status
from ciao_kernel.errors import BackendError, ClusterFault, Refused
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job, Replica
from ciao_kernel.model.queries import LogOptions, last_lines


async def read(
    client: Client, job: Job, replica: Replica, options: LogOptions, kept: Path
) -> bytes:
    """Read the log of the pod, otherwise the log saved on this machine.

    Args:
        client: The API server.
        job: The replica's job.
        replica: The replica to read.
        options: The part to read.
        kept: The saved log of this replica, which may be missing.

    Raises:
        Refused: The server refuses, and no log was saved here.
        BackendError: The requested part does not exist.
    """
    path = f"/api/v1/namespaces/{job.place}/pods/{job.name}-{replica}"
    try:
        pod = await client.get(path)
        if not job_metadata.is_part_of(pod, job.uid):
            raise Refused(f"the pod {job.name}-{replica} belongs to another job.", code=404)
        query = {"container": job_metadata.container(pod), **_query(options)}
        data = await client.text(f"{path}/log", **query)
    except (Refused, ClusterFault) as error:
        gone = isinstance(error, Refused) and error.code in (400, 404)
        if options.previous and isinstance(error, Refused) and error.code == 400:
            raise BackendError(
                f"{replica} of {job.name} was not restarted in its pod: there is no previous log.",
                "Omit --previous.",
            ) from None
        if not kept.exists():
            if gone:  # not started yet, or already deleted
                return b""
            raise
        if options.previous or options.timestamps or options.since:
            raise BackendError(
                f"the log of {replica} cannot be read from the cluster ({error.message.rstrip('.')}"
                f"); the lines saved on this machine are in {kept}, without times.",
                "Omit --previous, --timestamps and --since to see them.",
            ) from error
        data = await asyncio.to_thread(kept.read_bytes)
    return data if options.tail is None else last_lines(data, options.tail)


def _query(options: LogOptions) -> dict[str, str]:
    query = {}
    if options.tail is not None:
        query["tailLines"] = str(options.tail)
    if options.previous:
        query["previous"] = "true"
    if options.timestamps:
        query["timestamps"] = "true"
    if options.since:
        query["sinceTime"] = status.text(options.since)
    return query
