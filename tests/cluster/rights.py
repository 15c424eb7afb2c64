"""What an account may do, as the API server answers."""

from __future__ import annotations

from tests.cluster.namespace import Kubernetes


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
