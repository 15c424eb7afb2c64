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

import base64
import copy
import gzip
import json
import logging
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ciao_kernel.backends.kubernetes import apis, rights
from ciao_kernel.backends.kubernetes.apis import job_metadata, template_holder, trainer
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.errors import BackendError, Refused
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job, Manifest, State, Status

if TYPE_CHECKING:
    from ciao_kernel.backends.kubernetes.manifests.manifest import Objects

_log = logging.getLogger(__name__)

LABEL = "ciao-kernel/next-try"
"""Label of the records whose try nobody has seen yet."""
SELECTOR = f"{job_metadata.OURS},{LABEL}"
_LAST_UID = "ciao-kernel/last-uid"
_LAST_RUN = "ciao-kernel/last-run"
"""Annotations with the uid and the submission of the try before."""
_KEY = "objects"
_MOST_BYTES = 1_000_000
"""Size of a record; a ConfigMap holds 1 MiB."""
_LARGEST = 1 << 24
"""Bytes of its objects; anybody may have written them."""
_BESIDE = ("ConfigMap", "Service", trainer.RUNTIME)
"""Kinds of the objects beside a job."""


@dataclass(frozen=True, slots=True)
class NextTry:
    """A recorded try."""

    made: Objects
    item: Manifest
    """The record."""

    @property
    def uid(self) -> str:
        """The uid of the record."""
        return str(self.item["metadata"]["uid"])

    @property
    def first_uid(self) -> str:
        """The uid of the job's first try."""
        return _note(self.item, job_metadata.FIRST_UID)

    @property
    def number(self) -> int:
        """The number of the try."""
        return int(_note(self.made.job, job_metadata.TRY) or 2)

    @property
    def path(self) -> str:
        """The path of the job's object, which does not exist now."""
        return f"{self.made.path}/{self.made.job['metadata']['name']}"

    @property
    def before(self) -> Objects:
        """The objects of the try before, as far as a deletion needs them."""
        return replace(self.made, job=self.last)

    @property
    def last(self) -> Manifest:
        """The object of the try before, as far as lists and descriptions need it."""
        job, record = copy.deepcopy(self.made.job), self.item["metadata"]
        meta = job["metadata"]
        meta["uid"] = _note(self.item, _LAST_UID)
        meta["creationTimestamp"] = record.get("creationTimestamp")
        meta["labels"] = {**(meta.get("labels") or {}), LABEL: "true"}
        notes = meta["annotations"]
        notes |= {
            job_metadata.RUN: _note(self.item, _LAST_RUN),
            job_metadata.TRY: str(self.number - 1),
        }
        return job


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
    from ciao_kernel.backends.kubernetes.lifecycle import (
        next_objects,  # late: a list of jobs makes none
    )

    body = _record(made, job)
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
    return read(item, place) if item else None


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
    from ciao_kernel.backends.kubernetes.lifecycle import (
        creation,  # late: a list of jobs creates nothing
    )

    at = path(job.place, job.name)
    record = await client.find(at)
    if record is None or _note(record, job_metadata.FIRST_UID) != job.identity:
        return False
    told = read(record, job.place)
    if told is None or told.number > job.tries:
        return True  # another follower has settled it, or written the next one down
    kind = {"apiVersion": item["apiVersion"], "kind": item["kind"]}
    meta = {
        "uid": told.uid,
        "labels": {LABEL: None},
        "ownerReferences": [creation.owner_reference(item, kind)],
    }
    try:
        await client.patch(at, {"metadata": meta, "binaryData": {_KEY: None}})
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


def read(item: Manifest, place: str) -> NextTry | None:
    """Return the try that a ConfigMap holds, which anybody may have written; None if it is none."""
    if not job_metadata.is_ours(item) or LABEL not in (get(item, "metadata", "labels") or {}):
        return None
    from ciao_kernel.backends.kubernetes.manifests import (
        manifest,  # late: hardly a list has a record
    )

    try:
        packed = base64.b64decode(item["binaryData"][_KEY], validate=True)
        told = json.loads(_unpacked(packed))
        made = manifest.Objects(tuple(told["beside"]), told["job"], told["path"])
        name = item["metadata"]["name"].removesuffix("-next-try")
        api = apis.of_resource(apis.resource_of(made.path))
        known = made.path == api.at(place, apis.resource_of(made.path))
        valid = known and all(one["kind"] in _BESIDE for one in made.beside)
        for one in (made.job, *made.beside):
            valid = valid and one["metadata"]["namespace"] == place
        job_metadata.job(made.job, 0.0)
        template_holder.pod_templates(made.job)
        if valid and made.job["metadata"]["name"] == name:
            return NextTry(made, item)
    except (
        KeyError,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
        OSError,
        EOFError,
        zlib.error,
    ) as error:
        _log.info("a record of a next try cannot be read: %r", error)
    return None


def is_recorded(item: Manifest) -> bool:
    """Return whether the object of a job comes from such a record (:attr:`NextTry.last`)."""
    return LABEL in (get(item, "metadata", "labels") or {})


def status(now: Status) -> Status:
    """Return the status of a job of which only the record exists."""
    text = "it is started again after the loss of a replica, by who follows it"
    return Status(State.PENDING, now.replicas, reason="Restarting", message=text)


def _record(made: Objects, job: Job) -> Manifest | None:
    """Return the ConfigMap; None if it would be too large."""
    told = {"path": made.path, "job": made.job, "beside": made.beside}
    text = base64.b64encode(gzip.compress(json.dumps(told).encode(), mtime=0)).decode()
    if len(text) > _MOST_BYTES:
        return None
    run = _note(made.job, job_metadata.RUN)
    notes = {
        **job_metadata.source_notes(job, run),
        job_metadata.FIRST_UID: job.identity,
        _LAST_UID: job.uid,
        _LAST_RUN: job.run,
    }
    meta: Manifest = {
        "name": f"{job.name}-next-try",
        "namespace": job.place,
        "labels": {**job_metadata.labels(job.name), LABEL: "true"},
        "annotations": notes,
    }
    if owners := many(made.job, "metadata", "ownerReferences"):  # it ends with the kernel's pod
        meta["ownerReferences"] = owners
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "binaryData": {_KEY: text}}


def _unpacked(packed: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    data = unpacker.decompress(packed, _LARGEST)
    if not unpacker.eof:
        raise ValueError("too large, or cut")
    return data


def _note(item: Manifest, name: str) -> str:
    return str(get(item, "metadata", "annotations", name) or "")
