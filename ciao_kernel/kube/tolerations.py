"""Writes tolerations as Kubernetes takes them: for replicas, and for pods that build."""

from __future__ import annotations

from ciao_kernel.model import Manifest


def toleration(text: str) -> Manifest:
    """Read ``key=value:Effect`` as ``%toleration`` takes it; value and effect may be left out."""
    taint, _, effect = text.partition(":")
    key, equals, value = taint.partition("=")
    found: Manifest = {"key": key, "operator": "Equal" if equals else "Exists"}
    if equals:
        found["value"] = value
    return found | ({"effect": effect} if effect else {})
