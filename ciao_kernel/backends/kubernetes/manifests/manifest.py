"""Objects to create for a plan: pure functions that return dicts."""

from __future__ import annotations

import json
from typing import Any

from ciao_kernel.backends.kubernetes.apis import (
    JOB,
    MPI_OPERATOR,
    OPERATOR_V1,
    TRAINER,
    Api,
    job_metadata,
)
from ciao_kernel.backends.kubernetes.manifests import (
    gangs,
    indexed_manifest,
    operator_manifest,
    queue_request,
    shared_runtime,
    trainer_manifest,
)
from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects
from ciao_kernel.backends.kubernetes.manifests.pod_template import pod_template
from ciao_kernel.backends.kubernetes.manifests.rendering import Rendering, Request
from ciao_kernel.backends.kubernetes.manifests.runtime_overrides import Fields
from ciao_kernel.backends.kubernetes.output.delivery import Delivery
from ciao_kernel.config import Settings
from ciao_kernel.model import Artifact, Job
from ciao_kernel.plugins import JobManifest, Plan, endless_roles

_BY_EXEC = Delivery()
_RENDERINGS = {
    OPERATOR_V1.name: operator_manifest.OPERATOR,
    MPI_OPERATOR.name: operator_manifest.MPI_BY_SSH,
    JOB.name: indexed_manifest.RENDERING,
    TRAINER.name: trainer_manifest.RENDERING,
}


def rendering(api: Api, *, shared: bool = False) -> Rendering:
    """Return how jobs of an API are written.

    Args:
        api: The API that runs the job.
        shared: Whether a TrainJob uses a runtime of the cluster.
    """
    return shared_runtime.RENDERING if shared else _RENDERINGS[api.name]


def kind_of(plan: Plan, api: Api = OPERATOR_V1) -> JobManifest:
    """Return the kind of the job, with empty pods: only the kind is used.

    Args:
        plan: The program to run; its framework has a kind of the operator if that is the API.
        api: The API that runs the job.
    """
    return rendering(api).kind(plan)


def collection(made: JobManifest, namespace: str) -> str:
    """Return the path at which jobs of a kind are created."""
    return f"/apis/{made.api_version}/namespaces/{namespace}/{made.plural}"


def objects(
    plan: Plan,
    job: Job,
    artifact: Artifact,
    settings: Settings,
    run: str,
    *,
    sleeps: bool,
    cpu: str = "",
    api: Api = OPERATOR_V1,
    fields: Fields | None = None,
    delivery: Delivery = _BY_EXEC,
) -> Objects:
    """Return all objects of a job.

    Args:
        plan: The program to run, with its options.
        job: Name and place of the job.
        artifact: Result of the builder.
        settings: Default image, time to live, grace periods.
        run: Unique identifier of the submission.
        sleeps: Whether the cluster supports ``preStop.sleep`` (Kubernetes 1.30).
        cpu: CPU request of replicas without ``%cpu``; "" means no request.
        api: The API that runs the job.
        fields: What a TrainJob can change in a runtime of the cluster; None if it brings its own.
        delivery: The way on which files leave the pods.

    Raises:
        SpecError: The API cannot run it.
    """
    form = rendering(api, shared=fields is not None)
    pods = {
        group.role: pod_template(
            plan,
            job,
            artifact,
            group,
            settings,
            api.identity,
            cpu=cpu,
            sleeps=sleeps,
            delivery=delivery.of_template(group.role, only=form.one_template),
        )
        for group in plan.spec.groups
        if group.count
    }
    pods = {role: gangs.pod(pod, settings, api) for role, pod in pods.items()}
    made = form.render(Request(plan, job, settings, artifact.python, run, fields), pods)
    cluster = plan.spec.cluster
    meta = {
        "name": job.name,
        "namespace": job.place,
        "labels": {
            **dict(cluster.labels),
            **queue_request.labels(cluster, settings),
            **job_metadata.labels(job.name),
        },
        "annotations": {
            **gangs.notes(plan.spec, settings, api),
            **dict(cluster.annotations),
            **job_metadata.notes(
                job,
                run,
                plan.framework.decider(plan.spec),
                endless_roles(plan.framework, plan.spec.serve),
            ),
            **made.notes,
        },
    }
    kind = made.kind
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": made.spec}
    beside = tuple(
        {
            **item,
            "metadata": {
                **item["metadata"],
                "namespace": job.place,
                "labels": job_metadata.labels(job.name),
                "annotations": job_metadata.source_notes(job, run),
            },
        }
        for item in (*artifact.objects, *made.beside)
    )
    return Objects(beside, body, collection(kind, job.place), shared=made.shared)


def shape(made: Objects) -> str:
    """Return a text that is equal for jobs that a cluster accepts or refuses alike.

    The text covers everything but their names and their source.
    """
    own = [made.job, *made.beside]
    names = {one["metadata"]["name"]: f"<{number}>" for number, one in enumerate(own)}

    def general(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: general(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [general(one) for one in value]
        return names.get(value, value) if isinstance(value, str) else value

    kinds = [(item["apiVersion"], item["kind"]) for item in made.beside]
    names[job_metadata.run(made.job)] = "<run>"
    specs = [general(one["spec"]) for one in (made.job, made.holder)]
    return json.dumps([made.path, kinds, specs], sort_keys=True)
