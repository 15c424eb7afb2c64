"""Checks before a job with files of ``%output`` is created: can they come back?"""

from __future__ import annotations

import asyncio

from ciao_kernel.backends.kubernetes import rights
from ciao_kernel.backends.kubernetes.apis import OPERATOR_V1, job_metadata, template_holder
from ciao_kernel.backends.kubernetes.cluster import checks
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects
from ciao_kernel.backends.kubernetes.output import (
    output_claim,
    output_registry,
    output_sidecar,
    output_store,
)
from ciao_kernel.backends.kubernetes.rights import Right
from ciao_kernel.backends.kubernetes.submission import choice
from ciao_kernel.config import Settings
from ciao_kernel.delivery.transfers import size_text
from ciao_kernel.errors import Refused, SpecError
from ciao_kernel.model import Job, JobSpec
from ciao_kernel.model.outputs import OutputWay
from ciao_kernel.plugins import AnyLanguage, Plan

RIGHTS = tuple(Right(verb, "pods", subresource="exec") for verb in ("create", "get"))
"""A WebSocket begins as a GET; servers from 1.35 on also require create."""
READS_CLAIM = (Right("create", "pods"), Right("delete", "pods"), *RIGHTS)
"""A pod reads the files on a claim, when the job's pods have ended."""
_INSTEAD = "Leave out %{}, and let the program write its files to a %volume."


async def check(plan: Plan, target: Target, settings: Settings) -> None:
    """Check that files of a cell can come back from this cluster.

    Raises:
        SpecError: The framework or the cluster cannot keep them.
        ClusterFault: The user may not fetch them; the error lists the missing rights.
        EnvironmentFault: The file of a registry's authority cannot be used.
        BackendError: There are no credentials for the bucket, or too many addresses. Or the
            registry refuses, or does not answer.
    """
    directive = _directive(plan)
    instead = _INSTEAD.format(directive)
    if isinstance(plan.framework, AnyLanguage):
        raise SpecError(
            f"files of a job of {plan.framework.name} do not come back from a cluster: its image "
            "need not have Python, which keeps and sends them.",
            instead,
            directive=directive,
        )
    # Warm replicas give their files themselves.
    beside = plan.spec.warm is None
    if beside and not choice.at_least(await choice.server_version(target), *output_sidecar.OLDEST):
        raise SpecError(
            f"files come back by %{directive} from Kubernetes 1.29 on, and this cluster is older.",
            instead,
            directive=directive,
        )
    chosen = await way(plan.spec, target, settings)
    if chosen in (OutputWay.REGISTRY, OutputWay.CLAIM) and not beside:
        why = (
            "the program's own container would have the password"
            if chosen is OutputWay.REGISTRY
            else "their pods do not end after a run"
        )
        raise SpecError(
            f"files of a run in warm replicas do not come back by:{chosen}: {why}.",
            "Write %output=by:exec, by:log or by:s3; or leave out %warm.",
            directive="output",
        )
    if chosen is OutputWay.S3:
        await _check_store(plan.spec, settings)
    if chosen is OutputWay.REGISTRY:
        await output_registry.check(plan.spec, target, settings)
    if chosen is OutputWay.CLAIM:
        await _check_claim(plan.spec, target, settings)
    # Event files are also read while the program writes them.
    if plan.spec.tensorboard or chosen is OutputWay.EXEC:
        await checks.require_rights(target, f"fetch the files of %{directive}", *RIGHTS)


async def _check_claim(spec: JobSpec, target: Target, settings: Settings) -> None:
    where = output_claim.place(spec, settings)
    what = "read the files of %output by a pod that mounts their claim"
    await checks.require_rights(target, what, *READS_CLAIM)
    path = f"/api/v1/namespaces/{target.namespace}/persistentvolumeclaims/{where.claim}"
    try:
        found = await target.client.find(path)
    except Refused:
        return  # whoever may not look waits for it, as for any volume
    if found is None:
        raise SpecError(
            f"there is no claim {where.claim} in the namespace {target.namespace}, to which files "
            "of %output would go.",
            "`kubectl get pvc` shows the claims; the setting outputClaim names one.",
            directive="output",
        )


