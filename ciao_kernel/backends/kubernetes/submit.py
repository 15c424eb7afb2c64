"""Brings a job into being on a cluster: all of it, or nothing."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ciao_kernel import naming
from ciao_kernel.backends.kubernetes import checks, manifest, marks
from ciao_kernel.backends.kubernetes.manifest import Objects
from ciao_kernel.backends.kubernetes.target import Target
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, Refused
from ciao_kernel.model import Job, Manifest, Notice
from ciao_kernel.plugins import Builder, Emit, Plan

_T = TypeVar("_T")


async def prepare(
    plan: Plan, builder: Builder, target: Target, settings: Settings, emit: Emit, name: str
) -> tuple[Job, Objects]:
    """Build, and return the job and its objects; nothing is created yet.

    Raises:
        SourceError: What the builder says.
    """
    python = plan.spec.python or settings.cluster_python
    version = await target.client.get("/version")
    with tempfile.TemporaryDirectory(prefix="ciao-") as folder:
        artifact = await builder.build(plan.source, python, name, Path(folder), emit)
    job = Job(
        name=name,
        backend=marks.BACKEND,
        framework=plan.framework.name,
        replicas=plan.spec.replicas(),
        created=time.time(),
        place=target.namespace,
        kind_of_place="namespace",
        context=plan.spec.cluster.context or "",
        program=artifact.program,
        header=plan.header,
        owner=plan.owner.label,
        detached=plan.spec.detach,
    )
    run = secrets.token_hex(8)
    sleeps = _at_least(version, 1, 30)
    made = manifest.objects(plan, job, artifact, settings, run, sleeps=sleeps)
    return replace(job, resource=made.path.rpartition("/")[2]), made


async def submit(
    plan: Plan, builder: Builder, target: Target, settings: Settings, emit: Emit
) -> Job:
    """Create all objects of a job; what exists already is removed again if a later step fails.

    Raises:
        SpecError, ClusterFault: The cluster would refuse it; nothing was created.
        BackendError: No name is free.
    """
    for number in range(1, naming.MOST + 1):
        name = naming.candidate(plan.name, plan.framework.name, number)
        if plan.name and await target.has(name):
            continue  # asked first: what follows is work for nothing then
        job, made = await prepare(plan, builder, target, settings, emit, name)
        items = [(_path(item), item) for item in made.beside] + [(made.path, made.job)]
        pods = [
            checks.as_pod(pod, f"{name}-{role.lower()}-try", target.namespace)
            for role, pod in manifest.pods_of(made.job).items()
        ]
        await checks.dry_run(target, items, pods)
        try:
            uid = await _create(target, made, emit)
        except Refused as error:
            if error.reason == "AlreadyExists":  # taken between the question and now
                continue
            raise
        return replace(job, created=time.time(), uid=uid)
    raise BackendError(
        f"there are {naming.MOST} jobs of the name {plan.name}.",
        "`ciao delete --finished` removes them.",
    )


async def _create(target: Target, made: Objects, emit: Emit) -> str:
    """Create the job, then what is beside it, which the job owns; return the job's uid.

    In this order nothing can be left behind that nobody sees: a kernel that is killed in between
    leaves a job that waits for its source, in every list of jobs.
    """
    client, path = target.client, f"{made.path}/{made.job['metadata']['name']}"
    try:
        job = await _whole(client.create(made.path, made.job))
        uid = str(job["metadata"]["uid"])
        owner = {
            "apiVersion": made.job["apiVersion"],
            "kind": made.job["kind"],
            "name": made.job["metadata"]["name"],
            "uid": uid,
        }
        for item in made.beside:
            owned = {**item["metadata"], "ownerReferences": [owner]}
            await _whole(client.create(_path(item), {**item, "metadata": owned}))
    except BaseException:
        await _undo(target, path, made, emit)
        raise
    return uid


async def _undo(target: Target, path: str, made: Objects, emit: Emit) -> None:
    """Delete what this submission may have created, and nothing that somebody else has."""
    run = made.job["metadata"]["annotations"][marks.RUN]

    async def undo() -> None:
        try:
            item = await target.client.find(path)
            if item and (item["metadata"].get("annotations") or {}).get(marks.RUN) == run:
                await target.client.delete(path, uid=item["metadata"]["uid"])
        except BackendError as error:
            name = path.rpartition("/")[2]
            text = f"{name} could not be removed again, and may exist: {error.message}"
            emit(Notice(f"{text} `ciao delete {name}` tries again."))

    await asyncio.shield(asyncio.ensure_future(undo()))


async def _whole(work: Coroutine[Any, Any, _T] | asyncio.Future[_T]) -> _T:
    """Let a request end even if the cell is interrupted: only then is it known what exists."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not (await asyncio.wait({task}, timeout=10))[0]:
            task.cancel()  # what it has done is found by what looks next
            await asyncio.wait({task})
        raise


def _path(item: Manifest) -> str:
    """Where an object beside the job is created: a ConfigMap or a Secret."""
    plural = f"{item['kind'].lower()}s"
    return f"/api/v1/namespaces/{item['metadata']['namespace']}/{plural}"


def _at_least(version: Manifest, major: int, minor: int) -> bool:
    """Compare a server's version, which may be ``1.30+``."""
    digits = [
        "".join(c for c in str(version.get(key, "")) if c.isdigit()) for key in ("major", "minor")
    ]
    return all(digits) and (int(digits[0]), int(digits[1])) >= (major, minor)
