"""Tolerations in the form of the Kubernetes API, for replicas and for build pods."""

from __future__ import annotations

from collections.abc import Iterable

from ciao_kernel.model import Manifest


def toleration(text: str) -> Manifest:
    """Parse ``key=value:Effect`` of ``%toleration``; value and effect are optional."""
    taint, _, effect = text.partition(":")
    key, equals, value = taint.partition("=")
    found: Manifest = {"key": key, "operator": "Equal" if equals else "Exists"}
    if equals:
        found["value"] = value
    return found | ({"effect": effect} if effect else {})


def tolerates(tolerations: Iterable[Manifest], taint: Manifest) -> bool:
    """Return whether a pod may run on a node in spite of a taint.

    Called where nodes are chosen before any pod exists. The rules are the scheduler's:
    https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/.

    Args:
        tolerations: Those of the pod; an ``operator`` that is not known tolerates nothing.
        taint: One taint of the node.
    """
    return any(_covers(one, taint) for one in tolerations)


def _covers(one: Manifest, taint: Manifest) -> bool:
    key, operator = one.get("key") or "", one.get("operator") or "Equal"
    if one.get("effect") and one["effect"] != taint.get("effect"):
        return False
    if operator == "Exists":
        return key in ("", taint.get("key"))
    same = (one.get("value") or "") == (taint.get("value") or "")
    return operator == "Equal" and key == taint.get("key") and same