async def _check_store(spec: JobSpec, settings: Settings) -> None:
    if not settings.output_store:
        raise SpecError(
            "by:s3 needs a bucket, and the setting outputStore names none.",
            "`%ciao config outputStore=s3://BUCKET/PREFIX`",
            directive="output",
        )
    if len(spec.replicas()) > output_store.MOST:
        raise SpecError(
            f"files of more than {output_store.MOST} replicas do not come back by a bucket.",
            "Write %output=by:exec, or let the program write to a %volume.",
            directive="output",
        )
    await asyncio.to_thread(output_store.upload, settings, spec.replicas(), real=True)


async def way(spec: JobSpec, target: Target, settings: Settings) -> OutputWay:
    """Return the way by which files of a cell come back.

    It is the cell's; else the bucket, if there is one for so many replicas; else what the rights
    allow.
    """
    named = next(iter(spec.output_ways), OutputWay.AUTO)
    if named is not OutputWay.AUTO:
        return named
    if not (spec.kept_paths or spec.output_names):
        return OutputWay.EXEC
    if settings.output_store and len(spec.replicas()) <= output_store.MOST:
        return OutputWay.S3
    may = all(await rights.allowed(target.client, target.namespace, *RIGHTS))
    return OutputWay.EXEC if may else OutputWay.LOG


async def way_notice(spec: JobSpec, target: Target, settings: Settings) -> str:
    """Return what a user has to know before files leave a pod; "" if nothing."""
    chosen = await way(spec, target, settings)
    if spec.output_paths and chosen is OutputWay.S3:
        return f"files of %output come back by the bucket {settings.output_store}."
    if spec.output_paths and chosen is OutputWay.REGISTRY:
        where = output_registry.place(settings, spec.build.registry, None)
        return f"files of %output come back by the registry {where.repository.name}."
    if spec.output_paths and chosen is OutputWay.CLAIM:
        return f"files of %output come back by the claim {output_claim.place(spec, settings)}."
    if not spec.output_paths or chosen is not OutputWay.LOG:
        return ""
    most = size_text(output_sidecar.limit(settings, OutputWay.LOG))
    why = (
        ""
        if OutputWay.LOG in spec.output_ways
        else ", as you may not create and get pods/exec here"
    )
    return f"files of %output come back by the log{why}: at most {most} from each replica."


async def detached_notice(spec: JobSpec, target: Target, job: Job, settings: Settings) -> str:
    """Return how the files of a job that runs in the background come back; "" without files."""
    attach = f"`%ciao attach {job.reference}`"
    if not spec.output_paths:
        return ""
    chosen = await way(spec, target, settings)
    if chosen is OutputWay.CLAIM:
        return (
            f"files of %output come back by {attach} or `%ciao fetch {job.reference}` as long as "
            f"the job exists; until then they stay on the claim "
            f"{output_claim.place(spec, settings).claim}."
        )
    if chosen is not OutputWay.EXEC:
        return f"files of %output come back if {attach} follows the job while its pods exist."
    return (
        f"files of %output come back if {attach} follows the job at its end, or begins within "
        f"{settings.fetch_wait:g} s after it (the setting fetchWait); later they are lost."
    )


async def try_out(plan: Plan, target: Target, made: Objects) -> None:
    """Try the object with the pod templates in a dry run of the server.

    Args:
        plan: The job.
        target: Cluster and namespace.
        made: Its objects.

    Raises:
        SpecError: Its schema drops what the job's pods need.
    """
    holder = made.holder
    path = made.path if holder is made.job else job_metadata.collection(holder)
    try:
        found = await target.client.create(path, holder, dry_run=True)
    except Refused:
        return  # the creation itself tells why
    if not output_sidecar.is_native(template_holder.pod_templates(found).values()):
        directive = _directive(plan)
        raise SpecError(
            f"files do not come back by %{directive} from a {made.job['kind']} of this cluster: "
            "its operator is older than native sidecars.",
            f"{_INSTEAD.format(directive)} Or write %api=job."
            if made.job["apiVersion"].startswith(OPERATOR_V1.group)
            else _INSTEAD.format(directive),
            directive=directive,
        )


def _directive(plan: Plan) -> str:
    return "output" if plan.spec.output_paths or not plan.spec.tensorboard else "tensorboard"
