"""The record of a job's next try, in a ConfigMap beside the job (``%retries``).

The try that failed is deleted before the next one is created under its name. A kernel that is
killed in between would leave nothing of the job, so it writes the objects of the next try down
first. Whoever looks for the job then finds the record: ``ciao attach`` creates the next try from
it, ``ciao jobs`` lists it, and ``ciao delete`` removes it.

Followers settle a record when they see its try: it loses its label and its objects, and the try
owns it. Only a deletion of the job removes it. So whoever has created the try and finds no record
deletes the try too, and no deletion is lost, however the requests of both mix. The record needs the
optional rights for ConfigMaps; without them there is none.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ciao_kernel.backends.kubernetes import rights
from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.lifecycle import try_record
from ciao_kernel.backends.kubernetes.lifecycle.try_record import NextTry
from ciao_kernel.errors import BackendError, Refused
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job, Manifest

if TYPE_CHECKING:
    from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects

_log = logging.getLogger(__name__)


def path(place: str, name: str = "") -> str:
    """Return the path of a job's record, or of all ConfigMaps."""
    core = f"/api/v1/namespaces/{place}/configmaps"
    return f"{core}/{name}-next-try" if name else core


async def write(target: Target, made: Objects, job: Job) -> tuple[NextTry | None, bool]:
    """Write the next try of a job down.

    Args:
        target: The job's cluster and namespace.
        made: The objects of the next try.
        job: The last try.

    Returns:
        The record, None if there can be none, and whether somebody else has written it already.

    Raises:
        Refused, ClusterFault: From the client.
    """
    # Late: a list of jobs makes none.
    from ciao_kernel.backends.kubernetes.lifecycle import next_objects

    body = try_record.record(made, job)
    if body is None or not all(await rights.allowed(target.client, job.place, *rights.CLAIM)):
        _log.info("the next try of %s is not written down", job.name)
        return None, False
    for _ in range(2):
        try:
            item = await target.client.create(path(job.place), body)
        except Refused as error:
            if error.code == 403:
                return None, False
            if error.reason != "AlreadyExists":
                raise
            there = await of_job(target.client, job)
            if there and next_objects.with_run(there.made, job_metadata.run(made.job)) == made:
                return there, True
            # Of an earlier job or try, or anybody has written it to have other objects created.
            old = await target.client.find(path(job.place, job.name))
            if old and job_metadata.is_ours(old):
                uid = str(old["metadata"]["uid"])
                await target.client.delete(path(job.place, job.name), uid=uid)
        else:
            return NextTry(
                made, {**body, "metadata": {**body["metadata"], **item["metadata"]}}
            ), False
    return None, False


async def find(client: Client, place: str, name: str) -> NextTry | None:
    """Return the record of a job's next try; None if there is none, or no right to read it.

    Raises:
        Refused, ClusterFault: From the client.
    """
    try:
        item = await client.find(path(place, name))
    except Refused as error:
        if error.code != 403:
            raise
        return None
    return try_record.read(item, place) if item else None


async def of_job(client: Client, job: Job) -> NextTry | None:
    """Return the record of the try that follows this one of a job; None if there is none."""
    record = await find(client, job.place, job.name)
    known = record and (record.first_uid, record.number) == (job.identity, job.tries + 1)
    return record if known else None


async def settle(client: Client, job: Job, item: Manifest) -> bool:
    """Settle the record of a try that exists; return False if somebody has deleted the job.

    Any follower that sees the try does so: its creator may have been killed at once.

    Args:
        client: The API server.
        job: The new try.
        item: Its object.
    """
    # Late: a list of jobs creates nothing.
    from ciao_kernel.backends.kubernetes.lifecycle import creation

    at = path(job.place, job.name)
    record = await client.find(at)
    if record is None or try_record.note(record, job_metadata.FIRST_UID) != job.identity:
        return False
    told = try_record.read(record, job.place)
    if told is None or told.number > job.tries:
        return True  # another follower has settled it, or written the next one down
    kind = {"apiVersion": item["apiVersion"], "kind": item["kind"]}
    meta = {
        "uid": told.uid,
        "labels": {try_record.LABEL: None},
        "ownerReferences": [creation.owner_reference(item, kind)],
    }
    try:
        await client.patch(at, {"metadata": meta, "binaryData": {try_record.KEY: None}})
    except Refused as error:
        if error.code not in (404, 409):
            raise
        return False
    return True


async def withdraw(client: Client, job: Job) -> NextTry | None:
    """Remove the record of a job's next try, so that nobody creates it; return what was removed.

    Whoever is about to create that try notices it, and deletes it again.

    Args:
        client: The API server.
        job: Any try of the job.

    Raises:
        BackendError: This user may not remove it.
    """
    record = await find(client, job.place, job.name)
    if record is None or record.first_uid != job.identity:
        return None
    try:
        gone = await client.delete(path(job.place, job.name), uid=record.uid)
    except Refused as error:
        if error.code != 403:
            raise
        raise BackendError(
            f"{job.name} may be started again: you may not delete the ConfigMap "
            f"{job.name}-next-try.",
            "Ask for the right to delete configmaps (deploy/rbac), or somebody who has it.",
        ) from error
    return record if gone else None
