"""A strategic merge patch of a pod template, as ``kubectl patch`` applies it: a pure function.

Objects merge key by key, and null removes a key. A list replaces the other list, unless the API
has a key for its items: containers merge by their name, for example. New items come last (kubectl
puts them first), so that the container of the program stays the first one.

Source: ``patchMergeKey`` of the fields in ``k8s.io/api/core/v1/types.go``, and "Strategic Merge
Patch" in ``docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch`` of Kubernetes.
"""

from __future__ import annotations

from typing import Any

_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "volumes": "name",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "resourceClaims": "name",
}
"""Key of the items of a list, by the field that contains it."""
_PATCH, _DELETE, _REPLACE = "$patch", "delete", "replace"


def merged(before: Any, patch: Any, at: str = "") -> Any:
    """Return a value after a patch; neither of them changes.

    Args:
        before: The value; None if there is none.
        patch: The patch.
        at: Path of the value, for errors: ``spec.containers[0]``.

    Raises:
        ValueError: The patch is not one; the message names the place.
    """
    if isinstance(patch, dict):
        return _object(before if isinstance(before, dict) else {}, patch, at)
    if isinstance(patch, list):
        key = _KEYS.get(at.rpartition(".")[2])
        return _items(before if isinstance(before, list) else [], patch, key, at) if key else patch
    return patch


def _object(before: dict[str, Any], patch: dict[str, Any], at: str) -> dict[str, Any]:
    how = patch.get(_PATCH)
    if how is not None and how not in (_DELETE, _REPLACE):
        raise ValueError(f"{at or 'the patch'}: $patch is {how!r}, not delete or replace")
    if how == _DELETE:
        return {}
    found = {} if how == _REPLACE else dict(before)
    for key, value in patch.items():
        place = f"{at}.{key}" if at else str(key)
        if key == _PATCH:
            continue
        if str(key).startswith("$"):
            raise ValueError(f"{place}: only $patch is understood here")
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value, place)
    return found


def _items(before: list[Any], patch: list[Any], key: str, at: str) -> list[Any]:
    found = list(before)
    for number, one in enumerate(patch):
        if one == {_PATCH: _REPLACE}:  # a mark for the whole list, not an item
            found = []
            continue
        place = f"{at}[{number}]"
        if not isinstance(one, dict) or key not in one:
            raise ValueError(f"{place}: it has no {key}, by which items of {at} are found")
        same = [index for index, item in enumerate(found) if _key(item, key) == one[key]]
        if one.get(_PATCH) == _DELETE:
            found = [item for index, item in enumerate(found) if index not in same]
        elif same:
            found[same[0]] = merged(found[same[0]], one, place)
        else:
            found.append(merged({}, one, place))
    return found


def _key(item: Any, key: str) -> Any:
    return item.get(key) if isinstance(item, dict) else None
