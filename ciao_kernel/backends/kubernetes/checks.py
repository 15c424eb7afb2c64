"""What can be known to go wrong before anything exists: rights, operator, namespace, admission."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ciao_kernel.backends.kubernetes.rights import Right, allowed, needed, role
from ciao_kernel.backends.kubernetes.target import Target
from ciao_kernel.errors import ClusterFault, Refused, SpecError
from ciao_kernel.model import Manifest
from ciao_kernel.plugins import JobManifest

_ENFORCE = "pod-security.kubernetes.io/enforce"
_ANOTHER = "Name another one: %namespace=…."


class Insecure(ClusterFault):
    """Pod Security refuses a pod as it stands."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What a namespace is like, as far as this user may know."""

    restricted: bool = False
    """Pod Security lets only pods in that ask for no rights (level ``restricted``)."""
    goes_with_kernel: bool = False
    """Enterprise Gateway made it for this kernel, and deletes it when the kernel ends."""


async def check(target: Target, made: JobManifest) -> None:
    """See that this user may run such a job, and that somebody would run it.

    Raises:
        ClusterFault: The operator is missing, or rights are; names all that are.
    """
    client, namespace = target.client, target.namespace
    group, _, version = made.api_version.partition("/")
    wanted = needed(made.plural, group)
    served, may = await asyncio.gather(
        target.kinds(f"/apis/{group}/{version}"), allowed(client, namespace, *wanted)
    )
    if made.plural not in served:
        client.forget()
        raise ClusterFault(
            f"the cluster of {client.access.source} knows no {made.kind}: the Kubeflow training "
            "operator is not installed there.",
            "An administrator installs it: kubectl apply --server-side -k "
            '"github.com/kubeflow/training-operator.git/manifests/overlays/standalone?ref=v1.9.3"',
        )
    missing = [right for right, has in zip(wanted, may, strict=True) if not has]
    if missing:
        raise await lacking(target, "run jobs", missing, whole=len(missing) == len(wanted))


async def demand(target: Target, what: str, *wanted: Right) -> None:
    """See that this user has the rights for something that not every cell does.

    Args:
        target: Where.
        what: They are for, after "you may not".
        wanted: All that it takes.

    Raises:
        ClusterFault: Some are missing; names all that are, with the Role that grants them.
    """
    may = await allowed(target.client, target.namespace, *wanted)
    if missing := [right for right, has in zip(wanted, may, strict=True) if not has]:
        raise await lacking(target, what, missing)


async def lacking(
    target: Target, what: str, missing: list[Right], *, whole: bool = False
) -> ClusterFault:
    """The error of a user who lacks rights; ``whole`` says that there may be no such namespace."""
    client, namespace = target.client, target.namespace
    client.forget()  # it may be granted at any moment
    return ClusterFault(
        f"you may not {what} in the namespace {namespace} of {client.access.source}"
        f"{', if there is one' if whole else ''}: not allowed are "
        f"{', '.join(map(str, missing))}.",
        "Name another namespace (%namespace=…), or ask an administrator to apply this "
        f"(kubectl apply -f -):\n\n{await role(client, namespace, missing)}",
    )


async def ground(target: Target, environment: Mapping[str, str] | None = None) -> Ground:
    """Look at the namespace, if this user may; else at what a gateway says of it.

    Raises:
        ClusterFault: It does not exist, or is being deleted.
    """
    client, namespace = target.client, target.namespace
    variables = os.environ if environment is None else environment
    labels: Any = {}
    phase = ""
    # In a Role of the namespace this right is one on that namespace alone.
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
        client.forget()
        raise ClusterFault(f"the namespace {namespace} is being deleted.", _ANOTHER)
    labels = labels if isinstance(labels, dict) else {}
    kernel, pod = (variables.get(name, "") for name in ("KERNEL_ID", "KERNEL_POD_NAME"))
    # The gateway gives such a namespace the name of the kernel's pod, which holds the kernel's id.
    made_for_it = bool(kernel) and (namespace == pod or kernel in namespace)
    marked = labels.get("app") == "enterprise-gateway" and labels.get("component") == "kernel"
    return Ground(labels.get(_ENFORCE) == "restricted", made_for_it or marked)


