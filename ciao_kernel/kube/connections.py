"""The connections to one API server, and the credentials that they are opened with."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube.access import Access

if TYPE_CHECKING:
    import aiohttp

_RETIRED = 60.0
"""Seconds that connections are kept whose credentials are replaced; streams may go on on them."""
_FAILED = 5.0
"""Seconds for which a failure to renew is everybody's: a plug-in may open a browser each time."""


class Connections:
    """One pool, made anew with the credentials.

    Args:
        access: Where the server is and who asks.
        reload: Reads the credentials of a context anew.
        renewed: Called when they were.

    Attributes:
        access: What is used now.
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
        self._retired: list[tuple[float, aiohttp.ClientSession]] = []
        self._opening, self._renewing = asyncio.Lock(), asyncio.Lock()
        self._failed: tuple[float, Access, ClusterFault] | None = None
        self._tried: Access | None = None
        """What was to be renewed before its end."""

    async def close(self) -> None:
        """Close all connections."""
        pools = [one for _, one in self._retired]
        if self._pool:
            pools.append(self._pool)
        self._pool, self._retired = None, []
        for pool in pools:
            await pool.close()

    async def pool(self) -> aiohttp.ClientSession:
        """Return the pool, with credentials that are not about to end.

        Raises:
            ClusterFault: The certificates cannot be used.
        """
        await self._ahead()
        async with self._opening:
            if self._pool is None:
                self._pool = await self.open()
            return self._pool

    async def open(self) -> aiohttp.ClientSession:
        """Make a pool of one's own; whoever asks for it closes it.

        Credentials that name files that are gone are read anew, once.

        Raises:
            ClusterFault: The certificates cannot be used.
        """
        await self._ahead()
        shown = self.access
        try:
            return shown.connections()
        except ClusterFault:
            with contextlib.suppress(ClusterFault):  # the first fault says more
                await self.renew(shown)
            return self.access.connections()

    async def renew(self, refused: Access) -> None:
        """Read the credentials again: a token expired, or a file was replaced.

        Many requests are refused at the same moment. The first reads, the others wait for it and
        hear what it heard: what failed is not tried again at once.

        Args:
            refused: What the server refused; if it is not used any more, nothing is done.

        Raises:
            ClusterFault: They cannot be read.
        """
        async with self._renewing:
            if self.access is not refused:
                return
            if self._failed and self._failed[1] is refused and time.monotonic() < self._failed[0]:
                fault = self._failed[2]
                raise ClusterFault(fault.message, fault.hint)
            try:
                self.access = await self._reload(refused.context)
            except ClusterFault as fault:
                self._failed = time.monotonic() + _FAILED, refused, fault
                raise
            self._failed = None
            self._renewed()
            await self._retire()

    async def _ahead(self) -> None:
        """Renew what is about to end, before the server refuses it.

        It is tried once, and only one request waits for it. Where it fails, what is there may do
        for a while, and who is refused then is told.
        """
        shown = self.access
        if shown is not self._tried and time.time() >= shown.due:
            self._tried = shown
            with contextlib.suppress(ClusterFault):
                await self.renew(shown)

    async def _retire(self) -> None:
        """Open new connections from now on; those that streams still use are closed later."""
        now = time.monotonic()
        if self._pool:
            self._retired.append((now + _RETIRED, self._pool))
            self._pool = None
        over = [pool for until, pool in self._retired if until <= now]
        self._retired = [(until, pool) for until, pool in self._retired if until > now]
        for pool in over:
            await pool.close()
