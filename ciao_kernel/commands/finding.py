"""The result of one check of ``ciao doctor``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check. ``level`` is ``ok``, ``note`` or ``wrong``."""

    level: str
    what: str
    fix: str = ""
