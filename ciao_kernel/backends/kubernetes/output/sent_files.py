"""Files of ``%output`` that a pod sends by itself: to its log, a bucket, a registry or a claim.

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
from ciao_kernel.backends.kubernetes.apis import job_metadata, template_holder
from ciao_kernel.backends.kubernetes.cluster.pod_view import LatestPod
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.backends.kubernetes.output import (
    output_claim,
    output_log,
    output_registry,
    output_sidecar,
    output_state,
    output_store,
)
from ciao_kernel.backends.kubernetes.output.claim_reader import ClaimReader, SavedOutput
from ciao_kernel.backends.kubernetes.output.output_log import OutputLog
from ciao_kernel.backends.kubernetes.output.output_registry import Repositories
from ciao_kernel.backends.kubernetes.output.output_store import StoredOutput
from ciao_kernel.backends.kubernetes.output.pushed_output import PushedOutput
from ciao_kernel.backends.kubernetes.states import job_status, status
from ciao_kernel.config import Settings
from ciao_kernel.delivery import replica_files
from ciao_kernel.delivery.output import results
from ciao_kernel.delivery.transfers import Execute, python_of
from ciao_kernel.errors import BackendError
from ciao_kernel.kube import exec
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.magics.directives import outputs
from ciao_kernel.model import Job, Manifest, Replica, State
from ciao_kernel.model.outputs import OutputWay
from ciao_kernel.model.queries import Streams
from ciao_kernel.plugins import SentFiles

_log = logging.getLogger(__name__)

_SILENCE = {
    OutputWay.LOG: 300.0,
    OutputWay.S3: float(output_state.LONGEST),
    OutputWay.REGISTRY: float(output_state.LONGEST),
    OutputWay.CLAIM: float(output_state.LONGEST),
}
"""Seconds after a program's end within which its files are sent: the node may be busy."""
_LOOK = 2.0
_OUTLASTS = "Files in a bucket (by:s3) and on a claim (by:claim, %volume) outlast their pods."


def options(settings: Settings, way: OutputWay) -> dict[str, Any]:
    """Return what is different in the transfer of files that do not come by exec."""
    found: dict[str, Any] = {}
    if way in _SILENCE:
        found = {"silent": _SILENCE[way], "again": way is OutputWay.CLAIM}
    return found | output_log.log_words(settings) if way is OutputWay.LOG else found


def registry(client: Client, settings: Settings, job: Job) -> Callable[[], Repositories]:
    """Return what opens the registry of a job; the Secret of its password is read once."""
    return functools.cache(lambda: output_registry.of_job(job, Target(client, job.place), settings))


def claim_reader(
    client: Client, job: Job, tell: Callable[[str], None] = lambda _: None
) -> ClaimReader:
    """Return what reads the claim of a job, for all replicas; it has to be closed.

    Args:
        client: The API server.
        job: The job.
        tell: Receives a sentence if the pod that reads it does not start soon.
    """

    async def run(path: str, command: Sequence[str], streams: Streams) -> int:
        return await exec.execute(client, path, output_claim.READER, command, streams)

    return ClaimReader(client, run, job.place, outputs.paths(job.header), tell=tell)


