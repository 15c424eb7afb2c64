"""The replicas of a job as one word for each role, in annotations: ``ps=1 worker=2``."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from ciao_kernel.model import Replica

ANNOTATION = "ciao-kernel/replicas"
"""Annotation with the list: of a job, and of the pods of an Indexed Job."""
ROLE = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
"""The form of a role; anybody in the namespace may write one, and it becomes part of paths."""
_MOST = 10_000


def render(replicas: Iterable[Replica]) -> str:
    """Return the list; :func:`parse` returns the same replicas in the order of their roles."""
    counts: dict[str, int] = {}
    for replica in replicas:
        counts[replica.role] = counts.get(replica.role, 0) + 1
    return " ".join(f"{role}={count}" for role, count in counts.items())


def counts(text: str) -> dict[str, int]:
    """Return the number of replicas of each role.

    Raises:
        ValueError: The list is invalid.
    """
    found: dict[str, int] = {}
    for word in text.split():
        role, _, count = word.partition("=")
        if not ROLE.fullmatch(role) or not 0 <= int(count) <= _MOST - sum(found.values()):
            raise ValueError(f"invalid replicas: {word[:40]!r}")
        found[role] = found.get(role, 0) + int(count)
    return found


@functools.lru_cache(64)
def parse(text: str) -> tuple[Replica, ...]:
    """Return the replicas of a list.

    Raises:
        ValueError: The list is invalid.
    """
    return tuple(
        Replica(role, index) for role, count in counts(text).items() for index in range(count)
    )
