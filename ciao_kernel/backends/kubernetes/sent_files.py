"""Files of ``%output`` that a pod sends by itself: into its log, or to a bucket.

The follower of a job reads them at once, and somebody who asks later reads what is still there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

from ciao_kernel import log
from ciao_kernel.backends.kubernetes import (
    manifest,
    output_checks,
    output_sidecar,
    output_store,
    status,
    template_holder,
)
from ciao_kernel.backends.kubernetes.output_log import OutputLog
from ciao_kernel.backends.kubernetes.output_store import StoredOutput
from ciao_kernel.backends.kubernetes.pod_view import LatestPod
from ciao_kernel.config import Settings
from ciao_kernel.delivery.transfers import Execute
from ciao_kernel.errors import BackendError
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.magics import outputs
from ciao_kernel.model import Job, Manifest, Replica
from ciao_kernel.model.queries import Streams
from ciao_kernel.model.spec import OutputWay
from ciao_kernel.plugins import SentFiles

_log = logging.getLogger(__name__)

_SILENCE = {OutputWay.LOG: 300.0, OutputWay.S3: float(output_sidecar.LONGEST)}
"""Seconds after a program's end within which its files are sent: the node may be busy."""
_LOOK = 2.0
_OUTLASTS = "Files in a bucket (by:s3) and in a %volume outlast their pods."


def options(settings: Settings, way: OutputWay) -> dict[str, Any]:
    """Return what is different in the transfer of files that do not come by exec."""
    found: dict[str, Any] = {}
    if way in _SILENCE:
        found = {"silent": _SILENCE[way], "again": False}
    return found | output_checks.log_words(settings) if way is OutputWay.LOG else found


def reader(
    client: Client, settings: Settings, job: Job, replica: Replica, view: LatestPod, way: OutputWay
) -> Execute:
    """Return what passes on the files that a pod sends, in place of a command in it.

    Args:
        client: The API server.
        settings: The bucket.
        job: The job.
        replica: The replica.
        view: Its pod.
        way: Where the files are.
    """
    if way is OutputWay.LOG:
        return OutputLog(client, job.place, view).execute
    return StoredOutput(settings, replica, view, output_sidecar.end).execute


async def later(
    client: Client, settings: Settings, job: Job, replica: Replica, pod: Object | None, item: Object
) -> SentFiles | None:
    """Return what can still be had of a replica whose program has ended.

    Args:
        client: The API server.
        settings: The bucket, and limits.
        job: The job.
        replica: The replica.
        pod: Its pod.
        item: The job's object.

    Returns:
        None if commands can be run in the pod, now or later.

    Raises:
        BackendError: Nothing can be had any more.
    """
    if pod is None:
        if token := await _token(client, job, item):
            view = LatestPod(None)
            stored = StoredOutput(settings, replica, view, output_sidecar.end, token)
            return _sent(settings, OutputWay.S3, "", stored.execute)
        raise BackendError(f"the files of {replica} cannot be had: it has no pod.", _OUTLASTS)
    if not status.of_pod(pod, replica).state.over or output_sidecar.is_held(pod):
        return None
    if way := output_sidecar.sends(pod):
        view = LatestPod(pod)
        read = reader(client, settings, job, replica, view, way)
        path = f"/api/v1/namespaces/{job.place}/pods/{pod['metadata']['name']}"

        async def execute(command: Sequence[str], streams: Streams) -> int:
            async with _watched(client, path, view):
                return await read(command, streams)

        return _sent(settings, way, str(pod["metadata"]["uid"]), execute)
    raise BackendError(f"the files of {replica} are lost: {_why(settings, job, pod)}.", _OUTLASTS)


def _sent(settings: Settings, way: OutputWay, pod: str, execute: Execute) -> SentFiles:
    limit = output_sidecar.limit(settings, way)
    return SentFiles(way, limit, pod, options(settings, way), execute)


def _why(settings: Settings, job: Job, pod: Object) -> str:
    if not outputs.paths(job.header):
        return "its program has ended, and its cell has no %output"
    if output_sidecar.has_keeper(pod):
        return (
            f"its program has ended, and nobody fetched them within {settings.fetch_wait:g} s (the "
            "setting fetchWait)"
        )
    return "its program has ended"


async def _token(client: Client, job: Job, item: Object) -> str:
    """Return the part of the names of objects in the bucket that the job's templates have."""
    holder: Manifest = await template_holder.of(client, item, job.place)
    for one in manifest.pod_templates(holder).values():
        if token := status.get(one, "metadata", "annotations", output_store.TOKEN):
            return str(token)
    return ""


@contextlib.asynccontextmanager
async def _watched(client: Client, path: str, view: LatestPod) -> AsyncIterator[None]:
    """Keep the state of a pod up to date: its container may still be sending."""

    async def look() -> None:
        while True:
            await asyncio.sleep(_LOOK)
            with log.ignored(_log, "reading a pod", BackendError):
                view.update(await client.find(path))

    looking = asyncio.ensure_future(look())
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
