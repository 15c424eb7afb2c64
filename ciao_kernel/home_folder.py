"""The home folder of this user, which a user of a container need not have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def home(environment: Mapping[str, str] | None = None) -> Path:
    """Return the home folder; / for a user without HOME and without an entry in passwd(5).

    That is what a container engine sets for such a user. Files there can be looked for, and an
    error of a file that cannot be written names its path and the remedy.

    Args:
        environment: Variables with another ``HOME`` than that of this process; None means its own.
    """
    if environment and (named := environment.get("HOME")):
        return Path(named)
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")
