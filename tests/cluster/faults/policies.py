"""What an administrator puts on a namespace: Pod Security, quotas, limits."""

from __future__ import annotations

from typing import Any

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
    """Put a ResourceQuota on a namespace, and wait until it is counted.

    Until then the API server refuses everything that the quota concerns (`status unknown for
    quota`), not only what is too much.

    Args:
        namespace: where.
        name: of the quota.
        hard: limits by resource, with `_` for each `.`: `requests_cpu="2"`, `pods="4"`.
    """
    limits = {resource.replace("_", "."): value for resource, value in hard.items()}
    namespace.create_objects(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": name},
            "spec": {"hard": limits},
        }
    )
    until(
        lambda: namespace.get(f"resourcequota/{name}").get("status", {}).get("used"),
        f"the quota {name} to be counted",
        30,
    )


def put_limits(
    namespace: Namespace,
    name: str = "limits",
    *,
    default: dict[str, str] | None = None,
    maximum: dict[str, str] | None = None,
) -> None:
    """Put a LimitRange on a namespace.

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
