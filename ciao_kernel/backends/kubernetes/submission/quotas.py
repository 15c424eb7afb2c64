"""Checks whether a namespace's quotas have room for a whole job.

The server counts one pod at a time, and the operator creates pods one by one. If a job is too
large, some of its replicas would run and wait for the others forever.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from ciao_kernel import log
from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import template_holder
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.backends.kubernetes.rights import Right, allowed
from ciao_kernel.backends.kubernetes.submission import limit_ranges, pod_resources
from ciao_kernel.backends.kubernetes.submission.pod_resources import Defaults
from ciao_kernel.errors import BackendError, NoRoom
from ciao_kernel.kube.quantities import quantity, shown
from ciao_kernel.model import Manifest

_log = logging.getLogger(__name__)

_PLAIN = {"cpu": "requests.cpu", "memory": "requests.memory"}
"""Short names of the same counts."""


async def check(target: Target, made: Objects, *, waits: bool = False) -> bool:
    """Check that there is room; do nothing if this user may not list the quotas.

    Args:
        target: Cluster and namespace.
        made: The job.
        waits: Whether the job waits in a queue: its pods come when others have gone, so they have
            to fit into the whole quota, and need not fit into what is free now.

    Returns:
        Whether there are quotas, so that the next job has to be checked too.

    Raises:
        NoRoom: There is no room; the error names the missing resources and a directive.
    """
    client, namespace = target.client, target.namespace
    if not all(await allowed(client, namespace, Right("list", "resourcequotas"))):
        return False
    try:
        listed = await client.get(f"/api/v1/namespaces/{namespace}/resourcequotas")
    except BackendError:
        return True  # the check is optional: the pods' own events report a refusal later
    items = many(listed, "items")
    if items:
        asks = _asks(made, await _defaults(target), await _overheads(target, made))
        for item in items:
            _judge(item, asks, _at_once(made) if waits else asks, namespace)
    return bool(items)


async def _defaults(target: Target) -> Defaults:
    """Read the namespace's LimitRanges; without the right, containers count as they are written."""
    return pod_resources.defaults(await limit_ranges.of_containers(target))


async def _overheads(target: Target, made: Objects) -> dict[str, Mapping[str, Any]]:
    """Read what the RuntimeClasses of the pods add to each pod, as far as this user may."""
    named = {
        str(get(pod, "spec", "runtimeClassName") or "")
        for pod in template_holder.pod_templates(made.holder).values()
    }
    found: dict[str, Mapping[str, Any]] = {}
    for name in sorted(named - {""}):
        with log.ignored(_log, "reading a runtime class", BackendError):
            item = await target.client.known(f"/apis/node.k8s.io/v1/runtimeclasses/{name}")
            fixed = get(item, "overhead", "podFixed")
            found[name] = fixed if isinstance(fixed, Mapping) else {}
    return found


def _judge(
    quota: Any, asks: Mapping[str, Decimal], at_once: Mapping[str, Decimal], namespace: str
) -> None:
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
        counted = _PLAIN.get(resource, resource)
        needs, soon = (each.get(counted, Decimal(0)) for each in (asks, at_once))
        if words := _lack(needs, soon, limit, used.get(resource, "0")):
            short.append((resource, f"{resource}: {words}"))
    if short:
        everything = "; ".join(words for _, words in short)
        raise NoRoom(
            f"the quota {name} of the namespace {namespace} has no room for this job: "
            f"{everything}.",
            "Ask for less (%cpu, %memory, %gpu, fewer replicas), or wait until other jobs end.",
            directive=_directive(short[0][0]),
        )


def _lack(needs: Decimal, soon: Decimal, limit: Any, used: Any) -> str:
    """Return how a quota of one resource is too small; "" if it is not.

    Args:
        needs: What the whole job asks for.
        soon: What of that it takes when it is created.
        limit: All that there is.
        used: What others have of it.
    """
    most, now = quantity(limit), quantity(used)
    if most is None or now is None:
        return ""
    if soon and now + soon > most:
        is_used = "is" if limit == "1" else "are"
        return f"the job asks for {shown(soon)}, and {used} of {limit} {is_used} used"
    return f"the job asks for {shown(needs)}, and all of it is {limit}" if needs > most else ""


def _asks(
    made: Objects, added: Defaults, overheads: Mapping[str, Mapping[str, Any]]
) -> dict[str, Decimal]:
    """Return the resources and objects of a whole job, by their names in quotas."""
    found: Counter[str] = Counter()
    created = apis.of_item(made.job).for_each_replica(made.job)
    sums: dict[str, Decimal] = {}
    for count, template in _groups(made.holder):
        for name in created:
            found[name] += count
            found[f"count/{name}"] += count
        spec = template["spec"]
        overhead = spec.get("overhead") or overheads.get(str(spec.get("runtimeClassName")))
        for kind, amounts in pod_resources.of_pod(spec, added, overhead).items():
            for resource, each in amounts.items():
                key = f"{kind}.{resource}"
                sums[key] = sums.get(key, Decimal(0)) + each * count
    objects = {name: Decimal(count) for name, count in found.items()}
    for name, number in _at_once(made).items():
        objects[name] = objects.get(name, Decimal(0)) + number
    return sums | objects


def _at_once(made: Objects) -> dict[str, Decimal]:
    """Return the objects that ciao creates, by their names in quotas: the job and its source."""
    found: Counter[str] = Counter()
    group = made.job["apiVersion"].partition("/")[0]
    found[f"count/{made.path.rpartition('/')[2]}.{group}"] = 1
    for item in made.beside:
        plural = f"{item['kind'].lower()}s"
        owner, _, _ = item.get("apiVersion", "").rpartition("/")
        found[plural] += 1
        found[f"count/{plural}.{owner}" if owner else f"count/{plural}"] += 1
    return {name: Decimal(count) for name, count in found.items()}


def _groups(body: Manifest) -> list[tuple[int, Manifest]]:
    roles = apis.of_item(body).roles(body).values()
    return [(one["replicas"], one["template"]) for one in roles]


def _directive(resource: str) -> str:
    last = resource.rpartition(".")[2]
    if last in ("cpu", "memory"):
        return last
    return "gpu" if resource.startswith("requests.") else "worker"
