"""Reads the output of a replica so far; :mod:`.follow` follows it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.cluster.paging import pages
from ciao_kernel.backends.kubernetes.object_fields import get
from ciao_kernel.backends.kubernetes.states import status
from ciao_kernel.errors import BackendError, ClusterFault, Refused
from ciao_kernel.kube.client import Client
from ciao_kernel.kube.server_clock import ServerClock
from ciao_kernel.model import Job, Manifest, Replica
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
    try:
        pod = await _pod(client, job, replica)
        path = f"/api/v1/namespaces/{job.place}/pods/{pod['metadata']['name']}/log"
        query = {"container": job_metadata.container(pod), **_query(options, client.clock)}
        data = await client.text(path, **query)
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


async def _pod(client: Client, job: Job, replica: Replica) -> Manifest:
    """Return the youngest pod of a replica.

    Its labels identify it, and not its name: each API chooses names as it likes.

    Raises:
        Refused: The server refuses, or there is no pod (code 404).
    """
    path = f"/api/v1/namespaces/{job.place}/pods"

    async def found(selector: str) -> list[Manifest]:
        return [
            pod
            for pod in await pages(client, path, selector)
            if job_metadata.replica(pod) == replica
            and job_metadata.is_part_of(pod, job.uid, job.run)
        ]

    pods = await found(job_metadata.pods_of(job, replica))
    if not pods and apis.of_job(job) is apis.TRAINER:  # the pods of a shared runtime
        pods = await found(job_metadata.selector(job))
    if not pods:
        raise Refused(f"{replica} of {job.name} has no pod.", code=404)
    return max(pods, key=lambda pod: str(get(pod, "metadata", "creationTimestamp")))


def _query(options: LogOptions, clock: ServerClock) -> dict[str, str]:
    query = {}
    if options.tail is not None:
        query["tailLines"] = str(options.tail)
    if options.previous:
        query["previous"] = "true"
    if options.timestamps:
        query["timestamps"] = "true"
    if options.since:
        query["sinceTime"] = status.text(clock.to_server(options.since))
    return query
