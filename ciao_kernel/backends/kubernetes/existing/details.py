"""Details of a job beyond its status, from its objects and events: pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.backends.kubernetes.output import output_store
from ciao_kernel.backends.kubernetes.states import finalizers, status
from ciao_kernel.kube.server_clock import ServerClock
from ciao_kernel.model import Job, Manifest
from ciao_kernel.model.queries import ClusterEvent, Condition, Group

_MOST = 20
"""Number of events to show: the newest."""


def facts(
    job: Job, item: Manifest, source: str, holder: Manifest | None = None
) -> tuple[tuple[str, str], ...]:
    """Return names and values of the properties that are set.

    Args:
        job: The job.
        item: Its object.
        source: Where the cluster's address comes from.
        holder: The object with its pod templates (:mod:`.template_holder`), if that is another.
    """
    api = apis.of_item(item)
    policy = api.policy(item)
    spec = next(iter(_pod_specs(holder or item).values()), {})
    pulls = [str(one.get("name")) for one in many(spec, "imagePullSecrets")]
    labels = get(spec, "nodeSelector")
    rows = {
        "cluster": source,
        "kind": item.get("kind"),
        "runtime": " ".join(
            str(get(item, "spec", "runtimeRef", key) or "") for key in ("kind", "name")
        ).strip(),
        "uid": job.uid,
        "service account": spec.get("serviceAccountName"),
        "pull secrets": " ".join(pulls),
        "node selector": _pairs(labels),
        "priority class": spec.get("priorityClassName"),
        "clean policy": policy.get("cleanPodPolicy"),
        "deadline": _seconds(policy.get("activeDeadlineSeconds")),
        "backoff limit": policy.get("backoffLimit"),
        "kept when over": (
            _seconds(policy.get("ttlSecondsAfterFinished"))
            if api.expires
            else "until `ciao delete`"
        ),
        "suspended": "yes" if policy.get("suspend") is True else "",
        "deleted": _deletion(item),
    }
    return tuple((name, str(value)) for name, value in rows.items() if value not in (None, ""))


def groups(holder: Manifest) -> tuple[Group, ...]:
    """Return number, image, limits and restart policy of each role's replicas."""
    found = []
    specs = _pod_specs(holder)
    for role, own in apis.of_item(holder).roles(holder).items():
        if role not in specs:
            continue
        container = (many(specs[role], "containers") or [{}])[0]
        count = own.get("replicas", 1)
        found.append(
            Group(
                role.lower(),
                count if isinstance(count, int) else 1,
                str(container.get("image") or ""),
                _pairs(get(container, "resources", "limits")),
                str(own.get("restartPolicy") or ""),
            )
        )
    return tuple(found)


def conditions(item: Manifest, clock: ServerClock) -> tuple[Condition, ...]:
    """Return the job's conditions, in the object's order, with times of this machine's clock."""
    return tuple(
        Condition(
            str(one.get("type") or ""),
            str(one.get("status") or ""),
            str(one.get("reason") or ""),
            clock.to_local(status.stamp(one.get("lastTransitionTime"))),
            _line(one.get("message")),
        )
        for one in many(item, "status", "conditions")
    )


def cluster_events(
    events: Iterable[Manifest], since: float, clock: ServerClock
) -> tuple[ClusterEvent, ...]:
    """Return the newest events; repeated events are merged and counted.

    Args:
        events: The events as the server lists them.
        since: Time of the job; older events belong to an earlier job of the same name.
        clock: The server's clock; all other times, also of the result, are of this machine's.
    """
    found: dict[tuple[str, str, str], ClusterEvent] = {}
    for event in events:
        when = clock.to_local(_when(event))
        if when < since:
            continue
        kind = str(get(event, "involvedObject", "kind") or "").lower()
        about = f"{kind}/{get(event, 'involvedObject', 'name') or ''}"
        reason, message = str(event.get("reason") or ""), _line(event.get("message"))
        key = (about, reason, message)
        before = found.get(key)
        found[key] = ClusterEvent(
            about,
            str(event.get("type") or ""),
            reason,
            message,
            max(when, before.since if before else 0.0),
            _count(event) + (before.count if before else 0),
        )
    return tuple(sorted(found.values(), key=lambda one: one.since)[-_MOST:])


def shown(item: Manifest) -> Manifest:
    """Return the object without the server's records of who wrote which field.

    A second copy of its spec is left out too.
    """
    meta = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
    if isinstance(notes := meta.get("annotations"), dict):
        kept = {key: value for key, value in notes.items() if key != job_metadata.SUBMITTED}
        meta["annotations"] = kept
    return output_store.hidden({**item, "metadata": meta})


def _pod_specs(item: Manifest) -> dict[str, Manifest]:
    """Return the pod spec of each role, with the role as the kind spells it."""
    roles = apis.of_item(item).roles(item).items()
    found = {role: get(one, "template", "spec") for role, one in roles}
    return {role: spec for role, spec in found.items() if isinstance(spec, dict)}


def _when(event: Manifest) -> float:
    places: tuple[tuple[str, ...], ...] = (
        ("series", "lastObservedTime"),
        ("lastTimestamp",),
        ("eventTime",),
        ("firstTimestamp",),
    )
    times = (status.stamp(get(event, *place)) for place in places)
    return next((time for time in times if time), 0.0)


def _count(event: Manifest) -> int:
    count = get(event, "series", "count") or event.get("count")
    return count if isinstance(count, int) and count > 0 else 1


def _pairs(values: Any) -> str:
    if not isinstance(values, dict):
        return ""
    return " ".join(f"{key}={value}" for key, value in values.items())


def _seconds(value: Any) -> str:
    return f"{value} s" if isinstance(value, int) else ""


def _deletion(item: Manifest) -> str:
    """Return whether a job is being deleted, and what keeps its object; "" if it is not."""
    if get(item, "metadata", "deletionTimestamp") is None:
        return ""
    by = finalizers.words(item)
    return f"yes, but kept by {by}" if by else "yes"


def _line(text: Any) -> str:
    return " ".join(str(text or "").split())
