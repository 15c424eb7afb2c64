"""Requests to the API server: dicts in, dicts out, with retries after temporary errors.

This layer has no notion of a job.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING

from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube import access as access_module
from ciao_kernel.kube import connection_faults, responses
from ciao_kernel.kube.access import Access
from ciao_kernel.kube.answer_cache import AnswerCache
from ciao_kernel.kube.connections import Connections
from ciao_kernel.kube.object_shape import Object as Object
from ciao_kernel.kube.object_shape import part
from ciao_kernel.kube.refused_credentials import RefusedCredentials
from ciao_kernel.kube.responses import refused as refused
from ciao_kernel.kube.server_clock import ServerClock
from ciao_kernel.kube.transport import ANSWER, CONNECT, Transport

if TYPE_CHECKING:
    import aiohttp

_log = logging.getLogger(__name__)

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0
_KNOWN = 300.0
"""Seconds for which :meth:`Client.known` keeps an answer."""


class Client:
    """One API server, with one pool of connections.

    Args:
        access: Server address and credentials.
        patience: Seconds of retries if the server does not answer.
        reload: Reloads the credentials; tests pass their own function.

    Attributes:
        cache: Stable facts of the server, of :meth:`known` and of callers.
        clock: The server's clock, by which the times in all objects and logs are.
    """

    def __init__(
        self,
        access: Access,
        patience: float = 60,
        reload: Callable[[str], Awaitable[Access]] = access_module.load,
    ) -> None:
        self.cache = AnswerCache()
        self.connections = Connections(access, reload, self.cache.clear)
        self.patience = patience
        self.clock = ServerClock()
        self._transport = Transport(self.connections, self.clock)
        self.retry_reason = ""
        """Reason of the last retry; a caller that waits long can show it to the user."""

    @property
    def access(self) -> Access:
        """Return the current credentials."""
        return self.connections.access

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self.connections.close()

    # ------------------------------------------------------------------------- requests

    async def get(self, path: str, **query: str) -> Object:
        """GET an object or a list.

        Raises:
            Refused: The server refused; the error has its status code and message.
            ClusterFault: No server answered.
        """
        return await self._call("GET", path, query)

    async def text(self, path: str, **query: str) -> bytes:
        """GET a body that is not an object, for example a log; without retries.

        Raises:
            Refused, ClusterFault: As :meth:`get`.
        """
        return b"".join([piece async for piece in self.pieces(path, **query)])

    async def pieces(self, path: str, **query: str) -> AsyncGenerator[bytes, None]:
        """Yield what :meth:`text` returns as it comes; no more is read than the caller takes.

        Raises:
            Refused, ClusterFault: As :meth:`get`; a ClusterFault may come after some pieces.
        """
        import aiohttp

        # A large log takes long; the timeout is only for a server that stops sending.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT, sock_read=ANSWER)
        try:
            async with self.request("GET", path, query, timeout=timeout) as answer:
                if answer.status >= 300:
                    raise refused(answer.status, await answer.read(), path)
                async for piece in answer.content.iter_any():
                    yield piece
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            fault, _ = connection_faults.away(error, self.access)
            raise fault from None  # error may quote a password

    async def known(self, path: str, body: Object | None = None) -> Object:
        """GET or POST with a cache of some minutes, for stable facts like the server's version.

        Args:
            path: Path of the request.
            body: Body of a POST, such as a review; None means GET.

        Raises:
            Refused, ClusterFault: As :meth:`get`; errors are not cached.
        """
        key = path + (json.dumps(body) if body else "")
        if (found := self.cache.get(key)) is None:
            found = await (self.post(path, body) if body else self.get(path))
            self.cache.keep(key, found, _KNOWN)
        return found

    async def find(self, path: str, **query: str) -> Object | None:
        """GET an object; None if no object has that name."""
        try:
            return await self.get(path, **query)
        except Refused as error:
            if error.code == 404:
                return None
            raise

    async def create(
        self,
        path: str,
        body: Object,
        *,
        dry_run: bool = False,
        awaits_webhooks: bool = True,
        strict: bool = False,
    ) -> Object:
        """POST an object that has a name.

        If the answer is lost, the object may exist or not, and the POST is repeated. If the
        repeated POST is refused because of the name or a quota, it still counts as done when the
        existing object has our annotations.

        Args:
            path: Path of the collection.
            body: The object.
            dry_run: Let the server check the object only.
            awaits_webhooks: Repeat the POST if the server cannot call a webhook.
            strict: Refuse fields that the server does not know, which it drops otherwise.

        Raises:
            Refused, ClusterFault: As :meth:`get`.
        """
        query = {"dryRun": "All"} if dry_run else {}
        query |= {"fieldValidation": "Strict"} if strict else {}
        lost = False

        def note() -> None:
            nonlocal lost
            lost = True

        try:
            found = await self._call(
                "POST", path, query, body, uncertain=note, awaits_webhooks=awaits_webhooks
            )
        except Refused as error:
            if not lost or dry_run or error.code not in (403, 409):
                raise
            there = await self._created_before(f"{path}/{body['metadata']['name']}", body)
            if there is None:
                raise
            found = there
        if not dry_run and not part(found, "metadata").get("uid"):
            raise ClusterFault(
                f"{path} answered with an object that has no uid.", responses.PROXY_HINT
            )
        return found

    async def _created_before(self, path: str, body: Object) -> Object | None:
        """Return the object if it has our annotations; None if it differs or cannot be read."""
        annotations = body["metadata"].get("annotations", {})
        try:
            found = await self.get(path) if annotations else {}
        except (Refused, ClusterFault):
            return None
        found_annotations = part(part(found, "metadata"), "annotations")
        return found if annotations and annotations.items() <= found_annotations.items() else None

    async def post(self, path: str, body: Object) -> Object:
        """POST a body that creates no object, such as a review."""
        return await self._call("POST", path, {}, body)

    async def patch(self, path: str, body: Object) -> Object:
        """Merge-patch an object."""
        return await self._call("PATCH", path, {}, body, kind="application/merge-patch+json")

    async def delete(self, path: str, *, uid: str = "", policy: str = "Background") -> bool:
        """DELETE an object and its dependents; an object that is already gone is no error.

        Returns:
            False if the object was certainly gone before: somebody else has deleted it. If an
            answer was lost, our own request may have deleted it.

        Args:
            path: Path of the object.
            uid: Delete only the object with this UID, not a later one of the same name.
            policy: ``Background``, ``Foreground`` or ``Orphan``.
        """
        options: Object = {"propagationPolicy": policy}
        if uid:
            options["preconditions"] = {"uid": uid}
        lost = False

        def note() -> None:
            nonlocal lost
            lost = True

        try:
            await self._call("DELETE", path, {}, options, uncertain=note)
        except Refused as error:
            if error.code != 404 and not responses.is_uid_conflict(error):
                raise
            return lost
        return True

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Object | None = None,
        *,
        kind: str = "application/json",
        uncertain: Callable[[], None] = lambda: None,
        awaits_webhooks: bool = True,
    ) -> Object:
        began, patience = time.monotonic(), self.patience
        wait, renewed, moved = _FIRST_WAIT, False, False
        refusals = RefusedCredentials()
        while True:
            again: float | None = None
            shown = self.access
            try:
                answer = await self._transport.answer(method, path, query, body, kind)
            except Exception as error:
                if not connection_faults.is_failure(error):
                    raise
                if connection_faults.is_certificate_rejected(error, shown) and not renewed:
                    renewed = True
                    await self.renew(shown)
                    continue
                uncertain()
                if await self.connections.follow_server(shown) and not moved:
                    moved = True  # once: short-lived credentials are replaced by each request
                    continue
                fault: Exception
                fault, worth = connection_faults.away(error, self.access)
                patience = min(self.patience, worth)
            else:
                if answer.status < 300:
                    return responses.object_of(answer.data, path)
                refusal = refused(answer.status, answer.data, path)
                if answer.status == 401:  # a server that starts refuses valid credentials too
                    self.retry_reason, left = str(refusal), began + patience - time.monotonic()
                    if not await refusals.renew(partial(self.renew, shown), left):
                        raise responses.credentials_rejected(refusal, shown)
                    continue
                if not responses.passes(refusal):
                    if answer.status < 400 or responses.is_page(answer.data):
                        location = answer.headers.get("Location", "")
                        status, data = answer.status, answer.data
                        raise responses.not_an_api_server(status, data, path, location)
                    raise refusal
                if not awaits_webhooks and responses.is_of_webhook(refusal):
                    raise refusal
                if answer.status != 429:
                    uncertain()  # a gateway may answer 504 although the request was done
                again = responses.pause(answer)
                fault = refusal
            self.retry_reason = str(fault)
            _log.info("%s %s is repeated: %s", method, path, fault)
            pause = again or wait * (0.5 + random.random())
            if time.monotonic() + pause - began > patience:
                raise fault
            await asyncio.sleep(pause)
            wait = min(_LONGEST_WAIT, wait * 2)

    # -------------------------------------------------------------------------- streams

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Object | None = None,
        kind: str = "application/json",
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send one request and provide the answer as a stream, without retries; see Transport."""
        return self._transport.stream(method, path, query, body, kind, timeout)

    async def renew(self, refused_one: Access | None = None) -> None:
        """Reload the credentials: a token expired, or a file was replaced.

        Args:
            refused_one: Credentials that the server refused; None means the current ones.

        Raises:
            ClusterFault: They cannot be read, or an attempt failed some seconds ago.
        """
        await self.connections.renew(refused_one or self.access)
