"""Makes the objects of a job: builds its source and asks the cluster what they depend on."""

from __future__ import annotations

import asyncio
import functools
import secrets
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import MPI_OPERATOR, OPERATOR_V1, Api, job_metadata
from ciao_kernel.backends.kubernetes.cluster import checks
from ciao_kernel.backends.kubernetes.cluster.build_pods import KubernetesBuildCluster
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.manifests import (
    manifest,
    pod_patch,
    pod_security,
    pod_template,
)
from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects
from ciao_kernel.backends.kubernetes.manifests.runtime_overrides import Fields
from ciao_kernel.backends.kubernetes.output import output_claim, output_registry, output_store
from ciao_kernel.backends.kubernetes.output.delivery import Delivery, Upload
from ciao_kernel.backends.kubernetes.submission import (
    architecture,
    choice,
    cpu_request,
    limit_ranges,
    output_checks,
    sent_values,
)
from ciao_kernel.config import Settings
from ciao_kernel.errors import SpecError
from ciao_kernel.model import Artifact, Job
from ciao_kernel.model.outputs import OutputWay
from ciao_kernel.plugins import AnyLanguage, Build, Builder, Emit, Launching, Plan


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

    Called for a submission (``submit``) and for ``%dryrun`` (``preview``).

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
        SpecError: The cluster cannot run such a job.
        ClusterFault: The namespace does not exist, or is being deleted.
    """
    python = _python(plan, settings)
    file = plan.spec.cluster.pod_patch
    patch = pod_patch.read(file, plan.folder) if file else {}
    # Not in parallel with the build, which may take long and must not outlive a refusal.
    version, facts, nodes, cpu, way, values = await asyncio.gather(
        choice.server_version(target),
        checks.namespace_facts(target),
        architecture.of_nodes(plan, target, settings, patch, shared=fields is not None),
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
    job = _job(plan, artifact, target, name)
    run = secrets.token_hex(8)
    delivery = Delivery(way)
    if plan.spec.kept_paths or values:
        rules = await limit_ranges.of_containers(target)
        delivery = Delivery(way, await _upload(way, plan, job, settings), values, rules)
    objects = functools.partial(
        manifest.objects,
        plan,
        job,
        artifact,
        settings,
        run,
        cpu=cpu,
        sleeps=choice.at_least(version, 1, 30),
        api=api,
        fields=fields,
    )
    made = objects(delivery=delivery)
    if values and not plan.spec.kept_paths and not plan.spec.dryrun:
        try:
            await output_checks.try_out(plan, target, made)
        except SpecError:  # an older operator: a value that is too large stays in its pod
            made = objects(delivery=Delivery(way))
    made = pod_patch.apply(made, patch, file) if file else made
    if facts.restricted:
        _check_restricted(plan, target, api)
        made = pod_security.secured(made)
    return replace(job, resource=apis.resource_of(made.path), run=run), made


def _python(plan: Plan, settings: Settings) -> str:
    """Return the pods' interpreter; "" if an image for another language may have none.

    Raises:
        SpecError: The path depends on this machine.
    """
    if isinstance(plan.framework, AnyLanguage):
        return ""
    python = plan.spec.python or settings.cluster_python
    if python.startswith("~"):
        raise SpecError(
            f"{python} is not valid in a pod: ~ is the home directory on this machine.",
            "Give the path in the image, such as /opt/venv/bin/python, or omit %python.",
            directive="python",
        )
    return python


def _job(plan: Plan, artifact: Artifact, target: Target, name: str) -> Job:
    """Return the job as it is known before the server has seen it."""
    return Job(
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


async def _upload(way: OutputWay, plan: Plan, job: Job, settings: Settings) -> Upload | None:
    """Return what the pods need to send files there; None if ciao reads files from the pods.

    Raises:
        SpecError: The storage of the settings cannot be used.
    """
    real = not plan.spec.dryrun
    if way is OutputWay.S3:
        return await asyncio.to_thread(output_store.upload, settings, job.replicas, real=real)
    if way is OutputWay.REGISTRY:
        return await asyncio.to_thread(output_registry.push, plan.spec, settings, real=real)
    if way is OutputWay.CLAIM:
        return output_claim.copying(plan.spec, settings)
    return None


def _check_restricted(plan: Plan, target: Target, api: Api) -> None:
    """Refuse what Pod Security at the level ``restricted`` does not let the API start.

    Raises:
        SpecError: A pod of the launcher needs root.
    """
    if not isinstance(plan.framework, Launching) or api not in (OPERATOR_V1, MPI_OPERATOR):
        return
    what = "a container that the operator adds to the launcher"
    if api is MPI_OPERATOR:
        what = "root, which ssh needs in most images"
    raise SpecError(
        f"jobs of {plan.framework.name} cannot run in {target.namespace}: Pod Security "
        f"refuses {what}.",
        "Write %api=job, or name a namespace of the level baseline with %namespace=….",
        directive="framework",
    )
