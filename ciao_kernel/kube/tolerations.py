"""Tolerations in the form of the Kubernetes API, for replicas and for build pods."""

from __future__ import annotations

from ciao_kernel.model import Manifest


def toleration(text: str) -> Manifest:
    """Parse ``key=value:Effect`` of ``%toleration``; value and effect are optional."""
    taint, _, effect = text.partition(":")
    key, equals, value = taint.partition("=")
    found: Manifest = {"key": key, "operator": "Equal" if equals else "Exists"}
    if equals:
        found["value"] = value
    return found | ({"effect": effect} if effect else {})
