"""What an administrator puts on a namespace: Pod Security, quotas, limits."""

from __future__ import annotations

from typing import Any

from tests.cluster.errors import ClusterError
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until


def pod_security(level: str) -> dict[str, str]:
    """Return a namespace's labels that refuse pods below a level: `baseline` or `restricted`."""
    return {f"pod-security.kubernetes.io/{mode}": level for mode in ("enforce", "warn")}


def restricted_container() -> dict[str, Any]:
    """Return the `securityContext` of a container that `restricted` lets in."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def put_quota(namespace: Namespace, name: str = "quota", **hard: str) -> None:
    """Put a ResourceQuota on a namespace, and wait until the API server goes by it.

    Until it is counted the API server refuses everything that the quota concerns (`status unknown
    for quota`), not only what is too much; and it reads of quotas by a watch, as everybody else.

    Args:
        namespace: where.
        name: of the quota.
        hard: limits by resource, with `_` for each `.`: `requests_cpu="2"`, `pods="4"`.
    """
    limits = {resource.replace("_", "."): value for resource, value in hard.items()}
    namespace.create_objects(_quota(name, limits))
    until(
        lambda: namespace.get(f"resourcequota/{name}").get("status", {}).get("used"),
        f"the quota {name} to be counted",
        30,
    )
    # A later one that has its effect: what was counted before has been read before.
    namespace.create_objects(_quota("mark", {"count/leases.coordination.k8s.io": "0"}))
    until(lambda: _refused(namespace), f"the quota {name} to be in force", 30)
    namespace.cluster.api.delete(namespace.name, "resourcequota/mark")


def _quota(name: str, hard: dict[str, str]) -> dict[str, Any]:
    head = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}}
    return {**head, "spec": {"hard": hard}}


def _refused(namespace: Namespace) -> bool:
    """Tell whether the quota `mark` has its effect."""
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "mark"}}
    try:
        namespace.cluster.api.create(namespace.name, lease, dry_run=True)
    except ClusterError as error:
        if "exceeded quota" in str(error):
            return True
        if "status unknown for quota" not in str(error):
            raise
    return False


def put_limits(
    namespace: Namespace,
    name: str = "limits",
    *,
    default: dict[str, str] | None = None,
    maximum: dict[str, str] | None = None,
) -> None:
    """Put a LimitRange on a namespace, and wait until the API server goes by it.

    Args:
        namespace: where.
        name: of the LimitRange.
        default: limits and requests of a container that names none.
        maximum: what no container may exceed.
    """
    limit: dict[str, Any] = {"type": "Container"}
    if default:
        limit |= {"default": default, "defaultRequest": default}
    if maximum:
        limit["max"] = maximum
    namespace.create_objects(
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": name},
            "spec": {"limits": [limit]},
        }
    )
    until(lambda: _limited(namespace), f"the limits {name} to be in force", 60)


def _limited(namespace: Namespace) -> bool:
    """Tell whether a container that names no resources gets them, or is refused."""
    container = {"name": "main", "image": "none"}
    head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mark"}}
    try:
        made = namespace.cluster.api.create(
            namespace.name, {**head, "spec": {"containers": [container]}}, dry_run=True
        )
    except ClusterError as error:
        return "per Container" in str(error)
    return bool(made["spec"]["containers"][0].get("resources"))
