"""Requests to the API server: dicts in, dicts out, patient with what passes by itself.

Above the package ``kubernetes`` (its configuration, its connections) and below everything that
knows what a job is. The package's typed API is not used: its import takes seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube import access as access_module
from ciao_kernel.kube.access import Access

if TYPE_CHECKING:
    import aiohttp

Object = dict[str, Any]
"""A Kubernetes object, as JSON has it."""

_CONNECT = 5.0
_ANSWER = 30.0
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0
# What a webhook that is not up yet makes the API server answer: the operator's is away for some
# seconds after each start.
_PASSING_WORDS = ("failed calling webhook", "failed to call webhook", "etcdserver:")
_PASSING = frozenset({429, 502, 503, 504})


class Client:
    """One API server, with one pool of connections.

    Args:
        access: Where it is and who asks.
        patience: Seconds for which a server that does not answer is asked again.
        reload: Reads the credentials anew; a test passes its own.
    """

    def __init__(
        self,
        access: Access,
        patience: float = 60,
        reload: Callable[[str], Awaitable[Access]] = access_module.load,
    ) -> None:
        self.access = access
        self.patience = patience
        self._reload = reload
        self._session: aiohttp.ClientSession | None = None
        self._renewing = asyncio.Lock()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session:
            await session.close()

    # ------------------------------------------------------------------------- requests

    async def get(self, path: str, **query: str) -> Object:
        """GET an object or a list.

        Raises:
            Refused: The server's answer, with its code and words.
            ClusterFault: No server answered.
        """
        return await self._call("GET", path, query)

    async def text(self, path: str, **query: str) -> bytes:
        """GET what is no object, such as a log; asked for once.

        Raises:
            Refused, ClusterFault: As :meth:`get`.
        """
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=_ANSWER, sock_connect=_CONNECT)
        try:
            async with self.request("GET", path, query, timeout=timeout) as answer:
                data = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._away(error) from error
        if answer.status >= 300:
            raise refused(answer.status, data.decode(errors="replace"), path)
        return data

    async def find(self, path: str, **query: str) -> Object | None:
        """GET an object, or None if there is none of that name."""
        try:
            return await self.get(path, **query)
        except Refused as error:
            if error.code == 404:
                return None
            raise

    async def create(self, path: str, body: Object, *, dry_run: bool = False) -> Object:
        """POST an object that has a name.

        An answer that gets lost leaves open whether the object exists. It is then asked for
        again, and "exists already" counts as done if the object there has our own annotations.
        """
        query = {"dryRun": "All"} if dry_run else {}
        lost = False

        def note() -> None:
            nonlocal lost
            lost = True

        try:
            return await self._call("POST", path, query, body, uncertain=note)
        except Refused as error:
            if error.reason != "AlreadyExists" or not lost:
                raise
            found = await self.get(f"{path}/{body['metadata']['name']}")
            ours = body["metadata"].get("annotations", {})
            theirs = found["metadata"].get("annotations") or {}
            if not ours or any(theirs.get(key) != value for key, value in ours.items()):
                raise
            return found

    async def post(self, path: str, body: Object) -> Object:
        """POST what leaves nothing behind, such as a review."""
        return await self._call("POST", path, {}, body)

    async def patch(self, path: str, body: Object) -> Object:
        """Merge-patch an object."""
        return await self._call("PATCH", path, {}, body, kind="application/merge-patch+json")

    async def delete(self, path: str, *, uid: str = "", policy: str = "Background") -> None:
        """DELETE an object and what it owns; one that is gone already is no error.

        Args:
            path: Of the object.
            uid: Delete it only if it is this very one, not a later one of the same name.
            policy: ``Background``, ``Foreground`` or ``Orphan``.
        """
        options: Object = {"propagationPolicy": policy}
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            await self._call("DELETE", path, {}, options)
        except Refused as error:
            if error.code not in (404, 409):
                raise

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Object | None = None,
        *,
        kind: str = "application/json",
        uncertain: Callable[[], None] = lambda: None,
    ) -> Object:
        import aiohttp

        deadline = time.monotonic() + self.patience
        wait, renewed = _FIRST_WAIT, False
        while True:
            timeout = aiohttp.ClientTimeout(total=_ANSWER, sock_connect=_CONNECT)
            again: float | None = None
            try:
                async with self.request(method, path, query, body, kind, timeout) as answer:
                    text = await answer.text(errors="replace")
                    if answer.status < 300:
                        return _object(text, path)
                    refusal = refused(answer.status, text, path)
                    if answer.status == 401 and not renewed:
                        renewed = True
                        await self.renew()
                        continue
                    if not _passes(refusal):
                        raise refusal
                    if answer.status != 429:
                        uncertain()  # a gateway may say 504 of what was done
                    again = _retry_after(answer)
                    fault: Exception = refusal
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                uncertain()
                fault = self._away(error)
            if time.monotonic() + wait > deadline:
                raise fault
            await asyncio.sleep(again or wait * (0.5 + random.random()))
            wait = min(_LONGEST_WAIT, wait * 2)

    # -------------------------------------------------------------------------- streams

    @contextlib.asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Object | None = None,
        kind: str = "application/json",
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send one request and hand out the answer as it comes: for watches and logs.

        Raises:
            aiohttp.ClientError, TimeoutError, OSError: The connection failed; not tried again.
        """
        configuration = self.access.configuration
        headers = {"Accept": "application/json"}
        auth: Mapping[str, Any] = await configuration.auth_settings()
        # A token file may end in a line feed, which no header can hold.
        headers |= {one["key"]: str(one["value"]).strip() for one in auth.values()}
        if body is not None:
            headers["Content-Type"] = kind
        options: dict[str, Any] = {}
        if configuration.tls_server_name:
            options["server_hostname"] = configuration.tls_server_name
        if configuration.proxy:
            options["proxy"] = configuration.proxy
        async with self._connections().request(
            method,
            configuration.host + path,
            params=query,
            data=None if body is None else json.dumps(body),
            headers=headers,
            timeout=timeout,
            **options,
        ) as answer:
            yield answer

    def _connections(self) -> aiohttp.ClientSession:
        if self._session is None:
            from kubernetes.aio.client.rest import RESTClientObject

            self._session = RESTClientObject(self.access.configuration)._create_pool_manager()
        return self._session

    async def renew(self, refused_one: Access | None = None) -> None:
        """Read the credentials again: a token expired, or a file was replaced.

        Many streams are refused at the same moment. The first reads, the others wait for it.

        Args:
            refused_one: What the server refused; None means what is used now.
        """
        refused_one = refused_one or self.access
        async with self._renewing:
            if self.access is refused_one:
                self.access = await self._reload(self.access.context)
                await self.close()

    def _away(self, error: Exception) -> ClusterFault:
        words = str(error) or type(error).__name__
        return ClusterFault(
            f"the cluster of {self.access.source} does not answer "
            f"({self.access.configuration.host}): {words}",
            "Is it up, and is the network? To run the cell on this machine: %backend=local.",
        )


def refused(code: int, text: str, path: str) -> Refused:
    """Make an error of an answer that is not 2xx; its text is a Status object, or HTML."""
    message, reason = "", ""
    with contextlib.suppress(ValueError):
        status = json.loads(text)
        if isinstance(status, dict):
            message, reason = str(status.get("message") or ""), str(status.get("reason") or "")
    if not message:
        first = " ".join(text.split())[:200]
        message = f"{path}: {first}" if first else f"{path}: no reason given"
    return Refused(message, code=code, reason=reason)


def _passes(error: Refused) -> bool:
    return (
        error.code in _PASSING
        or error.reason == "Conflict"  # two wrote at the same time, as to a quota's count
        or (error.code == 500 and any(words in error.message for words in _PASSING_WORDS))
    )


def _retry_after(answer: aiohttp.ClientResponse) -> float | None:
    text = answer.headers.get("Retry-After", "")
    return min(float(text), 10) if text.isdigit() else None


def _object(text: str, path: str) -> Object:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        first = " ".join(text.split())[:200]
        raise ClusterFault(
            f"{path} answered with something that is no Kubernetes object: {first!r}",
            "Is a proxy or a login page between here and the API server?",
        )
    return value
