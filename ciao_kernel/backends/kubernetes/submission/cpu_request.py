"""The CPU request of replicas for which the cell names none: the setting ``cpuRequest``.

A pod without requests is of the class BestEffort: its cgroup has the lowest CPU weight, so that it
gets almost no time beside others, and it is evicted first
(https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/). A small request changes both. It is
never a limit: a replica may still use all idle processors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.object_fields import many
from ciao_kernel.backends.kubernetes.submission import limit_ranges
from ciao_kernel.config import Settings
from ciao_kernel.plugins import Plan

_LIMITS = ("default", "defaultRequest", "min", "max", "maxLimitRequestRatio")
"""Fields of a LimitRange (Kubernetes, core/v1 LimitRangeItem)."""


async def of_replicas(plan: Plan, target: Target, settings: Settings) -> str:
    """Return the request; "" if there is none, or if the namespace has its own rules for CPUs.

    A LimitRange's request takes precedence, and its minimum or ratio may exclude the setting.
    Without the right to list LimitRanges that is unknown, and pods stay as the cell describes them.

    Args:
        plan: The job.
        target: Cluster and namespace.
        settings: Has the request.
    """
    roles = (group.role for group in plan.spec.groups if group.count)
    if not settings.cpu_request or all(plan.spec.asks(role).cpu for role in roles):
        return ""
    found = await limit_ranges.read(target)
    return "" if found is None or _rules_cpus(found) else settings.cpu_request


def _rules_cpus(items: Iterable[Any]) -> bool:
    return any(
        "cpu" in (rule.get(name) or {})
        for item in items
        for rule in many(item, "spec", "limits")
        for name in _LIMITS
    )
