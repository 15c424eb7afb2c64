"""The form of a record of a job's next try, a ConfigMap (:mod:`.next_try`): pure functions."""

from __future__ import annotations

import base64
import copy
import gzip
import json
import logging
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import job_metadata, template_holder, trainer
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.model import Job, Manifest, State, Status

if TYPE_CHECKING:
    from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects

_log = logging.getLogger(__name__)

LABEL = "ciao-kernel/next-try"
"""Label of the records whose try nobody has seen yet."""
SELECTOR = f"{job_metadata.OURS},{LABEL}"
_LAST_UID = "ciao-kernel/last-uid"
_LAST_RUN = "ciao-kernel/last-run"
"""Annotations with the uid and the submission of the try before."""
KEY = "objects"
"""Key of the objects in its data."""
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
        return note(self.item, job_metadata.FIRST_UID)

    @property
    def number(self) -> int:
        """The number of the try."""
        return int(note(self.made.job, job_metadata.TRY) or 2)

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
        meta["uid"] = note(self.item, _LAST_UID)
        meta["creationTimestamp"] = record.get("creationTimestamp")
        meta["labels"] = {**(meta.get("labels") or {}), LABEL: "true"}
        notes = meta["annotations"]
        notes |= {
            job_metadata.RUN: note(self.item, _LAST_RUN),
            job_metadata.TRY: str(self.number - 1),
        }
        return job


def record(made: Objects, job: Job) -> Manifest | None:
    """Return the ConfigMap for the next try of a job; None if it would be too large."""
    told = {"path": made.path, "job": made.job, "beside": made.beside}
    text = base64.b64encode(gzip.compress(json.dumps(told).encode(), mtime=0)).decode()
    if len(text) > _MOST_BYTES:
        return None
    run = note(made.job, job_metadata.RUN)
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
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "binaryData": {KEY: text}}


def read(item: Manifest, place: str) -> NextTry | None:
    """Return the try that a ConfigMap holds, which anybody may have written; None if it is none."""
    if not job_metadata.is_ours(item) or LABEL not in (get(item, "metadata", "labels") or {}):
        return None
    # Late: hardly a list has a record.
    from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects

    try:
        packed = base64.b64decode(item["binaryData"][KEY], validate=True)
        told = json.loads(_unpacked(packed))
        made = Objects(tuple(told["beside"]), told["job"], told["path"])
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


def _unpacked(packed: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    data = unpacker.decompress(packed, _LARGEST)
    if not unpacker.eof:
        raise ValueError("too large, or cut")
    return data


def note(item: Manifest, name: str) -> str:
    """Return an annotation of a record or of a job; "" if it has none."""
    return str(get(item, "metadata", "annotations", name) or "")
