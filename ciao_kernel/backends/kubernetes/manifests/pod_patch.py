"""``%podPatch``: a file of the user that changes the pods of a job, as a last resort.

It is merged into each pod template before any check. What ciao needs to run and to find the job
stays: a patch that changes it is refused.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path

import yaml

from ciao_kernel.backends.kubernetes.apis import job_metadata, template_holder
from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects
from ciao_kernel.backends.kubernetes.manifests.strategic_merge import merged
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.errors import SpecError
from ciao_kernel.model import Manifest
from ciao_kernel.user_path import expanded
from ciao_kernel.visible_text import short

_DIRECTIVE = "podPatch"
_QUOTE = "Quote dates and the like, and use no alias of an object in itself."
_MOST_BYTES = 1 << 20
_PARTS = ("metadata", "spec")
_FIXED = ("restartPolicy", "hostname", "subdomain", "shareProcessNamespace")
"""Fields of a pod on which the end of a job, or the names of its replicas, depend."""
_OWN = ("ciao-kernel/", "training.kubeflow.org/", "trainer.kubeflow.org/")
"""Beginnings of labels and annotations by which ciao finds a job's pods."""


def read(name: str, folder: Path) -> Manifest:
    """Return the patch in a file.

    Args:
        name: Its path, relative to ``folder``.
        folder: The user's folder.

    Raises:
        SpecError: It cannot be read, or is no patch of a pod.
    """
    path = folder / expanded(name)
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise _refused(f"{name} cannot be read: {error.strerror}.", "Name a YAML file.") from error
    if len(data) > _MOST_BYTES:
        raise _refused(f"{name} has more than 1 MiB.", "Leave only what the pods need.")
    try:
        found = yaml.safe_load(data)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        why = short(" ".join(str(error).split()))
        raise _refused(f"{name} is not YAML: {why}.", "Correct the file.") from error
    try:  # also refuses dates and objects that contain themselves, which JSON cannot hold
        json.dumps(found, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        why = short(str(error))
        raise _refused(f"{name} has a value that JSON cannot hold: {why}.", _QUOTE) from error
    if not isinstance(found, dict) or not found or set(found) - set(_PARTS):
        raise _refused(
            f"{name} is no patch of a pod template: expected the keys spec and metadata.",
            "Write for example:\n\nspec:\n  runtimeClassName: gvisor",
        )
    return found


def apply(made: Objects, patch: Manifest, name: str) -> Objects:
    """Return the objects of a job with a patch in each of its pod templates.

    Args:
        made: The objects.
        patch: The result of :func:`read`.
        name: The file's name, for errors.

    Raises:
        SpecError: The patch is wrong, or changes what ciao needs.
    """
    body = copy.deepcopy(made.holder)
    for pod in template_holder.pod_templates(body).values():
        try:
            after = merged(pod, patch)
        except ValueError as error:
            raise _refused(f"{name} cannot be merged: {error}.", "Correct the file.") from error
        if changed := next(_changes(pod, after), ""):
            raise _refused(
                f"{name} changes {changed}, which ciao needs as it is.", "Leave it out of the file."
            )
        pod.clear()
        pod.update(after)
    return made.with_holder(body)


def _changes(before: Manifest, after: Manifest) -> Iterator[str]:
    """Yield what a patch may not change, as part of a sentence."""
    for kind in ("labels", "annotations"):
        old, new = get(before, "metadata", kind) or {}, get(after, "metadata", kind) or {}
        if not isinstance(new, dict):
            yield f"metadata.{kind}"
            continue
        for key, value in old.items():
            ours = key in job_metadata.labels("") or key.startswith(_OWN)
            if ours and new.get(key) != value:
                yield f"the {kind[:-1]} {key}"
    if many(after, "spec", "ephemeralContainers"):
        yield "ephemeralContainers"
    for field in _FIXED:
        if get(before, "spec", field) != get(after, "spec", field):
            yield f"spec.{field}"
    volumes = {str(one.get("name")): one for one in many(after, "spec", "volumes")}
    for one in many(before, "spec", "volumes"):
        if volumes.get(one["name"]) != one:
            yield f"the volume {one['name']}"
    for list_name in ("containers", "initContainers"):
        known = {str(one.get("name")): one for one in many(after, "spec", list_name)}
        for one in many(before, "spec", list_name):
            yield from _container_changes(one, known.get(str(one.get("name")), {}))


def _container_changes(before: Manifest, after: Manifest) -> Iterator[str]:
    name = before.get("name")
    if not after:
        yield f"the container {name}"
    for field in ("command", "args", "workingDir", "lifecycle", "restartPolicy"):
        if before.get(field) != after.get(field):
            yield f"{field} of the container {name}"
    mounts = many(after, "volumeMounts")
    for one in many(before, "volumeMounts"):
        if one not in mounts:
            yield f"the mount {one.get('mountPath')} of the container {name}"
    variables = many(after, "env")
    for one in many(before, "env"):
        if str(one.get("name")).startswith("CIAO_") and one not in variables:
            yield f"the variable {one.get('name')} of the container {name}"


def _refused(message: str, hint: str) -> SpecError:
    return SpecError(message, hint, directive=_DIRECTIVE)
