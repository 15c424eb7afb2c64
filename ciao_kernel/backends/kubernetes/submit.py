"""Brings a job into being on a cluster: all of it, or nothing."""

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

from ciao_kernel.backends.kubernetes import checks, home, manifest, marks, tries
from ciao_kernel.backends.kubernetes.manifest import Objects
from ciao_kernel.backends.kubernetes.target import Target
from ciao_kernel.backends.kubernetes.workshop import ClusterWorkshop
from ciao_kernel.background import lasting
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, Refused, SpecError
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job, Manifest, Notice, naming
from ciao_kernel.plugins import Build, Builder, Emit, Plan

_PATIENCE = 4.0
"""Seconds for which an interrupted cell waits until what it made is removed again."""

_SILENT = 3.0
"""Seconds of asking again after which the cell says so."""

_KEEPS = (
    "To keep jobs, name another namespace (%namespace=…), or start the kernel with "
    "KERNEL_NAMESPACE."
)


async def prepare(
    plan: Plan, builder: Builder, target: Target, settings: Settings, emit: Emit, name: str
) -> tuple[Job, Objects]:
    """Build, and return the job and its objects; nothing is created yet.

    Raises:
        SourceError: What the builder says.
        ClusterFault: The namespace is not there to stay.
    """
    python = plan.spec.python or settings.cluster_python
    if python.startswith("~"):
        raise SpecError(
            f"{python} means nothing in a pod: ~ is a home on this machine.",
            "Give the path in the image, such as /opt/venv/bin/python, or leave it out.",
            directive="python",
        )
    # Not beside the build, which may take long and must not outlive a refusal.
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
            ClusterWorkshop(target, settings),
        )
        artifact = await builder.build(ask, emit)
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
    """Create all objects of a job; what exists already is removed again if a later step fails.

    Args:
        plan: What to run.
        builder: Brings the source.
        target: Where.
        settings: Image, waits, graces.
        emit: Gets what the user should know meanwhile.
        outlive: Whether the job is to run on without this kernel.

    Raises:
        SpecError, ClusterFault: The cluster refuses it; nothing of it exists.
        BackendError: No name is free.
    """
    path = manifest.collection(manifest.kind_of(plan), target.namespace)
    await _lasts(plan, target, emit)
    owner = None if outlive else await home.owner(target)
    for number in range(1, naming.MOST + 1):
        name = naming.candidate(plan.name, plan.framework.name, number)
        async with _asked(tries.taken(target, path, name) if plan.name else _free()) as answer:
            # The first name is free as a rule, so the answer is not waited for.
            if number > 1 and await answer:
                continue
            # What is wrong in here is so under any name, and may have taken an hour to find out.
            job, made = await prepare(plan, builder, target, settings, emit, name)
            try:
                made = await tries.try_out(target, made)
            except (SpecError, BackendError) as error:
                # What a job of that name has left in its place may be all that is wrong.
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
            if error.reason == "AlreadyExists":  # taken between the question and now
                continue
            raise checks.refusal(error, target) from error
        return replace(job, created=time.time(), uid=uid)
    raise BackendError(
        f"there are {naming.MOST} jobs of the name {plan.name}.",
        "`ciao delete --finished` removes them.",
    )


@contextlib.asynccontextmanager
async def _asked(question: Coroutine[Any, Any, bool]) -> AsyncIterator[asyncio.Task[bool]]:
    """Ask beside what is done within; an answer that nobody needs any more is dropped."""
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
    """Say that a job will not outlive this kernel, where its namespace does not.

    Raises:
        SpecError: It was to be left to itself (``%detach``).
    """
    if not (await checks.ground(target)).goes_with_kernel:
        return
    goes = f"the namespace {target.namespace} was made for this kernel and goes with it"
    if plan.spec.detach:
        raise SpecError(f"{goes}: no job there outlives it.", _KEEPS, directive="detach")
    emit(Notice(f"{goes}, and so does the job. {_KEEPS}"))


async def _free() -> bool:
    return False


async def _create(target: Target, made: Objects, emit: Emit) -> str:
    """Create the job, then what is beside it, which the job owns; return the job's uid.

    In this order nothing can be left behind that nobody sees: a kernel that is killed in between
    leaves a job that waits for its source, in every list of jobs.
    """
    stopped = asyncio.Event()
    target.client.trouble = ""
    making = asyncio.ensure_future(_make(target.client, made, stopped))
    try:
        await asyncio.wait({making}, timeout=_SILENT)
        if not making.done() and (why := target.client.trouble):
            emit(Notice(f"the cluster has not taken the job yet, and is asked again: {why}"))
        # A request is let end even if the cell is interrupted: only then is it known what exists.
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
        await client.create(marks.collection(item), {**item, "metadata": owned})
    return uid


async def _undo(target: Target, made: Objects, making: asyncio.Future[str], emit: Emit) -> None:
    """Delete what this submission may have created, and nothing that somebody else has.

    Returns when it is deleted, or goes on without its caller when that takes long.
    """
    client, name, late = target.client, made.job["metadata"]["name"], False
    words = f"{name} --namespace {target.namespace}"
    path, run = f"{made.path}/{name}", made.job["metadata"]["annotations"][marks.RUN]

    async def undo() -> None:
        await asyncio.wait({making})
        if not making.cancelled():
            making.exception()  # whoever waits for it raises it
        try:
            item = await client.find(path)
            if item and (item["metadata"].get("annotations") or {}).get(marks.RUN) == run:
                await client.delete(path, uid=item["metadata"]["uid"])
        except BackendError as error:
            text = f"{name} could not be removed again, and may exist: {error.message}"
            emit(Notice(f"{text} `%ciao delete {words}` tries again."))
        else:
            if late:
                emit(Notice(f"{name} is removed again."))

    undoing = lasting(undo())
    try:
        await asyncio.wait({undoing}, timeout=_PATIENCE)
    finally:
        if not undoing.done():
            late = True
            text = f"{name} may exist, for the API server has not answered yet. When it does, the "
            emit(Notice(f"{text}job is removed again; `%ciao delete {words}` does so too."))


async def _version(client: Client) -> Manifest:
    """What the server is; nothing where it does not say, which costs only what is new."""
    try:
        return await client.known("/version")
    except Refused:
        return {}


def _at_least(version: Manifest, major: int, minor: int) -> bool:
    """Compare a server's version, which may be ``1.30+``."""
    digits = [
        "".join(c for c in str(version.get(key, "")) if c.isdigit()) for key in ("major", "minor")
    ]
    return all(digits) and (int(digits[0]), int(digits[1])) >= (major, minor)
