"""Checks whether a namespace's quotas have room for a whole job.

The server counts one pod at a time, and the operator creates pods one by one. If a job is too
large, some of its replicas would run and wait for the others forever.
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal, InvalidOperation
from typing import Any

from ciao_kernel.backends.kubernetes import manifest, status
from ciao_kernel.backends.kubernetes.manifest import Objects
from ciao_kernel.backends.kubernetes.rights import Right, allowed
from ciao_kernel.backends.kubernetes.target import Target
from ciao_kernel.errors import BackendError, SpecError
from ciao_kernel.model import Manifest

_UNITS = {
    unit: Decimal(10) ** power
    for unit, power in zip(
        ("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), range(-9, 21, 3), strict=True
    )
} | {f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)}
_PLAIN = {"cpu": "requests.cpu", "memory": "requests.memory"}
"""Short names of the same counts."""


async def check(target: Target, made: Objects) -> bool:
    """Check that there is room; do nothing if this user may not list the quotas.

    Returns:
        Whether there are quotas, so that the next job has to be checked too.

    Raises:
        SpecError: There is no room; the error names the missing resources and a directive.
    """
    client, namespace = target.client, target.namespace
    if not all(await allowed(client, namespace, Right("list", "resourcequotas"))):
        return False
    try:
        listed = await client.get(f"/api/v1/namespaces/{namespace}/resourcequotas")
    except BackendError:
        return True  # the check is optional: the pods' own events report a refusal later
    asks, items = _asks(made), status.many(listed, "items")
    for item in items:
        _judge(item, asks, namespace)
    return bool(items)


def _judge(quota: Any, asks: dict[str, Decimal], namespace: str) -> None:
    try:
        spec, status = quota["spec"], quota.get("status") or {}
        # Only the server can tell what a scope covers.
        scoped = spec.get("scopes") or spec.get("scopeSelector")
        hard = {} if scoped else dict(spec["hard"])
        used, name = dict(status.get("used") or {}), quota["metadata"]["name"]
    except (KeyError, TypeError, ValueError, AttributeError):
        return
    short = []
    for resource, limit in hard.items():
        most, now = quantity(limit), quantity(used.get(resource, "0"))
        needs = asks.get(_PLAIN.get(resource, resource), Decimal(0))
        if most is not None and now is not None and needs and now + needs > most:
            taken = f"{used.get(resource, '0')} of {limit} {'is' if limit == '1' else 'are'} used"
            short.append((resource, f"{resource}: the job asks for {_text(needs)}, and {taken}"))
    if short:
        everything = "; ".join(words for _, words in short)
        raise SpecError(
            f"the quota {name} of the namespace {namespace} has no room for this job: "
            f"{everything}.",
            "Ask for less (%cpu, %memory, %gpu, fewer replicas), or wait until other jobs end.",
            directive=_directive(short[0][0]),
        )


def _asks(made: Objects) -> dict[str, Decimal]:
    """Return the resources and objects of a whole job, by their names in quotas."""
    found: Counter[str] = Counter()
    body = made.job
    group = body["apiVersion"].partition("/")[0]
    found[f"count/{made.path.rpartition('/')[2]}.{group}"] = 1
    for item in made.beside:
        plural = f"{item['kind'].lower()}s"
        found[plural] += 1
        found[f"count/{plural}"] += 1
    sums: dict[str, Decimal] = {}
    for count, template in _groups(body):
        for name in ("pods", "count/pods", "services", "count/services"):  # created by the operator
            found[name] += count
        resources = template["spec"]["containers"][0].get("resources") or {}
        for kind in ("requests", "limits"):
            for resource, text in (resources.get(kind) or {}).items():
                if (each := quantity(text)) is not None:
                    key = f"{kind}.{resource}"
                    sums[key] = sums.get(key, Decimal(0)) + each * count
    return sums | {name: Decimal(count) for name, count in found.items()}


def _groups(body: Manifest) -> list[tuple[int, Manifest]]:
    pods = manifest.pod_templates(body)
    counts = {
        role: one["replicas"]
        for value in body["spec"].values()
        if isinstance(value, dict) and value.keys() == pods.keys()
        for role, one in value.items()
    }
    return [(counts[role], template) for role, template in pods.items()]


def quantity(text: Any) -> Decimal | None:
    """Parse a quantity of Kubernetes (``500m``, ``1.5Gi``, ``2e3``); None if it is invalid."""
    words = str(text)
    unit = words.lstrip("+-0123456789.")
    with_exponent = unit[:1] in ("e", "E") and unit[1:].lstrip("+-").isdigit()
    try:
        if with_exponent:
            return Decimal(words)
        return Decimal(words.removesuffix(unit)) * _UNITS[unit]
    except (InvalidOperation, KeyError):
        return None


def _text(value: Decimal) -> str:
    """Format a sum with the largest unit that gives a whole number."""
    for unit in ("Ti", "Gi", "Mi"):
        if value >= _UNITS[unit] and not value % _UNITS[unit]:
            return f"{value / _UNITS[unit]:f}{unit}"
    if value % 1:
        return f"{value * 1000:f}".rstrip("0").rstrip(".") + "m"
    return f"{value:f}".partition(".")[0]


def _directive(resource: str) -> str:
    last = resource.rpartition(".")[2]
    if last in ("cpu", "memory"):
        return last
    return "gpu" if resource.startswith("requests.") else "worker"