def on_claim(
    client: Client,
    settings: Settings,
    job: Job,
    replica: Replica,
    view: LatestPod,
    template: Object,
    item: Object,
    reader: ClaimReader,
) -> SentFiles:
    """Return the files that a pod copies to a claim.

    Args:
        client: The API server.
        settings: Limits.
        job: The job.
        replica: The replica.
        view: Its pod.
        template: The pod, maybe without all of its fields, or its template if it is gone.
        item: The job's object.
        reader: The result of :func:`claim_reader`.
    """

    async def model() -> Object:
        pods = f"/api/v1/namespaces/{job.place}/pods"
        pod = view.pod()
        if pod and (found := await client.find(f"{pods}/{pod['metadata']['name']}")):
            return found
        templates = await _templates(client, job, item)
        return next((one for one in templates if output_claim.kept(one)), template)

    kept = output_claim.kept(template)
    python = python_of(job, settings.cluster_python)
    owner = job_metadata.with_kind(item, job)
    saved = SavedOutput(reader, replica, view, kept, model, owner, output_state.end, python=python)
    # What is in the volumes of the program is there once, and replicas have it together.
    first = replica == (job_metadata.decider(item) or job.replicas[0])
    more = {"kept": saved.folder, **(output_claim.also(job.header) if first else {})}
    sent = _sent(settings, OutputWay.CLAIM, view.uid, saved.execute)
    place = f"{saved.folder}/{replica_files.COPIES}"
    return replace(sent, remove=saved.remove, options={**sent.options, "base": place, "more": more})


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
        way: Where the files are, except on a claim (:func:`on_claim`).
        registry: The result of :func:`registry`.
    """
    pod = view.uid
    if way is OutputWay.REGISTRY:
        pushed = PushedOutput(registry, view, output_state.end)
        return replace(_sent(settings, way, pod, pushed.execute), remove=pushed.remove)
    if way is OutputWay.LOG:
        return _sent(settings, way, pod, OutputLog(client, job.place, view).execute)
    stored = StoredOutput(settings, replica, view, output_state.end)
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
        if why := _why_not_begun(job, item):
            raise BackendError(f"there are no files of {replica} yet: {why}.")
        view = LatestPod(None)
        templates = await _templates(client, job, item)
        if model := next((one for one in templates if output_claim.kept(one)), None):
            return _by_claim(client, settings, job, replica, view, model, item)
        if token := _token(templates):
            stored = StoredOutput(settings, replica, view, output_state.end, token)
            return _sent(settings, OutputWay.S3, "", stored.execute)
        hint = output_registry.still_there(job, settings) or _OUTLASTS
        raise BackendError(f"the files of {replica} cannot be had: it has no pod.", hint)
    if not status.of_pod(pod, replica).state.over or output_state.is_held(pod):
        return None
    gives = results.path_words(job.header) or output_state.has_values(pod)
    if gives and (way := output_state.sends(pod)):
        view = LatestPod(pod)
        if way is OutputWay.CLAIM:
            found = _by_claim(client, settings, job, replica, view, pod, item)
        else:
            opens = registry(client, settings, job)
            found = of_pod(client, settings, job, replica, view, way, opens)
        path = f"/api/v1/namespaces/{job.place}/pods/{pod['metadata']['name']}"

        async def execute(command: Sequence[str], streams: Streams) -> int:
            async with _watched(client, path, view):
                return await found.execute(command, streams)

        return replace(found, execute=execute)
    raise BackendError(f"the files of {replica} are lost: {_why(settings, job, pod)}.", _OUTLASTS)


_BEGUN = ("active", "ready", "succeeded", "failed")
"""Numbers of pods in the status of a job's object."""


def _why_not_begun(job: Job, item: Object) -> str:
    """Return why a job has not begun, as the end of a sentence; "" if it has, or maybe."""
    now = job_status.of_job(job, item, {})
    if now.state is not State.PENDING:
        return ""
    about = get(item, "status")
    seen = {str(one.get("type")) for one in many(about, "conditions")}
    if seen & {"Running", "Restarting"} or _counts(about):
        return ""  # it was suspended later
    if now.reason:
        return f"{job.name} has not begun ({now.message or now.reason})"
    return f"{job.name} has not begun"


def _counts(about: Any) -> bool:
    """Return whether a status counts pods somewhere."""
    if isinstance(about, dict):
        return any(about.get(name) for name in _BEGUN) or any(map(_counts, about.values()))
    return isinstance(about, list) and any(map(_counts, about))


def _sent(settings: Settings, way: OutputWay, pod: str, execute: Execute) -> SentFiles:
    limit = output_sidecar.limit(settings, way)
    return SentFiles(way, limit, pod, options(settings, way), execute)


def _why(settings: Settings, job: Job, pod: Object) -> str:
    if not results.path_words(job.header):
        what = "names no files in %output" if outputs.names(job.header) else "has no %output"
        return f"its program has ended, and the job {what}"
    if output_state.has_keeper(pod):
        return (
            f"its program has ended, and nobody fetched them within {settings.fetch_wait:g} s (the "
            "setting fetchWait)"
        )
    return "its program has ended"


def _by_claim(
    client: Client,
    settings: Settings,
    job: Job,
    replica: Replica,
    view: LatestPod,
    model: Object,
    item: Object,
) -> SentFiles:
    """Return the files on a claim, with a reader of their own."""
    reader = claim_reader(client, job)
    found = on_claim(client, settings, job, replica, view, model, item, reader)
    return replace(found, close=reader.close)


async def _templates(client: Client, job: Job, item: Object) -> list[Manifest]:
    holder: Manifest = await template_holder.of(client, item, job.place)
    return list(template_holder.pod_templates(holder).values())


def _token(templates: Sequence[Manifest]) -> str:
    """Return the part of the names of objects in the bucket that the job's templates have."""
    for one in templates:
        if token := get(one, "metadata", "annotations", output_store.TOKEN):
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
