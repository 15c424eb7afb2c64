"""The objects of a job's next try, from those of the last one (:mod:`.retries`)."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from dataclasses import replace

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import (
    JOB,
    TRAINER,
    job_metadata,
    template_holder,
    trainer,
)
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.errors import BackendError
from ciao_kernel.model import Job, Manifest

_OF_SERVER = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)
"""Labels that the server adds to the template of a Job."""
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


def objects(item: Manifest, beside: Iterable[Manifest], job: Job, run: str) -> Objects:
    """Return the objects of a job's next try: those of the last, without what the server added.

    Args:
        item: The object of the last try.
        beside: The objects beside it.
        job: The last try.
        run: Unique identifier of the next submission.
    """
    body = _cleaned(item, run)
    body["apiVersion"], body["kind"] = _kind(item, job)
    notes = {job_metadata.TRY: str(job.tries + 1), job_metadata.FIRST_UID: job.identity}
    body["metadata"]["annotations"] |= notes
    if owners := get(item, "metadata", "ownerReferences"):  # a kernel's pod
        body["metadata"]["ownerReferences"] = owners
    body["spec"] = dict(_submitted(item) or item["spec"])
    if apis.of_item(item) is JOB:
        body["spec"].pop("selector", None)
        template = dict(body["spec"]["template"])
        labels = get(template, "metadata", "labels") or {}
        kept = {key: value for key, value in labels.items() if key not in _OF_SERVER}
        template["metadata"] = {**template["metadata"], "labels": kept}
        body["spec"]["template"] = template
    again = []
    for source in beside:
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
    job, *beside = copy.deepcopy([made.job, *made.beside])
    again = replace(made, job=job, beside=tuple(beside), shared=None)
    for one in (job, *beside, *template_holder.pod_templates(again.holder).values()):
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


async def sources(target: Target, item: Manifest, job: Job) -> list[Manifest]:
    """Return what ciao created beside a job: ConfigMaps, the Service of its hosts, a runtime."""
    core, found = f"/api/v1/namespaces/{job.place}", dict[str, tuple[str, str]]()
    holder = item
    if runtime := template_holder.path(item, job.place):
        found[runtime] = (f"{TRAINER.group}/{TRAINER.version}", trainer.RUNTIME)
        holder = await target.client.find(runtime) or {}
    for template in template_holder.pod_templates(holder).values():
        for volume in many(template, "spec", "volumes"):
            if name := get(volume, "configMap", "name"):
                found[f"{core}/configmaps/{name}"] = ("v1", "ConfigMap")
        if name := get(template, "spec", "subdomain"):
            found[f"{core}/services/{name}"] = ("v1", "Service")
    made = []
    for path, (version, kind) in sorted(found.items()):
        source = await target.client.find(path)
        if source is None:
            name = path.rpartition("/")[2]
            raise BackendError(
                f"{job.name} cannot be started again: its {kind} {name} is gone.",
                "Run the cell again; with %checkpoint it goes on.",
            )
        if job_metadata.run(source) == job_metadata.run(item):
            made.append({**source, "apiVersion": version, "kind": kind})
    return made
