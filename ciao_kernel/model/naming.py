"""Names for jobs, the same in every backend."""

from __future__ import annotations

import secrets

MOST = 999
"""Jobs that may have the same name, told apart by a number behind it."""

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""No vowels and no look-alikes: a random name spells no word and is read aloud without doubt."""


def candidate(wanted: str | None, framework: str, number: int) -> str:
    """Return the name to try the ``number``-th time, counted from 1.

    Args:
        wanted: What the user asked for; None: the framework's name and five letters.
        framework: Its name.
        number: From 2 on it stands behind the wanted name.
    """
    if wanted is None:
        return framework + "-" + "".join(secrets.choice(_LETTERS) for _ in range(5))
    return wanted if number == 1 else f"{wanted}-{number}"
