"""Creates the objects of a job: all of them, or nothing.

The source comes first (a ConfigMap), then the job, which then becomes the owner of its source, in
the background (:mod:`source_owners`). A kernel that is killed in between leaves a source without a
job, which holds no GPU, or a job that runs although it does not own its source yet;
:mod:`unfinished` settles both. A Service and a TrainingRuntime belong to a source, and so to the
job: they need no further rights, and are deleted with the source in any case.

A user who may neither patch nor delete ConfigMaps cannot do that: there the job comes first, and
its source is created with its owner. A kernel that is killed in between leaves a job that waits,
which :mod:`unfinished` ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ciao_kernel.backends.kubernetes import rights
from ciao_kernel.backends.kubernetes.apis import job_metadata, trainer
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.lifecycle import older_schema, source_owners
from ciao_kernel.backends.kubernetes.lifecycle.source_owners import Source
from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects
from ciao_kernel.backends.kubernetes.object_fields import get
from ciao_kernel.background import start_background
from ciao_kernel.errors import BackendError, Refused
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.model import Manifest, Notice
from ciao_kernel.plugins import Emit

_PATIENCE = 4.0
"""Seconds for which an interrupted cell waits until its new objects are removed."""

_SERVICE, _RUNTIME = "Service", trainer.RUNTIME
_DEPENDENT = (_SERVICE, _RUNTIME)
"""Kinds of objects that belong to a source."""
_EVERY, _LOOKS = 0.3, 30
_SILENT = 3.0
"""Seconds of retries after which the user is told."""

_Created = tuple[Object, tuple[Source, ...]]
"""A job as the server has it, and the sources that it does not own yet."""


async def create(
    target: Target,
    made: Objects,
    emit: Emit,
    removing: Callable[[asyncio.Task[None]], None] = lambda _: None,
) -> Object:
    """Create all objects of a job, and return the job as the server has it.

    Args:
        target: The cluster and the namespace.
        made: The objects.
        emit: Receives notices for the user.
        removing: Receives the task that removes them after an error, which may outlast this call.

    Raises:
        Refused: The server refuses an object; all of them are removed.
        ClusterFault: The server does not answer.
    """
    source_first = await _may_claim(target, made)
    stopped = asyncio.Event()
    target.client.retry_reason = ""
    make = _source_first if source_first else _job_first
    making = asyncio.ensure_future(make(target.client, made, stopped))
    try:
        await asyncio.wait({making}, timeout=_SILENT)
        if not making.done() and (why := target.client.retry_reason):
            emit(Notice(f"the cluster has not accepted the job yet; retrying: {why}"))
        # An interrupted cell does not cancel the request: only the answer tells what exists.
        job, sources = await asyncio.shield(making)
    except BaseException:
        stopped.set()
        await _undo(target, made, making, emit, removing, source_first=source_first)
        raise
    source_owners.claim_later(target, owner_reference(job, made.job), sources, emit)
    return job


async def _may_claim(target: Target, made: Objects) -> bool:
    """Return whether the source can come first: its owner is set, or it is removed, later."""
    kinds = [item["kind"] for item in made.beside]
    if _RUNTIME in kinds:
        return True  # Trainer refuses a job without its runtime, so the rights are required
    if set(kinds) - {"ConfigMap", _SERVICE} or kinds[:1] == [_SERVICE]:
        return False  # nobody would look for the others if this kernel were killed
    return all(await rights.allowed(target.client, target.namespace, *rights.CLAIM))


async def _source_first(client: Client, made: Objects, stopped: asyncio.Event) -> _Created:
    sources: list[Source] = []
    owner: Manifest = {}
    for item in made.beside:
        if stopped.is_set():
            return {}, ()
        if item["kind"] in _DEPENDENT:
            await client.create(job_metadata.collection(item), _owned(item, owner))
            continue
        meta = item["metadata"]
        marked = {**meta, "labels": {**meta.get("labels", {}), job_metadata.UNOWNED: "true"}}
        path = job_metadata.collection(item)
        found = await client.create(path, {**item, "metadata": marked})
        owner = owner_reference(found, item)
        sources.append(Source(f"{path}/{meta['name']}", owner["uid"]))
    if stopped.is_set():
        return {}, ()
    return await _create_job(client, made, stopped), tuple(sources)


async def _create_job(client: Client, made: Objects, stopped: asyncio.Event) -> Object:
    """Create a job; Trainer may see the runtime that it needs only a moment after its creation."""
    for _ in range(_LOOKS):
        try:
            return await older_schema.create(client, made.path, made.job)
        except Refused as error:
            if trainer.RUNTIME_FIRST not in error.message or stopped.is_set():
                raise
        await asyncio.sleep(_EVERY)
    return await older_schema.create(client, made.path, made.job)


async def _job_first(client: Client, made: Objects, stopped: asyncio.Event) -> _Created:
    job = await older_schema.create(client, made.path, made.job)
    # The pods wait for their sources, and so find the Service when they start.
    for item in sorted(made.beside, key=lambda item: item["kind"] != _SERVICE):
        if stopped.is_set():
            break
        owned = _owned(item, owner_reference(job, made.job))
        await client.create(job_metadata.collection(item), owned)
    return job, ()


def _owned(item: Manifest, owner: Manifest) -> Manifest:
    return {**item, "metadata": {**item["metadata"], "ownerReferences": [owner]}}


def owner_reference(job: Object, kind: Manifest) -> Manifest:
    """Return an owner reference to a job, or to another object.

    Args:
        job: The object as the server has it.
        kind: An object with its ``apiVersion`` and ``kind``, which objects of a list lack.
    """
    meta = job["metadata"]
    return {
        "apiVersion": kind["apiVersion"],
        "kind": kind["kind"],
        "name": meta["name"],
        "uid": str(meta["uid"]),
    }


async def _undo(
    target: Target,
    made: Objects,
    making: asyncio.Future[_Created],
    emit: Emit,
    removing: Callable[[asyncio.Task[None]], None],
    *,
    source_first: bool,
) -> None:
    """Delete what this submission may have created, and nothing of anybody else.

    Return when it is deleted, or continue in the background if that takes long.
    """
    client, name, late = target.client, made.job["metadata"]["name"], False
    words = f"{name} --namespace {target.namespace}"
    run = made.job["metadata"]["annotations"][job_metadata.RUN]
    # Otherwise the job owns them; a Service or a runtime always has an owner.
    beside = [one for one in made.beside if source_first and one["kind"] not in _DEPENDENT]

    async def undo() -> None:
        await asyncio.wait({making})
        if not making.cancelled():
            making.exception()  # the caller that awaits it raises the error
        try:
            await _delete_own(client, f"{made.path}/{name}", run)
        except BackendError as error:
            text = f"{name} could not be removed, and may exist: {error.message}"
            emit(Notice(f"{text} `%ciao delete {words}` tries again."))
            return  # if it exists, it needs its source
        for item in beside:
            source = item["metadata"]["name"]
            try:
                await _delete_own(client, f"{job_metadata.collection(item)}/{source}", run)
            except BackendError as error:
                text = f"the ConfigMap {source} could not be removed, and may exist"
                remove = f"`kubectl delete configmap {source} -n {target.namespace}` removes it."
                emit(Notice(f"{text}: {error.message} {remove}"))
                return
        if late:
            emit(Notice(f"{name} is removed."))

    undoing = start_background(undo())
    removing(undoing)
    try:
        await asyncio.wait({undoing}, timeout=_PATIENCE)
    finally:
        if not undoing.done():
            late = True
            text = f"{name} may exist: the API server has not answered yet. When it answers, the "
            emit(Notice(f"{text}job is removed; `%ciao delete {words}` removes it too."))


async def _delete_own(client: Client, path: str, run: str) -> None:
    """Delete an object if this submission made it."""
    item = await client.find(path)
    if item and get(item, "metadata", "annotations", job_metadata.RUN) == run:
        await client.delete(path, uid=str(item["metadata"]["uid"]))
