"""The shape of Kubernetes objects: fields that have another type count as unset.

The server may be older or newer than this code, or something else may answer in its place.
"""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]
"""A Kubernetes object, as decoded from JSON."""


def normalize(item: Object) -> Object:
    """Correct the shape of an object in place: metadata, labels, owner references, spec, status.

    Readers of these fields then need no type checks. An object of a real API server stays
    unchanged.
    """
    meta = item["metadata"] = part(item, "metadata")
    for name in ("name", "namespace", "uid"):
        if not isinstance(meta.get(name), str):
            meta[name] = ""
    for name in ("labels", "annotations"):
        if name in meta:
            found = part(meta, name)
            meta[name] = {k: v for k, v in found.items() if isinstance(v, str)}
    if "ownerReferences" in meta:
        meta["ownerReferences"] = objects(meta["ownerReferences"])
    for name in ("spec", "status"):
        if name in item:
            item[name] = part(item, name)
    return item


def part(item: Object, name: str) -> Object:
    """Return a field that should be an object; an empty object if it is anything else."""
    found = item.get(name)
    return found if isinstance(found, dict) else {}


def objects(value: object) -> list[Object]:
    """Return the objects of a value that should be a list of them; nothing of anything else."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
