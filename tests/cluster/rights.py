"""What an account may do, as the API server answers."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from tests.cluster.namespace import Kubernetes
from tests.cluster.waiting import until


def account(namespace: str, name: str) -> str:
    """The name of a service account as a user."""
    return f"system:serviceaccount:{namespace}:{name}"


def may(cluster: Kubernetes, user: str, verb: str, resource: str, namespace: str = "") -> bool:
    """Whether RBAC lets a user do something in a namespace; "" means in all of them.

    Args:
        cluster: Where.
        user: Who.
        verb: Such as ``create``.
        resource: As in a Role, with its group: ``pods/exec``, ``tfjobs.kubeflow.org``.
        namespace: Where there.
    """
    whole, _, subresource = resource.partition("/")
    name, _, group = whole.partition(".")
    asked = {"namespace": namespace, "verb": verb, "group": group, "resource": name}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": {**asked, "subresource": subresource}},
    }
    return bool(cluster.api.create("", review)["status"]["allowed"])


def wait_until_may(
    cluster: Kubernetes, user: str, given: Iterable[tuple[str, str]], namespace: str = ""
) -> None:
    """Wait until a user may do all of this: a Role that was made just now does not count yet.

    The API server learns of Roles and their bindings as everybody else, by watches.

    Args:
        cluster: Where.
        user: Who.
        given: Verbs, each with a resource as for :func:`may`.
        namespace: Where there.
    """
    for verb, resource in given:
        until(
            lambda verb=verb, resource=resource: may(cluster, user, verb, resource, namespace),
            f"{user} to have the right to {verb} {resource}", 60,
        )  # fmt: skip


def settle(cluster: Kubernetes, namespace: str) -> None:
    """Wait until all Roles of a namespace and their bindings that are there now count.

    The API server learns of them in their order, so when those that are made here count, all do.
    """
    group, name = "rbac.authorization.k8s.io", f"fence-{secrets.token_hex(4)}"
    role = {
        "apiVersion": f"{group}/v1",
        "kind": "Role",
        "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": [name], "verbs": ["get"]}],
    }
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
    }
    for item in (role, binding):
        cluster.api.create(namespace, item)
    wait_until_may(cluster, name, [("get", name)], namespace)
    for word in ("role", "rolebinding"):
        cluster.api.delete(namespace, f"{word}/{name}")
