"""Keeps a copy of a list of objects that is as new as the API server can make it.

List once, then watch; after a broken connection watch on from where it broke, and list again
where the server no longer knows that place (410 Gone). What is asked for is the present state,
never the history: a fast object may go through states that nobody sees.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import Mapping
from typing import Any

from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube.client import Client, Object, refused

_TURN = 240
"""Seconds after which a watch is asked for anew: proxies cut what is older."""
_SILENCE = 90
"""Seconds without a byte: bookmarks come each minute, so nobody is there any more."""
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 5.0


class Watched:
    """A list that keeps itself up to date while :meth:`run` runs.

    Args:
        client: The API server.
        path: Of the list, such as ``/api/v1/namespaces/a/pods``.
        query: Selectors.
        changed: Set at each change; several lists may share one.
    """

    def __init__(
        self, client: Client, path: str, query: Mapping[str, str], changed: asyncio.Event
    ) -> None:
        self.items: dict[str, Object] = {}
        """By uid."""
        self.listed = False
        """Whether the list was read at least once."""
        self.away_since: float | None = None
        """When the server stopped answering (time.monotonic), None while it answers."""
        self.fault: Exception | None = None
        """Why it does not answer."""
        self._client = client
        self._path = path
        self._query = dict(query)
        self._changed = changed
        self._version = ""

    async def run(self) -> None:
        """Watch until cancelled.

        Raises:
            Refused: The server says no, which asking again would not change.
        """
        import aiohttp

        wait = _FIRST_WAIT
        while True:
            began = time.monotonic()
            try:
                if not self._version:
                    await self._list()
                if await self._watch():
                    wait = _FIRST_WAIT
                    continue
            except Refused as error:
                if error.code == 410:
                    self._version = ""
                    await asyncio.sleep(wait)
                    continue
                if error.code == 401:
                    with contextlib.suppress(ClusterFault):  # not now; it is tried again
                        await self._client.renew()
                elif 400 <= error.code < 500 and error.code != 429:
                    raise
                self._away(error)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError, ClusterFault) as error:
                self._away(error)
            if time.monotonic() - began > 5:
                wait = _FIRST_WAIT
            await asyncio.sleep(wait * (0.5 + random.random()))
            wait = min(_LONGEST_WAIT, wait * 2)

    async def _list(self) -> None:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=30, sock_connect=5)
        async with self._client.request("GET", self._path, self._query, timeout=timeout) as answer:
            text = await answer.text(errors="replace")
            if answer.status != 200:
                raise refused(answer.status, text, self._path)
        found = json.loads(text)
        items = found.get("items") if isinstance(found, dict) else None
        if not isinstance(items, list):
            raise ValueError(f"{self._path} answered with no list")
        self.items = {uid: item for item in items if (uid := _uid(item))}
        self._version = str((found.get("metadata") or {}).get("resourceVersion") or "")
        self.listed = True
        self._here()
        self._changed.set()

    async def _watch(self) -> bool:
        """Watch until the connection ends; tell whether anything came."""
        import aiohttp

        query = {
            **self._query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(_TURN),
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=_SILENCE)
        async with self._client.request("GET", self._path, query, timeout=timeout) as answer:
            if answer.status != 200:
                raise refused(answer.status, await answer.text(errors="replace"), self._path)
            self._here()
            rest, came = b"", False
            async for piece in answer.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
                if lines:
                    came = True
                    self._changed.set()
            return came

    def _take(self, event: Any) -> None:
        kind, item = _shape(event)
        if kind == "ERROR":
            code = item.get("code")
            code = code if isinstance(code, int) else 500
            raise Refused(str(item.get("message", "")), code=code)
        meta = item.get("metadata")
        version = meta.get("resourceVersion") if isinstance(meta, dict) else ""
        if version:
            self._version = str(version)
        uid = _uid(item)
        if kind == "DELETED":
            self.items.pop(uid, None)
        elif kind != "BOOKMARK" and uid:
            self.items[uid] = item

    def _away(self, error: Exception) -> None:
        self.fault = error
        if self.away_since is None:
            self.away_since = time.monotonic()
            self._changed.set()

    def _here(self) -> None:
        if self.away_since is not None:
            self.away_since = self.fault = None
            self._changed.set()


def _shape(event: Any) -> tuple[str, Object]:
    if not isinstance(event, dict) or not isinstance(event.get("object"), dict):
        raise ValueError("a watch answered with something that is no event")
    return str(event.get("type")), event["object"]


def _uid(item: Any) -> str:
    with contextlib.suppress(AttributeError, TypeError):
        return str(item["metadata"].get("uid") or "")
    return ""
