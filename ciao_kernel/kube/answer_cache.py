"""Answers of an API server that are kept for a while, and what callers have made of them."""

from __future__ import annotations

import time

from ciao_kernel.kube.object_shape import Object


class AnswerCache:
    """Objects by their keys, each until its time."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Object]] = {}

    def get(self, key: str) -> Object | None:
        """Return what :meth:`keep` stored; None if it is missing or expired."""
        until, found = self._known.get(key, (0.0, {}))
        return found if until > time.monotonic() else None

    def keep(self, key: str, found: Object, seconds: float) -> None:
        """Store an object for some seconds, or until :meth:`clear`."""
        self._known[key] = time.monotonic() + seconds, found

    def clear(self) -> None:
        """Forget everything: after a refusal, answers may be outdated."""
        self._known.clear()
