"""Who keeps an object that somebody has deleted."""

from __future__ import annotations

from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.states import finalizers

AT = "2026-11-21T11:00:00Z"


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        ({"deletionTimestamp": AT, "finalizers": ["a/b"]}, "the finalizer a/b"),
        ({"deletionTimestamp": AT, "finalizers": ["a/b", "c/d"]}, "the finalizers a/b, c/d"),
        ({"deletionTimestamp": AT, "finalizers": list("abcde")},
         "the finalizers a, b, c and 2 others"),
        ({"finalizers": ["a/b"]}, ""),  # nobody has deleted it
        ({"deletionTimestamp": AT}, ""),
        ({"deletionTimestamp": AT, "finalizers": "odd"}, ""),
        # Kubernetes removes its own after a moment.
        ({"deletionTimestamp": AT, "finalizers": ["foregroundDeletion"]}, ""),
        (None, ""),
    ],
)  # fmt: skip
def test_who_keeps_a_deleted_object(meta: dict[str, Any] | None, words: str) -> None:
    assert finalizers.words({"metadata": meta}) == words
    assert finalizers.words(None) == ""