async def dry_run(target: Target, items: list[tuple[str, Manifest]], pods: list[Manifest]) -> None:
    """Let the server say what it would refuse: schema, webhooks, quota, Pod Security.

    A job's pods are made by the operator, so a quota or Pod Security refuses them when nobody
    asks. They are tried here too, for users who may create pods.

    Args:
        target: Where.
        items: Path and object of all that will be created.
        pods: The pods that the operator will make, one of each role.

    Raises:
        SpecError: It would be refused; names the directive where one is to blame.
        ClusterFault: The namespace is to blame.
    """
    client, namespace = target.client, target.namespace
    may_try = all(await allowed(client, namespace, Right("create", "pods")))
    path = f"/api/v1/namespaces/{namespace}/pods"
    tries = [client.create(at, item, dry_run=True) for at, item in items]
    tries += [client.create(path, pod, dry_run=True) for pod in pods if may_try]
    for answer in await asyncio.gather(*tries, return_exceptions=True):
        if isinstance(answer, Refused):
            raise refusal(answer, target) from answer
        if isinstance(answer, BaseException):
            raise answer


def as_pod(template: Manifest, name: str, namespace: str) -> Manifest:
    """Return the pod that the operator would make of a template."""
    meta = {**template["metadata"], "name": name, "namespace": namespace}
    spec = {**template["spec"], "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


# A word of the server's answer, the directive to blame, and what helps.
_BLAME = (
    ("exceeded quota", "worker", "Ask for less (%cpu, %memory, %gpu, fewer replicas), or wait."),
    ("must specify limits", "cpu", "The namespace's quota wants %cpu and %memory to be said."),
    ("must specify requests", "cpu", "The namespace's quota wants %cpu and %memory to be said."),
    ("maximum cpu", "cpu", "The namespace limits what one replica may ask for."),
    ("maximum memory", "memory", "The namespace limits what one replica may ask for."),
    ("serviceaccount", "serviceAccount", "`kubectl get serviceaccounts` lists those there are."),
    ("PriorityClass", "priorityClass", "`kubectl get priorityclasses` lists those there are."),
)


def refusal(error: Refused, target: Target) -> SpecError | ClusterFault:
    """Say what the server's no to a part of a job means for the cell; nothing of it exists."""
    namespace, words = target.namespace, error.message
    target.client.forget()  # rights or the namespace may be others than they were
    if error.code == 401 or error.code >= 500:  # it is not about this job
        return ClusterFault(words, error.hint)
    if error.code == 404 and "namespaces" in words:
        return _no_namespace(namespace)
    if "being terminated" in words:
        return ClusterFault(f"the namespace {namespace} is being deleted.", _ANOTHER)
    if "violates PodSecurity" in words:
        return Insecure(
            f"Pod Security refuses this job's pods in the namespace {namespace}: "
            f"{words.partition('violates PodSecurity ')[2]}",
            "Use an image and a namespace that go together: %image=…, %namespace=….",
        )
    if "exceeded quota" in words and not words.startswith("pods"):
        return ClusterFault(
            f"the cluster refuses this job: {words}",
            "Something of it is counted. `ciao delete --finished` removes jobs that are over.",
        )
    for part, directive, hint in _BLAME:
        if part in words:
            return SpecError(f"the cluster refuses this job: {words}", hint, directive=directive)
    hint = error.hint or f"Nothing of the job exists in {namespace}."
    return ClusterFault(f"the cluster refuses this job: {words}", hint)


def _no_namespace(namespace: str) -> ClusterFault:
    return ClusterFault(
        f"there is no namespace {namespace}.", "Name one that exists: %namespace=…."
    )
