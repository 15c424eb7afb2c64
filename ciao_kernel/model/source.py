"""The program of a cell and its files, before delivery."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file for the replicas: its path there, and its content or its path on this machine."""

    path: str
    """Path relative to the job's folder, with ``/``."""
    data: bytes | None = None
    origin: Path | None = None
    """Path without links; ``delivery.input.held_file.open_checked`` opens it."""
    size: int = 0
    code: bytes | None = None
    """Content of a local module when its imports were read, for frameworks that look into it."""


@dataclass(frozen=True, slots=True)
class Source:
    """The program and its files, as every replica receives them."""

    entry: SourceFile
    modules: tuple[SourceFile, ...] = ()
    """Local Python modules that the program imports."""
    files: tuple[SourceFile, ...] = ()
    """Files that ``%files`` names."""
    imports: frozenset[str] = frozenset()
    """Top-level names of all modules that the program and its local modules import."""
    notes: tuple[str, ...] = ()
    """Notes for the user about what is not delivered, one sentence each."""
    module: str = ""
    """Dotted name of the program if Python runs it as a module (``python -m``), else ""."""
    own: tuple[SourceFile, ...] = ()
    """Modules of ciao for the replicas (:mod:`ciao_kernel.delivery.site_folder`)."""

    def all(self) -> tuple[SourceFile, ...]:
        """Return the program, then its modules, the files, and ciao's own modules."""
        return (self.entry, *self.modules, *self.files, *self.own)
