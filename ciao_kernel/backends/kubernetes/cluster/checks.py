"""Checks before anything is created: rights, operator, namespace, admission."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from ciao_kernel.backends.kubernetes.apis import OPERATOR_V1, Api, trainer
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.rights import Right, allowed, needed, role
from ciao_kernel.errors import ClusterFault, NoRoom, Refused, SpecError
from ciao_kernel.kube import responses
from ciao_kernel.model import Manifest
from ciao_kernel.model.status import POD_SECURITY
from ciao_kernel.plugins import JobManifest

_ENFORCE = "pod-security.kubernetes.io/enforce"
_WITHOUT_OPERATOR = "%api=job runs the job without it, on Kubernetes 1.31 or newer."
_ANOTHER = "Name another namespace: %namespace=…."


class PodSecurityViolation(ClusterFault):
    """Pod Security refuses a pod in its current form."""


class ConstraintViolation(ClusterFault):
    """No security context constraint of OpenShift allows a pod."""


@dataclass(frozen=True, slots=True)
class NamespaceFacts:
    """Properties of a namespace, as far as this user may read them."""

    restricted: bool = False
    """Pod Security accepts only pods without privileges (level ``restricted``)."""
    deleted_with_kernel: bool = False
    """Enterprise Gateway created it for this kernel, and deletes it when the kernel ends."""


async def check(
    target: Target,
    made: JobManifest,
    api: Api = OPERATOR_V1,
    rights: tuple[Right, ...] | None = None,
) -> None:
    """Check that this user may run the job, and that its operator is installed.

    Args:
        target: Cluster and namespace.
        made: The kind of the job.
        api: The API of that kind.
        rights: Rights that the job needs besides those of every job; None means those of the API.

    Raises:
        ClusterFault: The operator or some rights are missing; the message lists the rights.
    """
    client, namespace = target.client, target.namespace
    group, _, version = made.api_version.partition("/")
    wanted = (*needed(made.plural, group), *(api.rights if rights is None else rights))
    served, may = await asyncio.gather(
        target.kinds(f"/apis/{group}/{version}"), allowed(client, namespace, *wanted)
    )
    if made.plural not in served:
        client.cache.clear()
        raise ClusterFault(
            f"the cluster of {client.access.source} does not support {made.kind}: {api.missing}.",
            api.install if api.built_in else f"{api.install} {_WITHOUT_OPERATOR}",
        )
    missing = [right for right, has in zip(wanted, may, strict=True) if not has]
    if missing:
        raise await lacking(target, "run jobs", missing, whole=len(missing) == len(wanted))


async def require_rights(target: Target, what: str, *wanted: Right) -> None:
    """Check that this user has rights that only some cells need.

    Args:
        target: Cluster and namespace.
        what: The action that needs the rights, as it follows "you may not".
        wanted: All rights that it needs.

    Raises:
        ClusterFault: Rights are missing; the error lists them and the Role that grants them.
    """
    may = await allowed(target.client, target.namespace, *wanted)
    if missing := [right for right, has in zip(wanted, may, strict=True) if not has]:
        raise await lacking(target, what, missing)


async def lacking(
    target: Target, what: str, missing: list[Right], *, whole: bool = False
) -> ClusterFault:
    """Return the error for missing rights; if ``whole``, the namespace may be missing too."""
    client, namespace = target.client, target.namespace
    client.cache.clear()  # the rights may be granted at any moment
    return ClusterFault(
        f"you may not {what} in the namespace {namespace} of {client.access.source}"
        f"{', or the namespace does not exist' if whole else ''}; missing rights: "
        f"{', '.join(map(str, missing))}.",
        "Name another namespace (%namespace=…), or ask an administrator to apply this "
        f"(kubectl apply -f -):\n\n{await role(client, namespace, missing)}",
    )


async def namespace_facts(
    target: Target, environment: Mapping[str, str] | None = None
) -> NamespaceFacts:
    """Read the namespace, if this user may, and the variables that a gateway sets.

    Raises:
        ClusterFault: It does not exist, or is being deleted.
    """
    client, namespace = target.client, target.namespace
    variables = os.environ if environment is None else environment
    labels: Any = {}
    phase = ""
    # A Role in the namespace grants this right for that namespace alone.
    if all(await allowed(client, namespace, Right("get", "namespaces"))):
        try:
            found = await client.known(f"/api/v1/namespaces/{namespace}")
        except Refused as error:
            if error.code == 404:
                raise _no_namespace(namespace) from None
            found = {}
        meta, status = found.get("metadata"), found.get("status")
        labels = (meta.get("labels") if isinstance(meta, dict) else None) or {}
        phase = str(status.get("phase")) if isinstance(status, dict) else ""
    if phase == "Terminating":
        client.cache.clear()
        raise ClusterFault(f"the namespace {namespace} is being deleted.", _ANOTHER)
    labels = labels if isinstance(labels, dict) else {}
    kernel, pod = (variables.get(name, "") for name in ("KERNEL_ID", "KERNEL_POD_NAME"))
    # The gateway's namespace has the name of the kernel's pod, which contains the kernel's id.
    made_for_it = bool(kernel) and (namespace == pod or kernel in namespace)
    marked = labels.get("app") == "enterprise-gateway" and labels.get("component") == "kernel"
    return NamespaceFacts(labels.get(_ENFORCE) == "restricted", made_for_it or marked)


async def dry_run(
    target: Target,
    items: list[tuple[str, Manifest]],
    pods: list[Manifest],
    job: Manifest,
    *,
    waits: bool = False,
) -> str:
    """Ask the server what it would refuse: schema, webhooks, quota, Pod Security.

    The controller creates a job's pods later, and a quota or Pod Security may refuse them only
    then. They are tried here too, if the user may create pods.

    Args:
        target: Cluster and namespace.
        items: Path and object of everything that will be created.
        pods: The pods that the controller will create, one of each role.
        job: The job, which will own the pods.
        waits: Whether its pods come later, so that they need no room in a quota now.

    Returns:
        A sentence about a policy that refuses the pods, perhaps only because the user creates them
        here, not the controller, or about a trial that was not possible; "" if there is none.

    Raises:
        SpecError: An object would be refused because of a directive, which the error names.
        ClusterFault: An object would be refused for another reason.
    """
    client, namespace = target.client, target.namespace
    may_try = all(await allowed(client, namespace, Right("create", "pods")))
    path = f"/api/v1/namespaces/{namespace}/pods"
    tries: list[Coroutine[Any, Any, Any]] = [
        client.create(at, item, dry_run=True) for at, item in items
    ]
    tries += [_try_pod(target, path, pod, job, waits=waits) for pod in pods if may_try]
    said = untried = ""
    for answer in await asyncio.gather(*tries, return_exceptions=True):
        if isinstance(answer, Refused):
            if trainer.RUNTIME_FIRST in answer.message:
                continue  # a dry run has not created the runtime
            if responses.allows_no_trial(answer):
                why = " ".join(answer.message.split()).rstrip(".")
                untried = f"the cluster cannot try this job before it is created: {why}."
                continue
            raise refusal(answer, target) from answer
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, str):
            said = said or answer
    return said or untried


async def _try_pod(target: Target, path: str, pod: Manifest, job: Manifest, *, waits: bool) -> str:
    """Try a pod; return a sentence about the policy that refuses it, or "" if none does."""
    meta = {"name": job["metadata"]["name"], "uid": _NO_UID, "controller": True}
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], **meta}
    owned = {**pod, "metadata": {**pod["metadata"], "ownerReferences": [owner]}}
    # First without the owner, which does not exist yet: some webhooks look for it.
    for one in (pod, owned):
        try:
            await target.client.create(path, one, dry_run=True)
        except Refused as error:
            if waits and _QUOTA in error.message:
                return ""  # the server asks quotas last
            if not any(words in error.message for words in _OF_POLICIES) or any(
                words in error.message for words in _CERTAIN
            ):
                raise
            refused = " ".join(error.message.split())
        else:
            return ""
    return (
        f"a policy of the cluster refuses the pods of this job in a trial: {refused.rstrip('.')}. "
        "If the policy also refuses them from the job's controller, the job cannot start."
    )


_NO_UID = "00000000-0000-4000-8000-000000000000"
_OF_POLICIES = ("denied the request", "denied request")
"""Parts of the refusals by a webhook and by a ValidatingAdmissionPolicy (Kubernetes,
apiserver/pkg/admission/plugin)."""
_QUOTA = "exceeded quota"
_CONSTRAINT = "unable to validate against any security context constraint: "
"""Part of a refusal by OpenShift, before its reasons (openshift/apiserver-library-go)."""
_CERTAIN = (_QUOTA, POD_SECURITY)
"""Parts of refusals that a controller's pods would get too, even if a webhook says them."""
_UNSPECIFIED = "failed quota"
"""Begin of the answer where a quota requires what a pod does not ask for."""
# Part of the server's answer, the directive that causes it, and the hint.
_BLAME = (
    (_QUOTA, "worker", "Ask for less (%cpu, %memory, %gpu, fewer replicas), or wait."),
    ("maximum cpu", "cpu", "The namespace limits the resources of one replica."),
    ("maximum memory", "memory", "The namespace limits the resources of one replica."),
    # Not "serviceaccount": many refusals name a user, who may be a service account.
    (
        "error looking up service account",
        "serviceAccount",
        "`kubectl get serviceaccounts` lists valid names.",
    ),
    ("PriorityClass", "priorityClass", "`kubectl get priorityclasses` lists valid names."),
)


