"""Connections to one API server, and their credentials."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ciao_kernel import log
from ciao_kernel.background import SharedWork
from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube.access import Access

if TYPE_CHECKING:
    import aiohttp

    from ciao_kernel.kube.light_requests import LightRequests

_log = logging.getLogger(__name__)

_RETIRED = 60.0
"""Seconds for which connections with old credentials stay open: streams may still use them."""
_FAILED = 5.0
"""Seconds without a new attempt after a failed renewal: a plug-in may open a browser each time."""


_RENEWAL = "renewing credentials"

_Made = TypeVar("_Made")


class Connections:
    """One connection pool, replaced when the credentials are renewed.

    Args:
        access: Server address and credentials.
        reload: Reloads the credentials of a context.
        renewed: Called after a renewal.

    Attributes:
        access: The current server address and credentials.
    """

    def __init__(
        self,
        access: Access,
        reload: Callable[[str], Awaitable[Access]],
        renewed: Callable[[], None],
    ) -> None:
        self.access = access
        self._reload = reload
        self._renewed = renewed
        self._pool: aiohttp.ClientSession | None = None
        self._light: LightRequests | None = None
        self._opened = False
        """The pool was opened, so GETs need no other connections."""
        self._retired: list[tuple[float, aiohttp.ClientSession]] = []
        self._opening = asyncio.Lock()
        self._renewing: SharedWork[None] = SharedWork()
        self._failed: tuple[float, Access, ClusterFault] | None = None
        self._tried: Access | None = None
        """Credentials whose renewal before their expiry was already tried."""

    async def close(self) -> None:
        """End a renewal that is under way, with its sign-in program, and close all connections."""
        await self._renewing.close()
        pools = [one for _, one in self._retired]
        if self._pool:
            pools.append(self._pool)
        self._pool, self._retired = None, []
        self._drop_light()
        for pool in pools:
            await pool.close()

    async def pool(self) -> aiohttp.ClientSession:
        """Return the pool; its credentials are renewed first if they expire soon.

        Raises:
            ClusterFault: The certificates cannot be used.
        """
        await self._renew_before_expiry()
        async with self._opening:
            if self._pool is None:
                self._pool = await self.open()
                self._opened = True
                self._drop_light()
            return self._pool

    async def light(self) -> LightRequests | None:
        """Return the way for GETs as long as nothing needed the pool; else None.

        Raises:
            ClusterFault: The certificates cannot be used.
        """
        if self._opened:
            return None
        from ciao_kernel.kube.light_requests import LightRequests

        await self._renew_before_expiry()
        if not LightRequests.suits(self.access):
            return None
        async with self._opening:
            if self._light is None or self._light.access is not self.access:
                self._drop_light()
                self._light = await self._usable(LightRequests)
            return self._light

    def _drop_light(self) -> None:
        if self._light is not None:
            self._light.close()
            self._light = None

    async def open(self) -> aiohttp.ClientSession:
        """Create a separate pool; the caller closes it.

        If the certificates cannot be used, the credentials are reloaded once.

        Raises:
            ClusterFault: The certificates cannot be used.
        """
        await self._renew_before_expiry()
        return await self._usable(Access.connections)

    async def _usable(self, make: Callable[[Access], _Made]) -> _Made:
        """Make connections; if the certificates cannot be used, reload the credentials once."""
        shown = self.access
        try:
            return make(shown)
        except ClusterFault:
            with log.ignored(_log, _RENEWAL, ClusterFault):  # the next line raises a clearer one
                await self.renew(shown)
            return make(self.access)

    async def renew(self, refused: Access) -> None:
        """Reload the credentials: a token expired, or a file was replaced.

        Many requests may be refused at the same moment. The first one starts the reload, and all
        share its result. A caller with little time leaves it running for the next one: a sign-in
        program that was ended with its caller would begin anew, with another page in a browser, for
        each of them. A failure is not retried at once.

        Args:
            refused: Credentials that the server refused; nothing is done if they were already
                replaced.

        Raises:
            ClusterFault: They cannot be read.
        """
        while self.access is refused:  # the renewal before may be about to end
            if self._failed and self._failed[1] is refused and time.monotonic() < self._failed[0]:
                fault = self._failed[2]
                raise ClusterFault(fault.message, fault.hint)
            await self._renewing.run(lambda: self._replace(refused))

    async def _replace(self, refused: Access) -> None:
        try:
            self.access = _of_the_same(refused, await self._reload(refused.context))
        except ClusterFault as fault:
            self._failed = time.monotonic() + _FAILED, refused, fault
            raise
        self._failed = None
        self._renewed()
        await self._retire()

    async def follow_server(self, shown: Access) -> bool:
        """Read the kubeconfig and the authority again if their files have changed.

        The server may be at another address now, or have a certificate of a new authority. A file
        that cannot be read is left alone: somebody may be writing it.

        Args:
            shown: The access of a request that had no answer.

        Returns:
            Whether there is another access, so that the request can be sent again at once.
        """
        if self.access is shown and shown.changed():
            with log.ignored(_log, "reading the kubeconfig again", ClusterFault):
                await self.renew(shown)
        return self.access is not shown

    async def _renew_before_expiry(self) -> None:
        """Renew credentials that expire soon, before the server refuses them.

        There is one attempt, and only one request waits for it, as long as it has time. If it
        fails, the old credentials may still work for a while; a later refusal is reported.
        """
        shown = self.access
        if shown is not self._tried and time.time() >= shown.identity.due:
            self._tried = shown
            with log.ignored(_log, _RENEWAL, ClusterFault):
                await self.renew(shown)

    async def _retire(self) -> None:
        """Retire the pool: new requests get a new one, and the old one is closed later.

        Streams may still use the old connections.
        """
        now = time.monotonic()
        if self._pool:
            self._retired.append((now + _RETIRED, self._pool))
            self._pool = None
        over = [pool for until, pool in self._retired if until <= now]
        self._retired = [(until, pool) for until, pool in self._retired if until > now]
        for pool in over:
            await pool.close()


def _of_the_same(before: Access, found: Access) -> Access:
    """Return reloaded credentials for what the old ones are for.

    The namespace stays, so that cells do not move to another one whenever a token happens to expire
    after somebody changed the context.

    Raises:
        ClusterFault: They may be for another cluster: the pod has had no kubeconfig before.
    """
    if found.context != before.context:
        raise ClusterFault(
            f"the API server no longer accepts the {before.source}, and there is a kubeconfig now.",
            f"Restart the kernel to use {found.source}.",
        )
    return replace(found, namespace=before.namespace)
