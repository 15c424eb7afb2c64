"""Files of ``%output`` that a pod sends by itself: into its log, to a bucket or to a registry.

The follower of a job reads them at once, and somebody who asks later reads what is still there.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

from ciao_kernel import log
from ciao_kernel.backends.kubernetes import (
    manifest,
    output_checks,
    output_registry,
    output_sidecar,
    output_store,
    status,
    template_holder,
)
from ciao_kernel.backends.kubernetes.output_log import OutputLog
from ciao_kernel.backends.kubernetes.output_registry import Repositories
from ciao_kernel.backends.kubernetes.output_store import StoredOutput
from ciao_kernel.backends.kubernetes.pod_view import LatestPod
from ciao_kernel.backends.kubernetes.pushed_output import PushedOutput
from ciao_kernel.backends.kubernetes.target import Target
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

_SILENCE = {
    OutputWay.LOG: 300.0,
    OutputWay.S3: float(output_sidecar.LONGEST),
    OutputWay.REGISTRY: float(output_sidecar.LONGEST),
}
"""Seconds after a program's end within which its files are sent: the node may be busy."""
_LOOK = 2.0
_OUTLASTS = "Files in a bucket (by:s3) and in a %volume outlast their pods."


def options(settings: Settings, way: OutputWay) -> dict[str, Any]:
    """Return what is different in the transfer of files that do not come by exec."""
    found: dict[str, Any] = {}
    if way in _SILENCE:
        found = {"silent": _SILENCE[way], "again": False}
    return found | output_checks.log_words(settings) if way is OutputWay.LOG else found


def registry(client: Client, settings: Settings, job: Job) -> Callable[[], Repositories]:
    """Return what opens the registry of a job; the Secret of its password is read once."""
    return functools.cache(lambda: output_registry.of_job(job, Target(client, job.place), settings))


def of_pod(
    client: Client,
    settings: Settings,
    job: Job,
    replica: Replica,
    view: LatestPod,
    way: OutputWay,
    registry: Callable[[], Repositories],
) -> SentFiles:
    """Return the files that a pod sends.

    Args:
        client: The API server.
        settings: The bucket, and limits.
        job: The job.
        replica: The replica.
        view: Its pod.
        way: Where the files are.
        registry: The result of :func:`registry`.
    """
    pod = str(status.get(view.pod(), "metadata", "uid") or "")
    if way is OutputWay.REGISTRY:
        pushed = PushedOutput(registry, view, output_sidecar.end)
        return replace(_sent(settings, way, pod, pushed.execute), remove=pushed.remove)
    if way is OutputWay.LOG:
        return _sent(settings, way, pod, OutputLog(client, job.place, view).execute)
    stored = StoredOutput(settings, replica, view, output_sidecar.end)
    return _sent(settings, way, pod, stored.execute)


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
        opens = registry(client, settings, job)
        found = of_pod(client, settings, job, replica, view, way, opens)
        path = f"/api/v1/namespaces/{job.place}/pods/{pod['metadata']['name']}"

        async def execute(command: Sequence[str], streams: Streams) -> int:
            async with _watched(client, path, view):
                return await found.execute(command, streams)

        return replace(found, execute=execute)
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
