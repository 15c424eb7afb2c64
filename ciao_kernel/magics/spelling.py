"""The spelling of names: ``cleanPolicy``, ``clean-policy`` and ``CLEAN_POLICY`` are one."""

from __future__ import annotations


def key(name: str) -> str:
    """Normalize a name as written (``clean-policy``) for comparison."""
    return name.replace("-", "").replace("_", "").lower()
