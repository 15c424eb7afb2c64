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

from ciao_kernel.backends.kubernetes import checks, manifest, marks
from ciao_kernel.backends.kubernetes.manifest import Objects
from ciao_kernel.backends.kubernetes.target import Target
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, Refused
from ciao_kernel.model import Job, Manifest
from ciao_kernel.plugins import Builder, Emit, Plan

_T = TypeVar("_T")

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""No vowels and no look-alikes: a random name spells no word and is read aloud without doubt."""


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
        program=artifact.program,
        header=plan.header,
        owner=plan.owner.label,
        detached=plan.spec.detach,
    )
    run = secrets.token_hex(8)
    sleeps = _at_least(version, 1, 30)
    return job, manifest.objects(plan, job, artifact, settings, run, sleeps=sleeps)


async def submit(
    plan: Plan, builder: Builder, target: Target, settings: Settings, emit: Emit
) -> Job:
    """Create all objects of a job; what exists already is removed again if a later step fails.

    Raises:
        SpecError, ClusterFault: The cluster would refuse it; nothing was created.
        BackendError: No name is free.
    """
    for number in range(1, 1000):
        name = _name(plan, number)
        job, made = await prepare(plan, builder, target, settings, emit, name)
        if plan.name and await target.client.find(f"{made.path}/{name}"):
            continue
        items = [(_path(item), item) for item in made.beside] + [(made.path, made.job)]
        pods = [
            checks.as_pod(pod, f"{name}-{role.lower()}-0", target.namespace)
            for role, pod in manifest.pods_of(made.job).items()
        ]
        await checks.dry_run(target, items, pods)
        try:
            created = await _create(target, items)
        except Refused as error:
            if error.code == 409:  # taken between the question and now
                continue
            raise
        return replace(job, created=time.time(), name=created["metadata"]["name"])
    raise BackendError(
        f"there are 999 jobs of the name {plan.name}.", "`ciao delete --finished` removes them."
    )


async def _create(target: Target, items: list[tuple[str, Manifest]]) -> Manifest:
    """Create objects in order; the last, the job, becomes the owner of the others."""
    client = target.client
    tried: list[str] = []
    try:
        for path, item in items:
            tried.append(f"{path}/{item['metadata']['name']}")
            made = await _whole(client.create(path, item))
        owner = {
            "apiVersion": made["apiVersion"],
            "kind": made["kind"],
            "name": made["metadata"]["name"],
            "uid": made["metadata"]["uid"],
        }
        owned = {"metadata": {"ownerReferences": [owner]}}
        await _whole(asyncio.gather(*(client.patch(path, owned) for path in tried[:-1])))
    except BaseException as error:
        if isinstance(error, Refused) and error.code == 409:
            tried.pop()  # somebody else's
        rolling_back = [client.delete(path) for path in reversed(tried)]
        await asyncio.shield(asyncio.gather(*rolling_back, return_exceptions=True))
        raise
    return made


async def _whole(work: Coroutine[Any, Any, _T] | asyncio.Future[_T]) -> _T:
    """Let a request end even if the cell is interrupted: only then is it known what exists."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=10)
        raise


def _name(plan: Plan, number: int) -> str:
    if plan.name is None:
        return f"{plan.framework.name}-" + "".join(secrets.choice(_LETTERS) for _ in range(5))
    return plan.name if number == 1 else f"{plan.name}-{number}"


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
