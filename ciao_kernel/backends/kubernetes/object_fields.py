"""Access to the fields of Kubernetes objects: pure functions.

The server may be older or newer than this code: a field that is missing or has another type counts
as unset, never as an error.
"""

from __future__ import annotations

from typing import Any

from ciao_kernel.kube.object_shape import objects
from ciao_kernel.model import Manifest


def get(item: Any, *path: str) -> Any:
    """Return the value at a path of keys, or None."""
    for key in path:
        if not isinstance(item, dict):
            return None
        item = item.get(key)
    return item


def many(item: Any, *path: str) -> list[Manifest]:
    """Return the objects of a list at a path; an empty list if there is none."""
    return objects(get(item, *path))


def mapping(item: Any) -> Manifest:
    """Return an object itself; an empty one for anything else."""
    return item if isinstance(item, dict) else {}


def number(value: Any, most: float) -> float | None:
    """Return a number from 0 to a limit; None for anything else that a field may hold."""
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    return value if fits and 0 <= value <= most else None


def literal(word: str) -> str:
    """Escape ``$`` in a command or a variable: Kubernetes replaces ``$(NAME)`` there."""
    return word.replace("$", "$$")


def of_literal(word: str) -> str:
    """Return a word as its program gets it, the reverse of :func:`literal`."""
    return word.replace("$$", "$")
