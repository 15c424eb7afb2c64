"""Creates a job on a cluster: all of it, or nothing."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import OPERATOR_V1, Api, job_metadata
from ciao_kernel.backends.kubernetes.cluster import checks
from ciao_kernel.backends.kubernetes.cluster.build_pods import KubernetesBuildCluster
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.lifecycle import creation, kernel_pod, next_objects
from ciao_kernel.backends.kubernetes.manifests import (
    manifest,
    pod_patch,
    pod_template,
    queue_request,
)
from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects
from ciao_kernel.backends.kubernetes.manifests.runtime_overrides import Fields
from ciao_kernel.backends.kubernetes.output import output_claim, output_registry, output_store
from ciao_kernel.backends.kubernetes.output.output_claim import Copying
from ciao_kernel.backends.kubernetes.output.output_registry import Push
from ciao_kernel.backends.kubernetes.output.output_store import Upload
from ciao_kernel.backends.kubernetes.submission import (
    architecture,
    choice,
    claim_checks,
    cpu_request,
    output_checks,
    sent_values,
    validation,
)
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, Refused, SpecError
from ciao_kernel.model import Job, Notice, naming
from ciao_kernel.model.spec import OutputWay
from ciao_kernel.plugins import AnyLanguage, Build, Builder, Emit, Launching, Plan

_DETACH_HINT = (
    "To keep jobs, name another namespace (%namespace=…), or start the kernel with "
    "KERNEL_NAMESPACE."
)


async def prepare(
    plan: Plan,
    builder: Builder,
    target: Target,
    settings: Settings,
    emit: Emit,
    name: str,
    api: Api = OPERATOR_V1,
    fields: Fields | None = None,
) -> tuple[Job, Objects]:
    """Build, and return the job and its objects; nothing is created yet.

    Args:
        plan: The program to run, with its options.
        builder: Packs the source.
        target: Cluster and namespace.
        settings: Image, timeouts, grace periods.
        emit: Receives notices for the user.
        name: Name of the job.
        api: The API that runs the job.
        fields: What a TrainJob can change in a runtime of the cluster; None if it brings its own.

    Raises:
        SourceError: From the builder.
        ClusterFault: The namespace does not exist, or is being deleted.
    """
    # An image for a program in another language may have no Python.
    free = isinstance(plan.framework, AnyLanguage)
    python = "" if free else plan.spec.python or settings.cluster_python
    if python.startswith("~"):
        raise SpecError(
            f"{python} is not valid in a pod: ~ is the home directory on this machine.",
            "Give the path in the image, such as /opt/venv/bin/python, or omit %python.",
            directive="python",
        )
    file = plan.spec.cluster.pod_patch
    patch = pod_patch.read(file, plan.folder) if file else {}
    # Not in parallel with the build, which may take long and must not outlive a refusal.
    version, facts, nodes, cpu, way, values = await asyncio.gather(
        choice.server_version(target),
        checks.namespace_facts(target),
        architecture.of_nodes(plan, target, settings),
        cpu_request.of_replicas(plan, target, settings),
        output_checks.way(plan.spec, target, settings),
        sent_values.giver(plan, target, settings, brings=fields is None),
    )
    with tempfile.TemporaryDirectory(prefix="ciao-") as folder:
        ask = Build(
            plan.source,
            plan.spec,
            python,
            name,
            Path(folder),
            plan.folder,
            pod_template.image_of(plan, settings),
            nodes,
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
        root=artifact.workdir,
        header=plan.header,
        plot=plan.spec.plot,
        lines=plan.spec.lines,
        grace=plan.spec.grace,
        retries=plan.spec.retries or 0,
        made_of=plan.made_of,
        owner=plan.owner.label,
        detached=plan.spec.detach,
    )
    run = secrets.token_hex(8)
    sleeps = choice.at_least(version, 1, 30)
    upload: Upload | Push | Copying | None = None
    keeps = bool(plan.spec.kept_paths or values)
    if keeps and way is OutputWay.S3:
        real = not plan.spec.dryrun
        upload = await asyncio.to_thread(output_store.upload, settings, job.replicas, real=real)
    if keeps and way is OutputWay.REGISTRY:
        real = not plan.spec.dryrun
        upload = await asyncio.to_thread(output_registry.push, plan.spec, settings, real=real)
    if keeps and way is OutputWay.CLAIM:
        upload = output_claim.copying(plan.spec, settings)
    objects = functools.partial(
        manifest.objects,
        plan,
        job,
        artifact,
        settings,
        run,
        cpu=cpu,
        sleeps=sleeps,
        api=api,
        fields=fields,
        way=way,
    )
    made = objects(upload=upload, values=values)
    if values and not plan.spec.kept_paths and not plan.spec.dryrun:
        try:
            await output_checks.try_out(plan, target, made)
        except SpecError:  # an older operator: a value that is too large stays in its pod
            made = objects()
    made = pod_patch.apply(made, patch, file) if file else made
    if facts.restricted:
        if isinstance(plan.framework, Launching) and api in (OPERATOR_V1, apis.MPI_OPERATOR):
            what = "a container that the operator adds to the launcher"
            if api is apis.MPI_OPERATOR:
                what = "root, which ssh needs in most images"
            raise SpecError(
                f"jobs of {plan.framework.name} cannot run in {target.namespace}: Pod Security "
                f"refuses {what}.",
                "Write %api=job, or name a namespace of the level baseline with %namespace=….",
                directive="framework",
            )
        made = manifest.secured(made)
    return replace(job, resource=apis.resource_of(made.path), run=run), made


async def submit(
    plan: Plan,
    builder: Builder,
    target: Target,
    settings: Settings,
    emit: Emit,
    *,
    outlive: bool,
    told: set[tuple[str, str]],
) -> Job:
    """Create all objects of a job; remove the created objects if a later step fails.

    Args:
        plan: The program to run, with its options.
        builder: Packs the source.
        target: Cluster and namespace.
        settings: Image, timeouts, grace periods.
        emit: Receives notices for the user.
        outlive: Whether the job may outlive this kernel.
        told: Contexts, and what this process has said there about the choice of an API: it is
            shown once, but a caution about the cell each time.

    Raises:
        SpecError, ClusterFault: The cluster refuses the job; no part of it exists.
        BackendError: No name is free.
    """
    chosen = await choice.choose(plan, target, settings)
    said_of_api = target.context, chosen.notice
    if chosen.notice and (chosen.caution or said_of_api not in told):
        told.add(said_of_api)
        emit(Notice(chosen.notice))
    path = manifest.collection(manifest.kind_of(plan, chosen.api), target.namespace)
    await queue_request.check(plan.spec.cluster, target, settings)
    for said in await claim_checks.check(plan.spec, target, settings, plan.name or ""):
        emit(Notice(said))
    await _lasts(plan, target, emit)
    if said := await output_checks.way_notice(plan.spec, target, settings):
        emit(Notice(said))
    owner = None if outlive else await kernel_pod.owner(target)
    ours = await validation.our_names(target, path, plan.name) if plan.name else {}
    likely_free = True  # the first name usually is, so its answer is not awaited
    for number in range(1, naming.MOST + 1):
        name = naming.candidate(plan.name, plan.framework.name, number)
        if ours.get(name):
            continue
        new = name not in ours
        asked = validation.taken(target, path, name, asks_own=new) if plan.name else _free()
        async with _asked(asked) as answer:
            if not likely_free and await answer:
                continue
            likely_free = False
            # An error here occurs with any name, and may have taken an hour to appear.
            job, made = await prepare(
                plan, builder, target, settings, emit, name, chosen.api, chosen.fields
            )
            try:
                made = await validation.try_out(target, made)
                if plan.spec.kept_paths:
                    await output_checks.try_out(plan, target, made)
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
        if plan.spec.retries:
            made = next_objects.with_submitted(made)
        try:
            item = await creation.create(target, made, emit)
        except Refused as error:
            if error.reason == "AlreadyExists":  # the name was taken since the check
                continue
            raise checks.refusal(error, target) from error
        if plan.name:
            validation.remember(target, path, name)
        if said := queue_request.ignored(item, plan.spec.cluster, settings):
            emit(Notice(said))
        return replace(job, created=time.time(), uid=str(item["metadata"]["uid"]))
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
    if not (await checks.namespace_facts(target)).deleted_with_kernel:
        return
    goes = f"the namespace {target.namespace} was made for this kernel and is deleted with it"
    if plan.spec.detach:
        raise SpecError(
            f"{goes}: no job there outlives the kernel.", _DETACH_HINT, directive="detach"
        )
    emit(Notice(f"{goes}, and so is the job. {_DETACH_HINT}"))


async def _free() -> bool:
    return False
