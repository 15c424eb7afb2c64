"""Keep an up-to-date copy of a list of objects from the API server.

List once, then watch. After a broken connection, resume the watch at the last resource version;
list again if the server no longer has that version (410 Gone). The copy has the current state, not
the history: fast changes of an object may be missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube import connection_faults, responses
from ciao_kernel.kube.access import Access
from ciao_kernel.kube.client import Client, Object, refused
from ciao_kernel.kube.object_shape import normalize
from ciao_kernel.kube.refused_credentials import RefusedCredentials
from ciao_kernel.kube.responses import DENIED as _DENIED
from ciao_kernel.kube.server import Server

_log = logging.getLogger(__name__)

_TURN = 240
"""Seconds after which a watch is renewed: proxies cut older connections."""
_SILENCE = 90
"""Seconds without a byte after which the connection counts as dead; bookmarks come each minute."""
_PAGE = 500
"""Maximum number of objects in one answer: a thousand pods are ten megabytes."""
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 5.0


class WatchedList:
    """A list that keeps itself up to date while :meth:`run` runs.

    Args:
        client: The API server.
        path: Path of the list, such as ``/api/v1/namespaces/a/pods``.
        query: Selectors.
        changed: Set at each change; several lists may share it.
        trim: Removes unused parts of an object: a thousand whole pods are 80 MB.
        accepted: The server has accepted these credentials before.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        query: Mapping[str, str],
        changed: asyncio.Event,
        trim: Callable[[Object], Object] = lambda item: item,
        *,
        accepted: bool = False,
    ) -> None:
        self.items: dict[str, Object] = {}
        """Current objects by uid."""
        self.listed = False
        """The list was read at least once."""
        self.away_since: float | None = None
        """Time (time.monotonic) at which the server stopped answering; None while it answers."""
        self.fault = ""
        """Reason why the server does not answer, without secrets; "" while it answers."""
        self.refusal: Refused | None = None
        """The error for credentials that the server refuses now; None if it does not."""
        self._client = client
        self._path = path
        self._query = dict(query)
        self._changed = changed
        self._trim = trim
        self._accepted = accepted
        self._version = ""
        self._server: Server | None = None
        """The server that the list is of."""
        self._touched: dict[str, Object] = {}
        self._refusals = RefusedCredentials()

    def take(self) -> dict[str, Object]:
        """Return the latest state of all objects that changed since the last call, by uid.

        New and deleted objects are included.
        """
        touched, self._touched = self._touched, {}
        return touched

    async def run(self) -> None:
        """Watch until cancelled.

        Credentials that were accepted once are renewed until they are accepted again: the user may
        sign in, and the server's authentication may be restarting. How long that is worth the wait
        is the caller's decision, by :attr:`away_since` and :attr:`refusal`.

        Raises:
            Refused: The server refused, and a retry would not help. With code 401, it has never
                accepted the credentials, nor renewed ones.
        """
        import aiohttp

        wait, denied = _FIRST_WAIT, 0.0
        while True:
            began, shown = time.monotonic(), self._client.access
            try:
                if not self._version or self._server != shown.server:
                    # Another server may be another cluster, and does not know the versions of this
                    # one: it would wait for them without a word.
                    await self._list()
                    self._server = shown.server
                came = await self._watch()
                denied = 0.0
                if came:
                    wait = _FIRST_WAIT
                    continue
            except Refused as error:
                if error.code == 410:
                    self._version = ""
                    await asyncio.sleep(wait)
                    wait = min(_LONGEST_WAIT, wait * 2)
                    continue
                if error.code == 401:
                    useless = self._refusals.add() and not self._accepted
                    refusal = self.refusal = self._rejected(error, shown)
                    if useless:
                        raise refusal from None
                    await self._renew(error, shown)
                    self.refusal = self._rejected(error, shown)  # with why the renewal failed
                    wait = max(wait, self._refusals.pause)
                elif 400 <= error.code < 500 and error.code != 429:
                    # A server that has just started may not have loaded roles and kinds yet.
                    denied = denied or time.monotonic()
                    if not self.listed or time.monotonic() - denied > _DENIED:
                        raise
                self._away(error)
            except (aiohttp.ClientError, TimeoutError, OSError, ClusterFault) as error:
                if connection_faults.is_certificate_rejected(error, shown) or shown.changed():
                    await self._renew(error, shown)
                self._away(error)
            except ValueError as error:  # a watch from this version would return the same error
                self._away(error)
                self._version = ""
            except RecursionError as error:  # an answer of nested brackets only
                self._away(error)
                self._version = ""
            if self.refusal is None and time.monotonic() - began > 5:  # a renewal may be long
                wait = _FIRST_WAIT
            await asyncio.sleep(wait * (0.5 + random.random()))
            wait = min(_LONGEST_WAIT, wait * 2)

    async def _list(self) -> None:
        """Read the list page by page; an expired page raises 410, like a watch."""
        items: dict[str, Object] = {}
        query = {**self._query, "limit": str(_PAGE)}
        while True:
            found = await self._page(query)
            for item in found["items"]:
                if uid := _uid(item):
                    items[uid] = self._trim(item)
            meta = found.get("metadata")
            meta = meta if isinstance(meta, dict) else {}
            if not (more := meta.get("continue")) or more == query.get("continue"):
                break
            query["continue"] = str(more)
        old, self.items = self.items, items
        for uid, item in (old | items).items():
            if old.get(uid) != items.get(uid):
                self._touched[uid] = item
        self._version = str(meta.get("resourceVersion") or "")
        self.listed = True
        self._here()
        self._changed.set()

    async def _page(self, query: Mapping[str, str]) -> Object:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=30, sock_connect=5)
        async with self._client.request("GET", self._path, query, timeout=timeout) as answer:
            data = await responses.body(answer)
            if answer.status != 200:
                raise refused(answer.status, data, self._path)
        found = responses.object_of(data, self._path)
        if not isinstance(found.get("items"), list):
            raise responses.InvalidResponse(f"{self._path} did not return a list")
        return found

    async def _watch(self) -> bool:
        """Watch until the connection ends; return whether any event came."""
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
                raise refused(answer.status, await responses.body(answer), self._path)
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
        if kind == "BOOKMARK" or not uid:
            return
        item = self._touched[uid] = self._trim(item)
        if kind == "DELETED":
            self.items.pop(uid, None)
        else:
            self.items[uid] = item

    async def _renew(self, error: Exception, refused: Access) -> None:
        """Reload the credentials. This may take a minute, so the fault is reported first."""
        self._away(error)
        self._refusals.fault = None
        try:
            await self._client.renew(refused)
        except ClusterFault as fault:  # there is a retry
            _log.info("renewing credentials failed: %s", fault)
            self._refusals.fault = fault

    def _rejected(self, error: Refused, shown: Access) -> Refused:
        return responses.credentials_rejected(error, shown, self._refusals.fault)

    def _away(self, error: Exception) -> None:
        signed_out = isinstance(error, Refused) and error.code == 401
        if not signed_out:
            self.refusal = None
        self.fault = (
            f"{'credentials refused: ' if signed_out else ''}{connection_faults.why(error)}"
        )
        if self.away_since is None:
            self.away_since = time.monotonic()
            self._changed.set()

    def _here(self) -> None:
        self._refusals.reset()
        self._accepted, self.refusal = True, None
        if self.away_since is not None:
            self.away_since, self.fault = None, ""
            self._changed.set()


def _shape(event: Any) -> tuple[str, Object]:
    if not isinstance(event, dict) or not isinstance(event.get("object"), dict):
        raise responses.InvalidResponse("a watch returned something that is not an event")
    return str(event.get("type")), normalize(event["object"])


def _uid(item: Any) -> str:
    with contextlib.suppress(AttributeError, TypeError):
        return str(item["metadata"].get("uid") or "")
    return ""
