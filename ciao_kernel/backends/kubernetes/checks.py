"""What can be known to go wrong before anything exists: rights, operator, namespace."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ciao_kernel.backends.kubernetes.target import Target
from ciao_kernel.errors import ClusterFault, Refused, SpecError
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Manifest
from ciao_kernel.plugins import JobManifest


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one kind of object."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        name = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{self.verb} {name}" + (f".{self.group}" if self.group else "")


def rights(plural: str, group: str = "kubeflow.org") -> tuple[Right, ...]:
    """What a run of a job needs: each verb is used by submit, follow or stop."""
    return (
        *(Right(verb, plural, group) for verb in ("create", "get", "list", "watch", "delete")),
        *(Right(verb, "configmaps") for verb in ("create", "get")),
        *(Right(verb, "pods") for verb in ("get", "list", "watch")),
        Right("get", "pods", subresource="log"),
    )


async def check(target: Target, made: JobManifest) -> None:
    """See that this user may run such a job, and that somebody would run it.

    Raises:
        ClusterFault: The operator is missing, or rights are; names all that are.
    """
    client, namespace = target.client, target.namespace
    group, _, version = made.api_version.partition("/")
    wanted = rights(made.plural, group)
    served, allowed = await asyncio.gather(
        client.find(f"/apis/{group}/{version}"),
        asyncio.gather(*(_allowed(client, namespace, right) for right in wanted)),
    )
    kinds = {one.get("name") for one in (served or {}).get("resources") or ()}
    if made.plural not in kinds:
        raise ClusterFault(
            f"the cluster of {client.access.source} knows no {made.kind}: the Kubeflow training "
            "operator is not installed there.",
            "An administrator installs it: kubectl apply --server-side -k "
            '"github.com/kubeflow/training-operator.git/manifests/overlays/standalone?ref=v1.9.3"',
        )
    missing = [right for right, may in zip(wanted, allowed, strict=True) if not may]
    if missing:
        raise ClusterFault(
            f"you may not run jobs in the namespace {namespace} of {client.access.source}: "
            f"not allowed are {', '.join(map(str, missing))}.",
            "Ask for the Role of deploy/rbac/, or name another namespace: %namespace=….",
        )


async def _allowed(client: Client, namespace: str, right: Right) -> bool:
    asked: Manifest = {
        "namespace": namespace,
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
    }
    if right.subresource:
        asked["subresource"] = right.subresource
    review = await client.post(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        },
    )
    return bool((review.get("status") or {}).get("allowed"))


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
    may_try = await _allowed(client, namespace, Right("create", "pods"))
    path = f"/api/v1/namespaces/{namespace}/pods"
    tries = [client.create(at, item, dry_run=True) for at, item in items]
    tries += [client.create(path, pod, dry_run=True) for pod in pods if may_try]
    for answer in await asyncio.gather(*tries, return_exceptions=True):
        if isinstance(answer, Refused):
            raise _refusal(answer, namespace) from answer
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
    ("violates PodSecurity", "namespace", "Use a namespace that lets this image run."),
    ("serviceaccount", "serviceAccount", "`kubectl get serviceaccounts` lists those there are."),
    ("PriorityClass", "priorityClass", "`kubectl get priorityclasses` lists those there are."),
)


def _refusal(error: Refused, namespace: str) -> SpecError | ClusterFault:
    if error.code == 404 and "namespaces" in error.message:
        return ClusterFault(
            f"there is no namespace {namespace}.", "Name one that exists: %namespace=…."
        )
    if "being terminated" in error.message:
        return ClusterFault(
            f"the namespace {namespace} is being deleted.", "Name another one: %namespace=…."
        )
    for words, directive, hint in _BLAME:
        if words in error.message:
            return SpecError(
                f"the cluster would refuse this job: {error.message}", hint, directive=directive
            )
    return ClusterFault(
        f"the cluster would refuse this job: {error.message}",
        f"It was only tried, nothing was created in {namespace}.",
    )
