"""Objects to create for a plan: pure functions that return dicts."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ciao_kernel.backends.kubernetes.apis import (
    JOB,
    MPI_OPERATOR,
    OPERATOR_V1,
    TRAINER,
    Api,
    job_metadata,
    operator_v1,
)
from ciao_kernel.backends.kubernetes.apis.template_holder import pod_templates
from ciao_kernel.backends.kubernetes.manifests import (
    gangs,
    indexed_manifest,
    indexed_rules,
    queue_request,
    replica_variables,
    shared_runtime,
    trainer_manifest,
    volumes,
)
from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects, Shared
from ciao_kernel.backends.kubernetes.manifests.pod_template import pod_template
from ciao_kernel.backends.kubernetes.manifests.runtime_overrides import Fields
from ciao_kernel.backends.kubernetes.object_fields import mapping
from ciao_kernel.backends.kubernetes.output.output_claim import Copying
from ciao_kernel.backends.kubernetes.output.output_registry import Push
from ciao_kernel.backends.kubernetes.output.output_store import Upload
from ciao_kernel.config import Settings
from ciao_kernel.model import Artifact, CleanPolicy, Job, Manifest, Replica
from ciao_kernel.model.spec import OutputWay
from ciao_kernel.plugins import (
    JobManifest,
    OperatorKind,
    Plan,
    StartedBySsh,
    endless_roles,
)


def kind_of(plan: Plan, api: Api = OPERATOR_V1) -> JobManifest:
    """Return the kind of the job, with empty pods: only the kind is used.

    Args:
        plan: The program to run; its framework has a kind of the operator if that is the API.
        api: The API that runs the job.
    """
    empty: Manifest = {"metadata": {}, "spec": {"containers": [{}]}}
    return _rendered(plan, api, {group.role: empty for group in plan.spec.groups})


def _rendered(plan: Plan, api: Api, pods: Mapping[str, Manifest]) -> JobManifest:
    if api is JOB:
        return indexed_manifest.KIND
    if api is TRAINER:
        return trainer_manifest.KIND
    if api is MPI_OPERATOR:
        assert isinstance(plan.framework, StartedBySsh)  # the same
        return plan.framework.ssh_manifest(plan.spec, pods)
    assert isinstance(plan.framework, OperatorKind)  # choice.choose has checked it
    return plan.framework.manifest(plan.spec, pods)


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
    way: OutputWay = OutputWay.EXEC,
    upload: Upload | Push | Copying | None = None,
    values: Replica | None = None,
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
        way: How files of ``%output`` leave the pods.
        upload: What the pods need for a bucket, a registry or a claim, if that is the way.
        values: The replica whose large values come as files; None if none do.

    Raises:
        SpecError: The API cannot run it.
    """
    identity = operator_v1.identity() if api in (OPERATOR_V1, MPI_OPERATOR) else ()
    one_template = api is JOB  # of all replicas: whichever role it is made for
    pods = {
        group.role: pod_template(
            plan,
            job,
            artifact,
            group,
            settings,
            identity,
            cpu=cpu,
            sleeps=sleeps,
            way=way,
            upload=upload,
            values=values if values and (one_template or values.role == group.role) else None,
        )
        for group in plan.spec.groups
        if group.count
    }
    pods = {role: gangs.pod(pod, settings, api) for role, pod in pods.items()}
    if api is MPI_OPERATOR:
        pods = {role: _named(pod, role, run) for role, pod in pods.items()}
    made = _rendered(plan, api, pods)
    own: tuple[Manifest, ...] = ()
    rules: dict[str, str] = {}
    shared: Shared | None = None
    if api is TRAINER and fields:
        variables = shared_runtime.config_map(plan, job.name, pods)
        pod = pods[indexed_rules.template_role(plan)]
        sketch = shared_runtime.sketch(plan, job, pod, variables, artifact.python, run)
        shared = Shared(sketch, plan.framework, fields)
        spec = shared.spec()
        own = (variables,)
    elif api is TRAINER:
        variables = trainer_manifest.config_map(plan, job.name)
        runtime = trainer_manifest.runtime(plan, job, pods, variables, artifact.python, run)
        runtime = gangs.runtime(runtime, settings)
        spec, rules = trainer_manifest.spec(runtime), trainer_manifest.rules(plan)
        own = (variables, runtime)
    elif api is JOB:
        possible = indexed_rules.possible_replicas(plan)
        known = replica_variables.addresses(job.name, possible)
        variables = replica_variables.config_map(plan, job.name, pods, known)
        pod = pods[indexed_rules.template_role(plan)]
        spec = indexed_manifest.spec(plan, job, pod, settings, variables, artifact.python)
        own = (variables, *indexed_manifest.services(job.name, len(possible)))
    else:
        policy = _run_policy(plan, settings, made)
        policy |= gangs.policy(plan.spec, settings)
        # The launcher is a Job, which would start a failed program again.
        policy |= {"backoffLimit": 0} if api is MPI_OPERATOR else {}
        spec = {"runPolicy": policy, **made.spec}
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
            **rules,
        },
    }
    body = {"apiVersion": made.api_version, "kind": made.kind, "metadata": meta, "spec": spec}
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
        for item in (*artifact.objects, *own)
    )
    return Objects(beside, body, collection(made, job.place), shared=shared)


def _named(pod: Manifest, role: str, run: str) -> Manifest:
    """Return a pod that tells its role and its job: mpi-operator does not."""
    meta = pod["metadata"]
    labels = {**meta["labels"], operator_v1.ROLE_LABEL: role}
    notes = {**meta["annotations"], job_metadata.RUN: run}
    return {**pod, "metadata": {**meta, "labels": labels, "annotations": notes}}


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


def secured(made: Objects) -> Objects:
    """Return the objects with pods that Pod Security accepts at the level ``restricted``.

    Not the default: an image whose user is root would not start, and other images could not
    write files of other users.
    """
    body = copy.deepcopy(made.holder)
    for pod in pod_templates(body).values():
        spec = pod["spec"]
        # What a %podPatch sets stays, such as a user for an image that has root, or the group that
        # a claim's files have already. Pod Security judges it.
        spec["securityContext"] = {
            "seccompProfile": {"type": "RuntimeDefault"},
            **volumes.group(spec),
            **mapping(spec.get("securityContext")),
            "runAsNonRoot": True,
        }
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            own = mapping(container.get("securityContext"))
            container["securityContext"] = {
                **own,
                "allowPrivilegeEscalation": False,
                "capabilities": {**mapping(own.get("capabilities")), "drop": ["ALL"]},
            }
    return replace(made.with_holder(body), secured=True)


def _run_policy(plan: Plan, settings: Settings, made: JobManifest) -> Manifest:
    policy = plan.spec.clean_policy or settings.clean_policy
    keeps = policy is CleanPolicy.NONE or made.ends_pods
    cluster = plan.spec.cluster
    ttl = cluster.ttl if cluster.ttl is not None else int(settings.ttl)
    found: Manifest = {
        # The operator deletes pods, so that a PS ends even if nobody follows the job. For "all"
        # the job itself is deleted after its logs are read; the operator cannot know that time.
        "cleanPodPolicy": "None" if keeps else "Running",
        "ttlSecondsAfterFinished": ttl,
    }
    if plan.spec.deadline is not None:
        found["activeDeadlineSeconds"] = plan.spec.deadline
    if plan.spec.restart_limit is not None:
        found["backoffLimit"] = plan.spec.restart_limit
    return found
