"""The inputs of warm replicas: one connection to each pod, kept open for the next command."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.rights import Right
from ciao_kernel.errors import BackendError
from ciao_kernel.kube.attach import ContainerInput
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job, Manifest, Replica

RIGHTS = tuple(Right(verb, "pods", subresource="attach") for verb in ("get", "create"))
"""Servers up to Kubernetes 1.34 ask for ``get``, later ones for ``create`` too."""

Pods = Callable[[], Awaitable[Mapping[Replica, Manifest]]]


class WarmInputs:
    """The open connections of one process."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, Replica], ContainerInput] = {}
        self._turn = asyncio.Lock()

    async def send(
        self, client: Client, job: Job, replica: Replica, data: bytes, pods: Pods
    ) -> None:
        """Write to the input of a replica.

        Raises:
            BackendError: Its pod is gone, or takes no input.
        """
        key = (job.uid or job.name, replica)
        async with self._turn:
            if key not in self._open:
                for one, pod in (await pods()).items():
                    path = f"/api/v1/namespaces/{job.place}/pods/{pod['metadata']['name']}"
                    made = ContainerInput(client, path, job_metadata.container(pod))
                    self._open.setdefault((key[0], one), made)
        if key not in self._open:
            raise BackendError(f"{replica} of {job.name} has no pod.")
        await self._open[key].send(data)

    async def forget(self, job: Job) -> None:
        """Close the connections to the pods of a job that has ended."""
        ended = [key for key in self._open if key[0] in (job.uid, job.name)]
        for key in ended:
            with contextlib.suppress(Exception):
                await self._open.pop(key).close()

    async def close(self) -> None:
        """Close all connections."""
        for one in self._open.values():
            await one.close()
        self._open.clear()
