"""The program of a cell and the files beside it, before they travel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file for the replicas: its place there, and its bytes or where they lie here."""

    path: str
    """Relative to the job's folder, with ``/``."""
    data: bytes | None = None
    origin: Path | None = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class Source:
    """The program and the files beside it, as every replica will find them."""

    entry: SourceFile
    modules: tuple[SourceFile, ...] = ()
    """Local Python modules that the program imports."""
    files: tuple[SourceFile, ...] = ()
    """What ``%files`` names."""
    imports: frozenset[str] = frozenset()
    """First names of all modules that the program and its local modules import."""
    notes: tuple[str, ...] = ()
    """What the user should know of files that stay at home, a sentence each."""

    def all(self) -> tuple[SourceFile, ...]:
        """The program first, then its modules, then the files."""
        return (self.entry, *self.modules, *self.files)
