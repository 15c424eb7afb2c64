"""One pod, for somebody who waits for its changes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from ciao_kernel.backends.kubernetes.object_fields import get
from ciao_kernel.kube.client import Object


class LatestPod:
    """The last known state of a pod.

    Args:
        pod: Its state, None if it is gone; :meth:`update` takes newer ones.
    """

    def __init__(self, pod: Object | None) -> None:
        self._pod = pod
        self._waiting: set[asyncio.Event] = set()

    def update(self, pod: Object | None) -> None:
        """Take the pod's state; None if it is gone."""
        if pod is not self._pod:
            self._pod = pod
            for event in self._waiting:
                event.set()

    def pod(self) -> Object | None:
        """Return the last known state; None if the pod is gone."""
        return self._pod

    @property
    def uid(self) -> str:
        """Return the pod's uid; "" if it is gone."""
        return str(get(self._pod, "metadata", "uid") or "")

    async def changed(self, within: float) -> None:
        """Wait for the next state, at most the given seconds."""
        await _next_change(self._waiting, within)


class ListedPod:
    """One pod of a watched list.

    Args:
        pod: Returns its state; None if it is gone.
        waiting: Events that whoever takes the list's changes sets at each of the pod's.
    """

    def __init__(self, pod: Callable[[], Object | None], waiting: set[asyncio.Event]) -> None:
        self.pod, self._waiting = pod, waiting

    async def changed(self, within: float) -> None:
        """Wait for the next state, at most the given seconds."""
        await _next_change(self._waiting, within)


async def _next_change(waiting: set[asyncio.Event], within: float) -> None:
    """Wait for the next state of a pod.

    Args:
        waiting: Events that whoever takes the states sets at each of them.
        within: Maximum number of seconds.
    """
    event = asyncio.Event()
    waiting.add(event)
    try:
        # Not wait_for: before Python 3.12 it loses a cancellation that comes with the event.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await event.wait()
    finally:
        waiting.discard(event)
