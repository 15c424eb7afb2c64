"""When to give up credentials that the API server refuses again and again (401)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from ciao_kernel.errors import ClusterFault

_TRIES, _SECONDS = 4, 6.0
"""Both must be reached. An API server that starts may refuse valid tokens for some seconds, so a
number alone is not enough; a sign-in program may take a minute, so seconds alone are not enough."""
_PAUSE, _DOUBLED = 1.0, 4
"""Seconds between later renewals, and how often they double after as many tries as above."""


class RefusedCredentials:
    """The refusals since the last accepted request; a watch renews credentials after each of them.

    Attributes:
        fault: Why the last renewal failed; None if it did not.
    """

    def __init__(self) -> None:
        self.fault: ClusterFault | None = None
        self._count, self._since = 0, 0.0

    def reset(self) -> None:
        """Forget the refusals: a request was accepted."""
        self._count, self.fault = 0, None

    def add(self) -> bool:
        """Note a refusal, and return whether further tries would be useless."""
        now = time.monotonic()
        if not self._count:
            self._since = now
        self._count += 1
        return self._count >= _TRIES and now - self._since >= _SECONDS

    @property
    def pause(self) -> float:
        """Return the least number of seconds before the next try.

        New credentials are tried at once. Later renewals wait, longer after many of them: each may
        run the user's program.
        """
        doubled = min(_DOUBLED, max(0, self._count - _TRIES - 1))
        return _PAUSE * 2**doubled if self._count > 1 or self.fault else 0.0

    async def renew(self, renew: Callable[[], Awaitable[None]], left: float) -> bool:
        """Renew the credentials of one request once, then wait; called by :class:`.Client`.

        A further renewal would run the user's program again, which may open a page in a browser
        each time, and bring no better ones to a server that is not ready.

        Args:
            renew: Reloads the credentials.
            left: Seconds in which the request may still be repeated. The renewal needs none.

        Returns:
            False if the credentials are given up, and a further try would be useless.

        Raises:
            ClusterFault: The renewal failed.
        """
        useless, pause = self.add(), self.pause * (self._count - 1)
        if useless or pause > max(0.0, left):
            return False
        await (renew() if self._count == 1 else asyncio.sleep(pause))
        return True
