"""The resources of the container that keeps files of ``%output``: pure functions.

They are small, but a namespace may demand more: its LimitRanges are checked for each container, and
one container that breaks a rule is enough to refuse a pod. And a pod is of the class Guaranteed,
which is evicted last, only if each of its containers requests what is its limit
(https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/).
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Any

from ciao_kernel.backends.kubernetes.object_fields import get
from ciao_kernel.kube.quantities import quantity, shown
from ciao_kernel.model import Manifest

_USUAL = {"cpu": ("10m", "500m"), "memory": ("32Mi", "256Mi")}
"""Request and limit."""
_EQUAL = {"cpu": ("250m", "250m"), "memory": ("256Mi", "256Mi")}
"""The same in a pod of the class Guaranteed: enough processor to pack large files in minutes."""
_STEPS = {"cpu": Decimal("0.001"), "memory": Decimal(1)}


def of_sidecar(program: Manifest, rules: Sequence[Any]) -> Manifest:
    """Return the resources of the container beside a program: of those that a quota may require.

    Args:
        program: The resources of the program's container; what it leaves out, the namespace fills
            in for both.
        rules: The rules of the namespace's LimitRanges for containers, as far as they are known.
    """
    guaranteed = all(_is_equal(name, program, rules) for name in _USUAL)
    found: Manifest = {}
    for name, both in (_EQUAL if guaranteed else _USUAL).items():
        added = None if get(program, "limits", name) else _first(rules, "default", name)
        kinds = zip(("requests", "limits"), _fitted(name, both, rules, added), strict=True)
        for kind, amount in kinds:
            if name in program.get(kind, {}):
                found.setdefault(kind, {})[name] = amount
    return found


def _is_equal(name: str, program: Manifest, rules: Sequence[Any]) -> bool:
    """Return whether a program's container requests its limit of a resource."""
    request = get(program, "requests", name) or _first(rules, "defaultRequest", name)
    limit = get(program, "limits", name) or _first(rules, "default", name)
    if request is None or limit is None:
        return False
    return bool(request == limit or quantity(request) == quantity(limit))


def _first(rules: Sequence[Any], field: str, name: str) -> Any:
    return next((found for one in rules if (found := get(one, field, name)) is not None), None)


def _fitted(name: str, both: tuple[str, str], rules: Sequence[Any], added: Any) -> tuple[str, str]:
    """Return a request and a limit that keep the rules for a resource.

    Args:
        name: The resource.
        both: The request and the limit without rules.
        rules: The rules of the namespace.
        added: The limit that the server adds; None if the container names its own.
    """
    least, most, ratios = (
        [value for one in rules if (value := quantity(get(one, field, name))) is not None]
        for field in ("min", "max", "maxLimitRequestRatio")
    )
    if not (least or most or ratios):
        return both
    request, limit = (
        min([max([value, *least]), *most]) for text in both if (value := quantity(text)) is not None
    )
    if (fixed := quantity(added)) is not None:
        request, limit = min(request, fixed), fixed
    for ratio in ratios:
        if ratio > 0 and limit > request * ratio:
            steps = (limit / ratio / _STEPS[name]).to_integral_value(ROUND_CEILING)
            request = steps * _STEPS[name]
    return shown(request), shown(limit)
