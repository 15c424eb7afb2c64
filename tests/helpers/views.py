"""A view of one pod that asks for it again and again: enough for tests of one log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube.client import Client, Object

_EVERY = 0.15


class PolledPod:
    """What a pod looked like when it was last asked for."""

    def __init__(self, client: Client, namespace: str, pod: str) -> None:
        self._client = client
        self._path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        self._pod: Object | None = None
        self._event = asyncio.Event()

    def pod(self) -> Object | None:
        return self._pod

    async def changed(self, within: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._event.wait()

    async def _poll(self) -> None:
        while True:
            with contextlib.suppress(ClusterFault, Refused):
                found = await self._client.find(self._path)
                if found != self._pod:
                    self._pod = found
                    self._event.set()
                    self._event = asyncio.Event()
            await asyncio.sleep(_EVERY)


@contextlib.asynccontextmanager
async def polled(client: Client, namespace: str, pod: str) -> AsyncIterator[PolledPod]:
    """Hand out a view of a pod that exists, which keeps itself up to date meanwhile."""
    view = PolledPod(client, namespace, pod)
    task = asyncio.create_task(view._poll())
    try:
        while view.pod() is None:
            await view.changed(1)
        yield view
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
