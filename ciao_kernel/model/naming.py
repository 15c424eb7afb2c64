"""Names of jobs; the rules are the same in every backend."""

from __future__ import annotations

import secrets

MOST = 999
"""Maximum number of jobs with the same name; a number after the name distinguishes them."""

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""No vowels or similar characters: a random name is never a word and is easy to read aloud."""


def candidate(wanted: str | None, framework: str, number: int) -> str:
    """Return the name for an attempt.

    Args:
        wanted: The name that the user chose; None means the framework's name and five letters.
        framework: Name of the framework.
        number: Number of the attempt, from 1. From 2 on, it is appended to the wanted name.
    """
    if wanted is None:
        return framework + "-" + "".join(secrets.choice(_LETTERS) for _ in range(5))
    return numbered(wanted, number)


def numbered(wanted: str, number: int) -> str:
    """Return a wanted name for an attempt, from 1: from 2 on, the number is appended."""
    return wanted if number == 1 else f"{wanted}-{number}"
