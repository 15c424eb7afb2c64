"""Descriptions of changes that somebody else made in a job, for the users who follow it.

The controllers of jobs never write to their specs, only to their status.
"""

from __future__ import annotations

from typing import Any

from ciao_kernel.backends.kubernetes.object_fields import get, many, mapping
from ciao_kernel.model import Manifest
from ciao_kernel.visible_text import short

_LONGEST = 60


def between(before: Manifest, after: Manifest) -> list[str]:
    """Return one sentence for each change of the spec, without the subject.

    Args:
        before: The job's object before the change.
        after: The object after it.
    """
    old, new = get(before, "spec"), get(after, "spec")
    if old == new or not isinstance(old, dict) or not isinstance(new, dict):
        return []
    found = []
    for key in sorted(old.keys() | new.keys()):
        ours, theirs = old.get(key), new.get(key)
        if ours == theirs:
            continue
        if key.endswith("ReplicaSpecs"):
            found += _roles(mapping(ours), mapping(theirs))
        elif key == "parallelism" and _is_scaled(old, new):
            found.append(f"it was scaled from {ours} to {theirs} replicas")
        elif key == "completions" and _is_scaled(old, new):
            continue  # the same change
        elif key == "runPolicy":
            found += _policy(mapping(ours), mapping(theirs))
        elif key == "suspend":
            found += _policy({key: ours}, {key: theirs})
        else:
            found.append(_changed(key, ours, theirs))
    return found


def author(before: Manifest, after: Manifest) -> str:
    """Return the API server's name of the spec's last writer: "kubectl-edit"; "" if unknown."""
    old = many(before, "metadata", "managedFields")
    times = [_writing(one) for one in old]
    # An entry of who wrote before changes too if it loses fields to the new writer, but it keeps
    # its time. Times are whole seconds, so a second change by the same writer may keep it as well.
    writers = [
        one
        for one in many(after, "metadata", "managedFields")
        if not one.get("subresource") and one not in old
    ]
    writers = [one for one in writers if _writing(one) not in times] or writers
    last = max(writers, key=lambda one: str(one.get("time")), default={})
    return str(last.get("manager") or "")


def _writing(entry: Manifest) -> tuple[Any, ...]:
    return tuple(entry.get(key) for key in ("manager", "operation", "time"))


def _is_scaled(old: Manifest, new: Manifest) -> bool:
    """Return whether an Indexed Job has another number of replicas: its two numbers are one."""
    return all(spec.get("completions") == spec.get("parallelism") for spec in (old, new))


def _roles(old: Manifest, new: Manifest) -> list[str]:
    found = []
    for role in sorted(old.keys() | new.keys()):
        ours, theirs = dict(mapping(old.get(role))), dict(mapping(new.get(role)))
        was, now = (
            ours.pop("replicas", 1 if ours else 0),
            theirs.pop("replicas", 1 if theirs else 0),
        )
        if was != now:
            found.append(f"{role.lower()} was scaled from {was} to {now}")
        if ours != theirs and ours and theirs:
            found.append(f"the pod template of {role.lower()} was changed")
    return found


def _policy(old: Manifest, new: Manifest) -> list[str]:
    found = []
    for key in sorted(old.keys() | new.keys()):
        ours, theirs = old.get(key), new.get(key)
        if ours == theirs:
            continue
        if key == "suspend":
            found.append(
                "it is suspended, and its pods are deleted until it is resumed"
                if theirs
                else "it is resumed"
            )
        else:
            found.append(_changed(key, ours, theirs))
    return found


def _changed(key: str, old: Any, new: Any) -> str:
    return f"{key} was changed from {_short(old)} to {_short(new)}"


def _short(value: Any) -> str:
    return "unset" if value is None else short(str(value), _LONGEST)
