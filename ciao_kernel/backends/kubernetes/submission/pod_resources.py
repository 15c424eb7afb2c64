"""The resources of a whole pod, as a ResourceQuota and the scheduler count them.

https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers
and https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.kube.quantities import quantity
from ciao_kernel.model import Manifest

Amounts = dict[str, Decimal]
"""Amounts by resource: ``cpu``, ``memory``, ``nvidia.com/gpu``."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the server adds to a container that names nothing: the LimitRanges of a namespace."""

    requests: Mapping[str, Decimal]
    limits: Mapping[str, Decimal]


NO_DEFAULTS = Defaults({}, {})


def defaults(rules: Iterable[Any]) -> Defaults:
    """Return the defaults of LimitRanges; of several rules for containers the first one counts."""
    requests, limits = Amounts(), Amounts()
    for rule in rules:
        requests = _amounts(rule.get("defaultRequest")) | requests
        limits = _amounts(rule.get("default")) | limits
    return Defaults(requests, limits)


def of_pod(
    spec: Manifest, added: Defaults = NO_DEFAULTS, overhead: Mapping[str, Any] | None = None
) -> dict[str, Amounts]:
    """Return the ``requests`` and the ``limits`` of a pod.

    Containers and sidecars (init containers that are restarted) run at the same time, so they are
    added. Other init containers run one by one before the containers, each beside the sidecars
    that are listed before it, so only the largest of them counts.

    Args:
        spec: Specification of the pod.
        added: Defaults of the namespace.
        overhead: What the pod's RuntimeClass adds for the pod itself.
    """
    fixed = _amounts(overhead)
    found: dict[str, Amounts] = {}
    for kind in ("requests", "limits"):
        total, sidecars, most = Amounts(), Amounts(), Amounts()
        for one in many(spec, "containers"):
            total = _sum(total, _asked(one, kind, added))
        for one in many(spec, "initContainers"):
            asked = _asked(one, kind, added)
            if one.get("restartPolicy") == "Always":
                total, sidecars = _sum(total, asked), _sum(sidecars, asked)
                most = _most(most, sidecars)
            else:
                most = _most(most, _sum(sidecars, asked))
        whole = _most(total, most)
        # A resource without a limit stays without one.
        counted = {
            name: amount for name, amount in fixed.items() if kind == "requests" or whole.get(name)
        }
        found[kind] = _sum(whole, counted)
    return found


def _asked(container: Any, kind: str, added: Defaults) -> Amounts:
    limits = _amounts(get(container, "resources", "limits"))
    if kind == "limits":
        return {**added.limits, **limits}
    # The server copies a limit to a missing request before the namespace's defaults apply.
    return {**added.requests, **limits, **_amounts(get(container, "resources", "requests"))}


def _amounts(texts: Any) -> Amounts:
    pairs = texts.items() if isinstance(texts, Mapping) else ()
    return {str(name): amount for name, text in pairs if (amount := quantity(text)) is not None}


def _sum(one: Amounts, other: Mapping[str, Decimal]) -> Amounts:
    names = one.keys() | other.keys()
    return {name: one.get(name, Decimal(0)) + other.get(name, Decimal(0)) for name in names}


def _most(one: Amounts, other: Amounts) -> Amounts:
    names = one.keys() | other.keys()
    return {name: max(one.get(name, Decimal(0)), other.get(name, Decimal(0))) for name in names}
