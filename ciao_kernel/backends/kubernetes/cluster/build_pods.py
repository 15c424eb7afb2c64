"""Runs the pods of builders: creates, follows and, in any case, removes them."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
import math
import secrets
from collections.abc import Mapping, Sequence

from ciao_kernel import log
from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.cluster import checks
from ciao_kernel.backends.kubernetes.cluster.singlepod import SinglePod
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.backends.kubernetes.rights import Right, allowed
from ciao_kernel.backends.kubernetes.states import status
from ciao_kernel.background import start_background
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, ClusterFault, Refused
from ciao_kernel.kube.client import Object
from ciao_kernel.model import Manifest, Notice
from ciao_kernel.plugins import Emit, PodResult

_log = logging.getLogger(__name__)

_RIGHTS = (Right("create", "pods"), Right("delete", "pods"), Right("create", "configmaps"))
"""Rights in addition to those that every job needs."""
_PATIENCE = 4.0
"""Seconds for which an interrupted cell waits until the pod is removed."""
_WITHOUT_POD = "%builder=append needs no pod; it is enough for Python packages that have wheels."

_BUILDS = f"{job_metadata.OURS},!{job_metadata.JOB}"
"""Selector of ciao's pods that are not replicas."""


class KubernetesBuildCluster:
    """A namespace in which a builder runs pods.

    Args:
        target: Cluster and namespace.
        settings: Timeouts.
    """

    def __init__(self, target: Target, settings: Settings) -> None:
        self.namespace = target.namespace
        self._target, self._settings = target, settings

    async def free(self) -> bool:
        """Return whether the user may run pods here."""
        may = all(await allowed(self._target.client, self.namespace, *_RIGHTS))
        if not may:
            self._target.client.cache.clear()  # the right may be granted before the next cell
        return may

    async def secret(self, name: str) -> Mapping[str, bytes]:
        """Read a Secret of the namespace.

        Raises:
            ClusterFault: The Secret does not exist, or the user may not read it.
        """
        path = f"/api/v1/namespaces/{self.namespace}/secrets/{name}"
        try:
            # The right is not checked before: it may be for this Secret alone.
            found = await self._target.client.find(path)
        except Refused as error:
            if error.code != 403:
                raise
            what, right = f"read the Secret {name}", Right("get", "secrets", object_name=name)
            raise await checks.lacking(self._target, what, [right]) from None
        if found is None:
            raise ClusterFault(
                f"there is no Secret {name} in the namespace {self.namespace}.",
                "`kubectl create secret docker-registry` creates a Secret for a registry.",
            )
        data: dict[str, bytes] = {}
        for key, text in (get(found, "data") or {}).items():
            with contextlib.suppress(binascii.Error, ValueError, TypeError):
                data[str(key)] = base64.b64decode(text)
        return data

    async def run(self, pod: Manifest, beside: Sequence[Manifest], emit: Emit) -> PodResult:
        """Run a pod to its end.

        Raises:
            ClusterFault: The user may not run the pod, the pod is refused or cannot start, or
                its end is not known.
        """
        await checks.require_rights(self._target, "build images in a pod", *_RIGHTS)
        await delete_stale_build_pods(self._target, self._settings)
        run, meta = secrets.token_hex(8), pod["metadata"]
        notes = {**meta.get("annotations", {}), job_metadata.RUN: run}
        labels = {**meta.get("labels", {}), job_metadata.MANAGED: "ciao"}
        own = {"namespace": self.namespace, "labels": labels, "annotations": notes}
        made = {**pod, "metadata": {**meta, **own}}
        items = [{**one, "metadata": {**one["metadata"], **own}} for one in beside]
        making = asyncio.ensure_future(self._make(made, items))
        try:
            try:
                # An interrupted cell does not cancel the request: its answer tells what exists.
                found = await asyncio.shield(making)
            except Refused as error:
                raise self._refusal(error) from error
            try:
                # Not by the pod that was created: a webhook may have put a container first.
                container = str(many(pod, "spec", "containers")[0].get("name") or "")
                return await SinglePod(self._target, self._settings, found, container, emit).end()
            except Refused as error:
                raise ClusterFault(
                    f"the pod {meta['name']} cannot be followed to its end: {error.message}",
                    error.hint,
                ) from error
        finally:
            await self._remove(meta["name"], run, making, emit)

    async def _make(self, pod: Manifest, beside: Sequence[Manifest]) -> Object:
        """Create the pod, then its objects, so that the end of the pod always removes them."""
        client = self._target.client
        found = await client.create(f"/api/v1/namespaces/{self.namespace}/pods", pod)
        meta = found["metadata"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        for item in beside:
            owned = {**item, "metadata": {**item["metadata"], "ownerReferences": [owner]}}
            await client.create(job_metadata.collection(item), owned)
        return found

    def _refusal(self, error: Refused) -> BackendError:
        fault = checks.refusal(error, self._target)
        where, words = self.namespace, fault.message.partition(": ")[2]
        if isinstance(fault, checks.PodSecurityViolation):
            return ClusterFault(
                f"Pod Security refuses pods that build images in {where}: {words}", _WITHOUT_POD
            )
        if isinstance(fault, checks.ConstraintViolation):
            return ClusterFault(
                f"OpenShift refuses pods that build images in {where}: {words}", _WITHOUT_POD
            )
        hint = fault.hint if isinstance(fault, ClusterFault) else "A quota counts build pods too."
        return ClusterFault(f"the pod that builds the image is refused: {error.message}", hint)

    async def _remove(
        self, name: str, run: str, making: asyncio.Future[Object], emit: Emit
    ) -> None:
        """Delete the pod and what it owns; continue in the background if the cell cannot wait."""
        path, client = f"/api/v1/namespaces/{self.namespace}/pods/{name}", self._target.client

        async def remove() -> None:
            await asyncio.wait({making})
            if not making.cancelled():
                making.exception()  # the caller that awaits it raises the error
            try:
                item = await client.find(path)
                if item and get(item, "metadata", "annotations", job_metadata.RUN) == run:
                    await client.delete(path, uid=item["metadata"]["uid"])
            except BackendError as error:
                text = f"the pod {name} could not be removed, and may exist: {error.message}"
                remove_it = f"`kubectl delete pod {name} -n {self.namespace}` removes it."
                emit(Notice(f"{text} {remove_it}"))

        removing = start_background(remove())
        await asyncio.wait({removing}, timeout=_PATIENCE)
        if not removing.done():
            emit(Notice(f"the pod {name} is removed as soon as the API server answers."))


async def delete_stale_build_pods(target: Target, settings: Settings) -> None:
    """Remove pods of builds that ended long ago: the kernels that made them were killed.

    No builder waits for them any more. A running pod ends at its deadline, which has no effect on
    a pod that never got a node. Called before each build and when jobs are deleted. Reports
    nothing, because no user asked for it.
    """
    path = f"/api/v1/namespaces/{target.namespace}/pods"
    with log.ignored(_log, "removing pods of old builds", BackendError):
        found = await target.client.get(path, labelSelector=_BUILDS)
        for pod in many(found, "items"):
            if target.client.clock.now() - _ended(pod) > settings.follow_patience:
                meta = pod["metadata"]
                await target.client.delete(f"{path}/{meta['name']}", uid=meta["uid"])


def _ended(pod: Object) -> float:
    """Return the time of a pod's end or latest start, since the epoch; infinity while it runs."""
    phase, created = get(pod, "status", "phase"), pod["metadata"]["creationTimestamp"]
    if phase == "Pending":
        deadline = get(pod, "spec", "activeDeadlineSeconds")
        return status.stamp(created) + (deadline if isinstance(deadline, int) else math.inf)
    if phase not in ("Succeeded", "Failed"):
        return math.inf
    changes = [one.get("lastTransitionTime") for one in many(pod, "status", "conditions")]
    return max(map(status.stamp, (*changes, created)))