def refusal(error: Refused, target: Target) -> SpecError | ClusterFault:
    """Return the cell's error after the server refused a part of a job; no part of it exists."""
    namespace, words = target.namespace, error.message
    target.client.cache.clear()  # rights or the namespace may have changed
    if error.code == 401 or error.code >= 500:  # not caused by this job
        return ClusterFault(words, error.hint)
    if error.code == 404 and "namespaces" in words:
        return _no_namespace(namespace)
    if "being terminated" in words:
        return ClusterFault(f"the namespace {namespace} is being deleted.", _ANOTHER)
    if POD_SECURITY in words:
        return PodSecurityViolation(
            f"Pod Security refuses this job's pods in the namespace {namespace}: "
            f"{words.partition(f'{POD_SECURITY} ')[2]}",
            "Use an image that fits the rules of the namespace: %image=…, %namespace=….",
        )
    if _CONSTRAINT in words:
        return ConstraintViolation(
            f"OpenShift refuses this job's pods in the namespace {namespace}: "
            f"{words.partition(_CONSTRAINT)[2]}",
            "A %podPatch can change these fields of the pods. For fsGroup, the annotations of the "
            f"namespace have the allowed groups: `oc describe namespace {namespace}`.",
        )
    if _QUOTA in words and not words.startswith("pods"):
        return ClusterFault(
            f"the cluster refuses this job: {words}",
            "The quota counts objects. `ciao delete --finished` removes finished jobs.",
        )
    if _UNSPECIFIED in words and (directive := _lacking(words)):
        return SpecError(
            f"the cluster refuses this job: {words}",
            "The namespace's quota requires %cpu and %memory.",
            directive=directive,
        )
    for part, directive, hint in _BLAME:
        if part in words:
            kind = NoRoom if part == _QUOTA else SpecError
            return kind(f"the cluster refuses this job: {words}", hint, directive=directive)
    hint = error.hint or f"Nothing of the job exists in {namespace}."
    return ClusterFault(f"the cluster refuses this job: {words}", hint)


def _lacking(words: str) -> str:
    """Return the directive for what a quota requires; "" if it is neither processors nor memory.

    Args:
        words: The refusal: ``… must specify limits.cpu for: NAME,NAME; memory for: NAME``.
    """
    lacking = words.partition("must specify ")[2].split("; ")
    names = {one.partition(" for:")[0].rpartition(".")[2] for one in lacking}
    return next((one for one in ("cpu", "memory") if one in names), "")


def _no_namespace(namespace: str) -> ClusterFault:
    return ClusterFault(
        f"there is no namespace {namespace}.", "Name an existing namespace: %namespace=…."
    )
