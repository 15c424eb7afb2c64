"""Objects of one namespace and their changes, as an API server keeps them."""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

Object = dict[str, Any]
_KEPT = 2000
"""Changes that a watch can begin with; an older one is refused with 410."""


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = {"kind": "Status", "code": code, "reason": reason, "message": message}


class Store:
    """The objects by kind, as it stands in paths, and name. Used in one event loop alone.

    Args:
        now: The time, as it stands in objects.
    """

    def __init__(self, now: Callable[[], str]) -> None:
        self._now = now
        self._items: dict[tuple[str, str], Object] = {}
        self._version = 1
        self._changes: deque[tuple[int, str, Object]] = deque(maxlen=_KEPT)
        self._changed = asyncio.Event()

    def names(self) -> list[str]:
        """Return all that exists, as KIND/NAME."""
        return sorted(f"{kind}/{name}" for kind, name in self._items)

    def known(self) -> list[tuple[str, str]]:
        """Return kind and name of all that exists."""
        return list(self._items)

    def get(self, kind: str, name: str) -> Object:
        """Return an object; raises `Refusal` if there is none."""
        if (found := self._items.get((kind, name))) is None:
            raise Refusal(404, "NotFound", f'{kind} "{name}" not found')
        return found

    def create(self, kind: str, item: Object, namespace: str) -> Object:
        """Add an object; raises `Refusal` if its name is taken."""
        name = item["metadata"]["name"]
        if (kind, name) in self._items:
            raise Refusal(409, "AlreadyExists", f'{kind} "{name}" already exists')
        own = {"namespace": namespace, "uid": str(uuid.uuid4()), "creationTimestamp": self._now()}
        item.update(metadata={**item["metadata"], **own})
        return self._keep("ADDED", kind, item)

    def merge(self, kind: str, name: str, change: Object) -> Object:
        """Change an object; conditions are added by their type."""
        item = copy.deepcopy(self.get(kind, name))
        _merge(item, change)
        return self._keep("MODIFIED", kind, item)

    def delete(self, kind: str, name: str) -> None:
        """Remove an object."""
        self._keep("DELETED", kind, dict(self.get(kind, name)))
        del self._items[kind, name]

    def owned(self, uid: str) -> list[tuple[str, Object]]:
        """Return the objects of an owner, each with its kind."""
        return [
            (kind, item)
            for (kind, _), item in list(self._items.items())
            if any(one["uid"] == uid for one in item["metadata"].get("ownerReferences", ()))
        ]

    def list(self, kind: str, query: Mapping[str, str]) -> Object:
        """Return the objects of a kind that a query selects."""
        found = [item for (one, _), item in self._items.items() if one == kind]
        items = [item for item in found if _selected(item, query)]
        return {"kind": "List", "metadata": {"resourceVersion": str(self._version)}, "items": items}

    async def watch(self, kind: str, query: Mapping[str, str]) -> AsyncIterator[Object]:
        """Yield the changes since the query's ``resourceVersion``; without one, from now on.

        Without one, what exists comes first, as changes of its own.
        """
        seen = int(query.get("resourceVersion") or 0)
        if not seen:
            seen = self._version
            for item in self.list(kind, query)["items"]:
                yield {"type": "ADDED", "object": item}
        while True:
            if self._changes and len(self._changes) == _KEPT and seen < self._changes[0][0] - 1:
                status = Refusal(410, "Expired", "too old resource version").status
                yield {"type": "ERROR", "object": status}
                return
            changed = self._changed
            new = [change for change in self._changes if change[0] > seen]
            for version, one, event in new:
                seen = version
                if one == kind and _selected(event["object"], query):
                    yield event
            if not new:
                await changed.wait()

    def _keep(self, change: str, kind: str, item: Object) -> Object:
        self._version += 1
        item["metadata"] = {**item["metadata"], "resourceVersion": str(self._version)}
        self._items[kind, item["metadata"]["name"]] = item
        self._changes.append((self._version, kind, {"type": change, "object": item}))
        self._changed.set()
        self._changed = asyncio.Event()
        return item


def _merge(item: Object, change: Object) -> None:
    for key, value in change.items():
        if key == "conditions":
            new = {one["type"] for one in value}
            item[key] = [one for one in item.get(key, ()) if one["type"] not in new] + value
        elif isinstance(value, dict):
            _merge(item.setdefault(key, {}), value)
        elif value is None:
            item.pop(key, None)
        else:
            item[key] = value


def _selected(item: Object, query: Mapping[str, str]) -> bool:
    labels = item["metadata"].get("labels") or {}
    for word in filter(None, query.get("labelSelector", "").split(",")):
        key, equals, value = word.partition("=")
        if key.startswith("!"):
            if key[1:] in labels:
                return False
        elif (labels.get(key) != value) if equals else key not in labels:
            return False
    field, _, value = query.get("fieldSelector", "").partition("=")
    return field != "metadata.name" or item["metadata"]["name"] == value
