"""The objects of a job's next try, from those of the last one (:mod:`.retries`)."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from dataclasses import replace

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import (
    job_metadata,
    template_holder,
    trainer,
)
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.lifecycle import beside
from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects
from ciao_kernel.backends.kubernetes.object_fields import get
from ciao_kernel.errors import BackendError
from ciao_kernel.model import Job, Manifest

_MOST_BYTES = 100_000
"""Size of a spec that is told; all annotations of an object have 256 KiB."""


def with_submitted(made: Objects) -> Objects:
    """Return the objects of a first try, whose job tells its spec as it is submitted.

    Kueue adds the selector of nodes and the tolerations of an admission to the job itself, and the
    next try may be admitted to other nodes.
    """
    text = json.dumps(made.job["spec"])
    if len(text) > _MOST_BYTES:
        return made
    meta = made.job["metadata"]
    notes = {**meta["annotations"], job_metadata.SUBMITTED: text}
    return replace(made, job={**made.job, "metadata": {**meta, "annotations": notes}})


def objects(item: Manifest, sources: Iterable[Manifest], job: Job, run: str) -> Objects:
    """Return the objects of a job's next try: those of the last, without what the server added.

    Args:
        item: The object of the last try.
        sources: The objects beside it, as :func:`sources_of` returns them.
        job: The last try.
        run: Unique identifier of the next submission.
    """
    body = _cleaned(item, run)
    body["apiVersion"], body["kind"] = _kind(item, job)
    notes = {job_metadata.TRY: str(job.tries + 1), job_metadata.FIRST_UID: job.identity}
    body["metadata"]["annotations"] |= notes
    if owners := get(item, "metadata", "ownerReferences"):  # a kernel's pod
        body["metadata"]["ownerReferences"] = owners
    body["spec"] = apis.of_item(item).as_submitted(_submitted(item) or item["spec"])
    again = []
    for source in sources:
        made = _cleaned(source, run)
        made |= {key: source[key] for key in ("data", "binaryData", "immutable") if key in source}
        if source["kind"] == trainer.RUNTIME:
            made["spec"] = source["spec"]
        if source["kind"] == "Service":
            own = ("clusterIP", "publishNotReadyAddresses", "selector")
            made["spec"] = {key: source["spec"][key] for key in own if key in source["spec"]}
        again.append(made)
    found = Objects(tuple(again), body, job_metadata.path(job.place, job.resource, "")[:-1])
    return with_run(found, run)  # the pods of some kinds name their submission


def with_run(made: Objects, run: str) -> Objects:
    """Return the objects of a next try as another submission, of which an undo touches no other."""
    job, *others = copy.deepcopy([made.job, *made.beside])
    again = replace(made, job=job, beside=tuple(others), shared=None)
    for one in (job, *others, *template_holder.pod_templates(again.holder).values()):
        notes = get(one, "metadata", "annotations")
        if isinstance(notes, dict) and job_metadata.RUN in notes:
            notes[job_metadata.RUN] = run
    return again


def _submitted(item: Manifest) -> Manifest:
    """Return the spec of a job as it was submitted; nothing if the job does not tell it."""
    try:
        told = json.loads(get(item, "metadata", "annotations", job_metadata.SUBMITTED) or "{}")
    except (ValueError, TypeError, RecursionError):
        return {}
    # Another object of the same kind has the same fields.
    if not isinstance(told, dict) or not told.keys() <= item["spec"].keys():
        return {}
    body = {**item, "spec": told}
    if runtime := trainer.runtime_name(item):  # which has the templates
        return told if trainer.runtime_name(body) == runtime else {}
    return told if template_holder.pod_templates(body) else {}


def _cleaned(item: Manifest, run: str) -> Manifest:
    meta = item["metadata"]
    labels = dict(meta.get("labels") or {})
    labels.pop(job_metadata.UNOWNED, None)
    return {
        "apiVersion": item.get("apiVersion"),
        "kind": item.get("kind"),
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": {**(meta.get("annotations") or {}), job_metadata.RUN: run},
        },
    }


def _kind(item: Manifest, job: Job) -> tuple[str, str]:
    api = apis.of_resource(job.resource)
    return f"{api.group}/{api.version}", str(item["kind"])


async def sources_of(target: Target, item: Manifest, job: Job) -> list[Manifest]:
    """Return what ciao created beside a job: ConfigMaps, the Service of its hosts, a runtime.

    Raises:
        BackendError: An object is gone, without which the pods would not start.
    """
    holder = item
    if runtime := template_holder.path(item, job.place):
        holder = await target.client.find(runtime) or {}
    made = []
    for one in beside.of(job, item, holder):
        if one.of_controller:
            continue
        source = await target.client.find(one.path)
        if source is None:
            raise BackendError(
                f"{job.name} cannot be started again: its {one.kind} {one.name} is gone.",
                "Start it as a new job; with %checkpoint it goes on.",
            )
        if job_metadata.run(source) == job_metadata.run(item):
            made.append({**source, "apiVersion": one.api_version, "kind": one.kind})
    return made
