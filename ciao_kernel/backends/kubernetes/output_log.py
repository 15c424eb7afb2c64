"""Reads the files of ``%output`` out of the log of a pod's sidecar (``by:log``).

It needs no right but that for logs, and works as long as the pod exists.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from ciao_kernel.backends.kubernetes import output_sidecar
from ciao_kernel.delivery.log_lines import LogReader
from ciao_kernel.errors import BackendError, ClusterFault
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.kube.logs import ContainerLog, Gap
from ciao_kernel.model.queries import Streams


class OutputLog:
    """The log of the sidecar of one pod; :meth:`execute` takes the place of a command in it.

    Args:
        client: The API server.
        namespace: Namespace of the pod.
        pod: Its last known state; :meth:`update` takes newer ones.
    """

    def __init__(self, client: Client, namespace: str, pod: Object) -> None:
        self._client, self._namespace = client, namespace
        self._pod: Object | None = pod
        self._name = str(pod["metadata"]["name"])
        self._waiting: set[asyncio.Event] = set()

    def update(self, pod: Object | None) -> None:
        """Take the pod's state; None if it is gone."""
        if pod is not self._pod:
            self._pod = pod
            for event in self._waiting:
                event.set()

    def pod(self) -> Object | None:
        """Return the latest state, for the reader of the log."""
        return self._pod

    async def changed(self, within: float) -> None:
        """Wait for the next state, at most the given seconds."""
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            # Not wait_for: before Python 3.12 it loses a cancellation that comes with the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await event.wait()
        finally:
            self._waiting.discard(event)

    async def execute(self, command: Sequence[str], streams: Streams) -> int:
        """Pass on what the sidecar has written; the command and the input have no meaning here.

        Raises:
            BackendError: The log does not have all of it.
        """
        reader, gap = LogReader(), ""
        log = ContainerLog(
            self._client, self._namespace, self._name, output_sidecar.LOG_NAME, self, pause=0.0
        )
        async with contextlib.aclosing(log.read()) as pieces:
            async for piece in pieces:
                if isinstance(piece, Gap):
                    gap = f" ({piece.text.rstrip('.')})"
                else:
                    reader.take(piece.data)
                if reader.whole:
                    break
        if not reader.whole:
            raise BackendError(f"{reader.fault()}{gap}.")
        try:
            streams.out(reader.data)
        except ClusterFault as error:  # a log is the same when it is read again
            raise BackendError(error.message, error.hint) from error
        return 0
