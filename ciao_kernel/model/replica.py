"""A replica of a job, and its network address."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Replica:
    """One member of a job; ``str()`` returns the name in its log prefix, ``worker-0``."""

    role: str
    index: int

    def __str__(self) -> str:
        return f"{self.role}-{self.index}"

    def chosen(self, names: Collection[str]) -> bool:
        """Return whether a list of roles and replicas includes this replica; empty means all."""
        return not names or self.role in names or str(self) in names


@dataclass(frozen=True, slots=True)
class Address:
    """Address at which the other replicas of a job reach a replica."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
