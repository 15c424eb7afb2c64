"""Creates a job on a cluster: all of it, or nothing."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from ciao_kernel.backends.kubernetes import checks, job_metadata, kernel_pod, manifest, validation
from ciao_kernel.backends.kubernetes.build_pods import KubernetesBuildCluster
from ciao_kernel.backends.kubernetes.manifest import Objects
from ciao_kernel.backends.kubernetes.target import Target
from ciao_kernel.background import start_background
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, Refused, SpecError
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job, Manifest, Notice, naming
from ciao_kernel.plugins import Build, Builder, Emit, Plan

_PATIENCE = 4.0
"""Seconds for which an interrupted cell waits until its new objects are removed."""

_SILENT = 3.0
"""Seconds of retries after which the user is told."""

_DETACH_HINT = (
    "To keep jobs, name another namespace (%namespace=…), or start the kernel with "
    "KERNEL_NAMESPACE."
)


async def prepare(
    plan: Plan, builder: Builder, target: Target, settings: Settings, emit: Emit, name: str
) -> tuple[Job, Objects]:
    """Build, and return the job and its objects; nothing is created yet.

    Raises:
        SourceError: From the builder.
        ClusterFault: The namespace does not exist, or is being deleted.
    """
    python = plan.spec.python or settings.cluster_python
    if python.startswith("~"):
        raise SpecError(
            f"{python} is not valid in a pod: ~ is the home directory on this machine.",
            "Give the path in the image, such as /opt/venv/bin/python, or omit %python.",
            directive="python",
        )
    # Not in parallel with the build, which may take long and must not outlive a refusal.
    version, ground = await asyncio.gather(_version(target.client), checks.ground(target))
    with tempfile.TemporaryDirectory(prefix="ciao-") as folder:
        ask = Build(
            plan.source,
            plan.spec,
            python,
            name,
            Path(folder),
            plan.folder,
            manifest.image_of(plan, settings),
            manifest.architecture(plan, settings),
            bool(plan.spec.dryrun),
            KubernetesBuildCluster(target, settings),
        )
        artifact = await builder.build(ask, emit)
    job = Job(
        name=name,
        backend=job_metadata.BACKEND,
        framework=plan.framework.name,
        replicas=plan.spec.replicas(),
        created=time.time(),
        place=target.namespace,
        kind_of_place="namespace",
        context=plan.spec.cluster.context or "",
        program=artifact.program,
        header=plan.header,
        plot=plan.spec.plot,
        owner=plan.owner.label,
        detached=plan.spec.detach,
    )
    run = secrets.token_hex(8)
    sleeps = _at_least(version, 1, 30)
    made = manifest.objects(plan, job, artifact, settings, run, sleeps=sleeps)
    if ground.restricted:
        made = manifest.secured(made)
    return replace(job, resource=made.path.rpartition("/")[2]), made


async def submit(
    plan: Plan,
    builder: Builder,
    target: Target,
    settings: Settings,
    emit: Emit,
    *,
    outlive: bool,
) -> Job:
    """Create all objects of a job; remove the created objects if a later step fails.

    Args:
        plan: The program to run, with its options.
        builder: Packs the source.
        target: Cluster and namespace.
        settings: Image, timeouts, grace periods.
        emit: Receives notices for the user.
        outlive: Whether the job may outlive this kernel.

    Raises:
        SpecError, ClusterFault: The cluster refuses the job; no part of it exists.
        BackendError: No name is free.
    """
    path = manifest.collection(manifest.kind_of(plan), target.namespace)
    await _lasts(plan, target, emit)
    owner = None if outlive else await kernel_pod.owner(target)
    for number in range(1, naming.MOST + 1):
        name = naming.candidate(plan.name, plan.framework.name, number)
        async with _asked(validation.taken(target, path, name) if plan.name else _free()) as answer:
            # The first name is usually free, so the answer is not awaited.
            if number > 1 and await answer:
                continue
            # An error here occurs with any name, and may have taken an hour to appear.
            job, made = await prepare(plan, builder, target, settings, emit, name)
            try:
                made = await validation.try_out(target, made)
            except (SpecError, BackendError) as error:
                # The only cause may be objects of another job with that name.
                if _exists(error) or await answer:
                    continue
                raise
            if await answer:
                continue
        if owner:
            owned = {**made.job["metadata"], "ownerReferences": [owner]}
            made = replace(made, job={**made.job, "metadata": owned})
        try:
            uid = await _create(target, made, emit)
        except Refused as error:
            if error.reason == "AlreadyExists":  # the name was taken since the check
                continue
            raise checks.refusal(error, target) from error
        return replace(job, created=time.time(), uid=uid)
    raise BackendError(
        f"there are already {naming.MOST} jobs named {plan.name}.",
        "`ciao delete --finished` removes finished jobs.",
    )


@contextlib.asynccontextmanager
async def _asked(question: Coroutine[Any, Any, bool]) -> AsyncIterator[asyncio.Task[bool]]:
    """Ask while the body runs; cancel the question if its answer is no longer needed."""
    task = asyncio.get_running_loop().create_task(question)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _exists(error: Exception) -> bool:
    cause = error.__cause__
    return isinstance(cause, Refused) and cause.reason == "AlreadyExists"


async def _lasts(plan: Plan, target: Target, emit: Emit) -> None:
    """Tell the user if the namespace, and so the job, will be deleted with this kernel.

    Raises:
        SpecError: The job has to outlive the kernel (``%detach``).
    """
    if not (await checks.ground(target)).deleted_with_kernel:
        return
    goes = f"the namespace {target.namespace} was made for this kernel and is deleted with it"
    if plan.spec.detach:
        raise SpecError(
            f"{goes}: no job there outlives the kernel.", _DETACH_HINT, directive="detach"
        )
    emit(Notice(f"{goes}, and so is the job. {_DETACH_HINT}"))


async def _free() -> bool:
    return False


async def _create(target: Target, made: Objects, emit: Emit) -> str:
    """Create the job, then the objects that it owns; return the job's uid.

    In this order nothing can be left behind unseen: a kernel that is killed in between leaves a
    job that waits for its source, and every list of jobs shows it.
    """
    stopped = asyncio.Event()
    target.client.retry_reason = ""
    making = asyncio.ensure_future(_make(target.client, made, stopped))
    try:
        await asyncio.wait({making}, timeout=_SILENT)
        if not making.done() and (why := target.client.retry_reason):
            emit(Notice(f"the cluster has not accepted the job yet; retrying: {why}"))
        # An interrupted cell does not cancel the request: only the answer tells what exists.
        return await asyncio.shield(making)
    except BaseException:
        stopped.set()
        await _undo(target, made, making, emit)
        raise


async def _make(client: Client, made: Objects, stopped: asyncio.Event) -> str:
    job = await client.create(made.path, made.job)
    uid = str(job["metadata"]["uid"])
    owner = {
        "apiVersion": made.job["apiVersion"],
        "kind": made.job["kind"],
        "name": made.job["metadata"]["name"],
        "uid": uid,
    }
    for item in made.beside:
        if stopped.is_set():
            break
        owned = {**item["metadata"], "ownerReferences": [owner]}
        await client.create(job_metadata.collection(item), {**item, "metadata": owned})
    return uid


async def _undo(target: Target, made: Objects, making: asyncio.Future[str], emit: Emit) -> None:
    """Delete what this submission may have created, and nothing of anybody else.

    Return when it is deleted, or continue in the background if that takes long.
    """
    client, name, late = target.client, made.job["metadata"]["name"], False
    words = f"{name} --namespace {target.namespace}"
    path, run = f"{made.path}/{name}", made.job["metadata"]["annotations"][job_metadata.RUN]

    async def undo() -> None:
        await asyncio.wait({making})
        if not making.cancelled():
            making.exception()  # the caller that awaits it raises the error
        try:
            item = await client.find(path)
            if item and (item["metadata"].get("annotations") or {}).get(job_metadata.RUN) == run:
                await client.delete(path, uid=item["metadata"]["uid"])
        except BackendError as error:
            text = f"{name} could not be removed, and may exist: {error.message}"
            emit(Notice(f"{text} `%ciao delete {words}` tries again."))
        else:
            if late:
                emit(Notice(f"{name} is removed."))

    undoing = start_background(undo())
    try:
        await asyncio.wait({undoing}, timeout=_PATIENCE)
    finally:
        if not undoing.done():
            late = True
            text = f"{name} may exist: the API server has not answered yet. When it answers, the "
            emit(Notice(f"{text}job is removed; `%ciao delete {words}` removes it too."))


async def _version(client: Client) -> Manifest:
    """Return the server's version; {} if it is refused, which only disables new features."""
    try:
        return await client.known("/version")
    except Refused:
        return {}


def _at_least(version: Manifest, major: int, minor: int) -> bool:
    """Compare a server's version, such as ``1.30+``, with a minimum version."""
    digits = [
        "".join(c for c in str(version.get(key, "")) if c.isdigit()) for key in ("major", "minor")
    ]
    return all(digits) and (int(digits[0]), int(digits[1])) >= (major, minor)
