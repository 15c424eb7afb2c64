"""One member of a job, and where the others reach it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Replica:
    """One member of a job; ``str()`` gives the name that prefixes its log, ``worker-0``."""

    role: str
    index: int

    def __str__(self) -> str:
        return f"{self.role}-{self.index}"

    def chosen(self, names: Collection[str]) -> bool:
        """Whether a list of roles and replicas means this one; an empty list means all."""
        return not names or self.role in names or str(self) in names


@dataclass(frozen=True, slots=True)
class Address:
    """Where the other replicas of a job reach one replica."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
