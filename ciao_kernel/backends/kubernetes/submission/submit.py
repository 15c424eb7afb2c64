"""Creates a job on a cluster: all of it, or nothing."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from typing import Any

from ciao_kernel.backends.kubernetes.cluster import checks
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.lifecycle import (
    creation,
    kernel_pod,
    next_objects,
    retry_notices,
)
from ciao_kernel.backends.kubernetes.manifests import manifest, queue_request
from ciao_kernel.backends.kubernetes.submission import (
    choice,
    claim_checks,
    output_checks,
    validation,
)
from ciao_kernel.backends.kubernetes.submission.prepare import prepare
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, Refused, SpecError
from ciao_kernel.model import Job, Notice, naming
from ciao_kernel.plugins import Builder, Emit, Plan

_DETACH_HINT = (
    "To keep jobs, name another namespace (%namespace=…), or start the kernel with "
    "KERNEL_NAMESPACE."
)


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
                made = await validation.try_out(target, made, emit=emit)
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
        if plan.spec.retries:
            emit(Notice(retry_notices.resubmission(name, replaces=chosen.replaces_disrupted)))
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
