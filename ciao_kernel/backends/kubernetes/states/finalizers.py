"""Finalizers: who keeps an object that somebody has deleted. Pure functions.

The API server removes an object only after each of its finalizers was removed, by the program that
set it (Kubernetes, "Finalizers"). If that program is gone, the object stays.
"""

from __future__ import annotations

from ciao_kernel.backends.kubernetes.object_fields import get
from ciao_kernel.model import Manifest

_OWN = frozenset({"foregroundDeletion", "orphan", "batch.kubernetes.io/job-tracking"})
"""Finalizers of Kubernetes itself, which removes them after a moment."""
_NAMED = 3


def holders(item: Manifest | None) -> tuple[str, ...]:
    """Return the finalizers that keep a deleted object; empty if it is not deleted."""
    if get(item, "metadata", "deletionTimestamp") is None:
        return ()
    found = get(item, "metadata", "finalizers")
    names = [str(one) for one in found] if isinstance(found, list) else []
    return tuple(name for name in names if name not in _OWN)


def words(item: Manifest | None) -> str:
    """Return the finalizers that keep a deleted object: "the finalizer a/b"; "" if there are none.

    Args:
        item: The object; None if it is gone.
    """
    names = holders(item)
    if not names:
        return ""
    more = "" if len(names) <= _NAMED else f" and {len(names) - _NAMED} others"
    return f"the finalizer{'s' * (len(names) > 1)} {', '.join(names[:_NAMED])}{more}"
