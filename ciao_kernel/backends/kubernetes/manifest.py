"""Objects to create for a plan: pure functions that return dicts."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ciao_kernel.backends.kubernetes import job_metadata
from ciao_kernel.config import Settings
from ciao_kernel.kube.tolerations import toleration
from ciao_kernel.model import Artifact, CleanPolicy, ClusterSpec, Job, Manifest, ReplicaGroup
from ciao_kernel.plugins import JobManifest, Plan


@dataclass(frozen=True, slots=True)
class Objects:
    """Objects that one submission creates: the job, and the objects beside it."""

    beside: tuple[Manifest, ...]
    job: Manifest
    path: str
    """API path of the namespace's jobs of this kind."""
    secured: bool = False
    """True if the pods need no privileges, as :func:`secured` makes them."""


def kind_of(plan: Plan) -> JobManifest:
    """Return the kind of the job, with empty pods: only the kind is used."""
    empty: Manifest = {"metadata": {}, "spec": {"containers": [{}]}}
    return plan.framework.manifest(plan.spec, {group.role: empty for group in plan.spec.groups})


def collection(made: JobManifest, namespace: str) -> str:
    """Return the path at which jobs of a kind are created."""
    return f"/apis/{made.api_version}/namespaces/{namespace}/{made.plural}"


def objects(
    plan: Plan, job: Job, artifact: Artifact, settings: Settings, run: str, *, sleeps: bool
) -> Objects:
    """Return all objects of a job.

    Args:
        plan: The program to run, with its options.
        job: Name and place of the job.
        artifact: Result of the builder.
        settings: Default image, time to live, grace periods.
        run: Unique identifier of the submission.
        sleeps: Whether the cluster supports ``preStop.sleep`` (Kubernetes 1.30).
    """
    roles = [group for group in plan.spec.groups if group.count]
    pods = {
        group.role: _pod(plan, job, artifact, group, settings, sleeps=sleeps) for group in roles
    }
    made: JobManifest = plan.framework.manifest(plan.spec, pods)
    cluster = plan.spec.cluster
    meta = {
        "name": job.name,
        "namespace": job.place,
        "labels": {**dict(cluster.labels), **job_metadata.labels(job.name)},
        "annotations": {
            **dict(cluster.annotations),
            **job_metadata.notes(
                job, run, plan.framework.decider(plan.spec), plan.framework.endless
            ),
        },
    }
    body = {
        "apiVersion": made.api_version,
        "kind": made.kind,
        "metadata": meta,
        "spec": {"runPolicy": _run_policy(plan, settings), **made.spec},
    }
    beside = tuple(
        {
            **item,
            "metadata": {
                **item["metadata"],
                "namespace": job.place,
                "labels": job_metadata.labels(job.name),
                "annotations": {job_metadata.RUN: run},
            },
        }
        for item in artifact.objects
    )
    return Objects(beside, body, collection(made, job.place))


def pod_templates(body: Manifest) -> dict[str, Manifest]:
    """Return the pod templates of a job's manifest by role, as the kind spells it."""
    spec = body.get("spec")
    for value in spec.values() if isinstance(spec, dict) else ():
        if (
            value
            and isinstance(value, dict)
            and all(isinstance(one, dict) and "template" in one for one in value.values())
        ):
            return {role: one["template"] for role, one in value.items()}
    return {}


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
    return json.dumps([made.path, kinds, general(made.job["spec"])], sort_keys=True)


def secured(made: Objects) -> Objects:
    """Return the objects with pods that Pod Security accepts at the level ``restricted``.

    Not the default: an image whose user is root would not start, and other images could not
    write files of other users.
    """
    body = copy.deepcopy(made.job)
    for pod in pod_templates(body).values():
        spec = pod["spec"]
        spec["securityContext"] = {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            container["securityContext"] = {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
    return replace(made, job=body, secured=True)


def _run_policy(plan: Plan, settings: Settings) -> Manifest:
    policy = plan.spec.clean_policy or settings.clean_policy
    cluster = plan.spec.cluster
    ttl = cluster.ttl if cluster.ttl is not None else int(settings.ttl)
    found: Manifest = {
        # The operator deletes pods, so that a PS ends even if nobody follows the job. For "all"
        # the job itself is deleted after its logs are read; the operator cannot know that time.
        "cleanPodPolicy": "None" if policy is CleanPolicy.NONE else "Running",
        "ttlSecondsAfterFinished": ttl,
    }
    if plan.spec.deadline is not None:
        found["activeDeadlineSeconds"] = plan.spec.deadline
    if cluster.backoff_limit is not None:
        found["backoffLimit"] = cluster.backoff_limit
    return found


def _pod(
    plan: Plan,
    job: Job,
    artifact: Artifact,
    group: ReplicaGroup,
    settings: Settings,
    *,
    sleeps: bool,
) -> Manifest:
    cluster = plan.spec.cluster
    image = artifact.image or image_of(plan, settings)
    container: Manifest = {
        "image": image,
        "command": [_literal(word) for word in plan.framework.command(plan.spec, artifact)],
        "workingDir": artifact.workdir,
        "env": _env(plan, job, artifact),
        "resources": _resources(plan, group.role),
        "volumeMounts": [*artifact.mounts, {"name": "shm", "mountPath": "/dev/shm"}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if cluster.env_secrets:
        container["envFrom"] = [{"secretRef": {"name": name}} for name in cluster.env_secrets]
    if sleeps and settings.linger >= 1:
        # When worker-0 has ended, the job is over and the operator deletes the running pods.
        # They get a moment to end by themselves and to write their last lines.
        container["lifecycle"] = {"preStop": {"sleep": {"seconds": int(settings.linger)}}}
    spec: Manifest = {
        "containers": [container],
        "volumes": [
            *artifact.volumes,
            # PyTorch's data loaders share tensors there; the default size is 64 MiB.
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
        "terminationGracePeriodSeconds": max(1, round(settings.linger + settings.stop_grace)),
        "enableServiceLinks": False,
        # Otherwise the program is process 1, which SIGTERM does not end without a handler: each
        # stop, and each end of a PS, would take the whole grace period.
        "shareProcessNamespace": True,
        "automountServiceAccountToken": cluster.service_account is not None,
    }
    if plan.spec.deadline is not None:
        # The operator checks its deadline only when something else changes; the kubelet at once.
        spec["activeDeadlineSeconds"] = plan.spec.deadline
    if artifact.init_containers:
        # A quota that requires limits requires them for every container.
        asked = {"image": image, "resources": container["resources"]}
        spec["initContainers"] = [{**asked, **one} for one in artifact.init_containers]
    spec |= _placement(cluster)
    return {
        "metadata": {
            "labels": {
                **dict(cluster.labels),
                **job_metadata.labels(job.name),
                "sidecar.istio.io/inject": "false",
            },
            # With a sidecar the pod never ends. Old versions of Istio read the annotation.
            "annotations": {**dict(cluster.annotations), "sidecar.istio.io/inject": "false"},
        },
        "spec": spec,
    }


def architecture(plan: Plan, settings: Settings) -> str:
    """Return the nodes' architecture in Go's terms: from the cell, else from the setting."""
    return dict(plan.spec.cluster.node_selector).get("kubernetes.io/arch") or settings.architecture


def image_of(plan: Plan, settings: Settings) -> str:
    """Return the image of a job's replicas: from the cell, the settings or the framework."""
    named: Mapping[str, str] = settings.images
    return plan.spec.cluster.image or named.get(plan.framework.name) or plan.framework.image


def _placement(cluster: ClusterSpec) -> Manifest:
    found: Manifest = {}
    if cluster.service_account:
        found["serviceAccountName"] = cluster.service_account
    if cluster.pull_secrets:
        found["imagePullSecrets"] = [{"name": name} for name in cluster.pull_secrets]
    if cluster.node_selector:
        found["nodeSelector"] = dict(cluster.node_selector)
    if cluster.tolerations:
        found["tolerations"] = [toleration(text) for text in cluster.tolerations]
    if cluster.priority_class:
        found["priorityClassName"] = cluster.priority_class
    return found


def _env(plan: Plan, job: Job, artifact: Artifact) -> list[Manifest]:
    """Return the variables of every replica; the operator adds those of the framework."""

    def from_label(name: str, label: str) -> Manifest:
        path = f"metadata.labels['{label}']"
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}

    own = {"CIAO_JOB": job.name, "PYTHONUNBUFFERED": "1", **dict(artifact.env)}
    told = dict(plan.spec.env)
    if (path := dict(artifact.env).get("PYTHONPATH")) and "PYTHONPATH" in told:
        # The builder's packages are there; otherwise they could not be imported.
        told["PYTHONPATH"] = f"{path}:{told['PYTHONPATH']}"
    own |= told
    return [
        from_label("CIAO_ROLE", job_metadata.OPERATOR_ROLE),
        from_label("CIAO_INDEX", job_metadata.OPERATOR_INDEX),
        {"name": "CIAO_REPLICA", "value": "$(CIAO_ROLE)-$(CIAO_INDEX)"},
        *({"name": name, "value": _literal(value)} for name, value in own.items()),
    ]


def _literal(text: str) -> str:
    """Escape ``$``: Kubernetes replaces ``$(NAME)`` by a variable, and ``$$`` by ``$``."""
    return text.replace("$", "$$")


def _resources(plan: Plan, role: str) -> Manifest:
    asked = plan.spec.asks(role)
    found: dict[str, str] = {}
    if asked.cpu:
        found["cpu"] = asked.cpu
    if asked.memory:
        found["memory"] = asked.memory
    if asked.gpu and asked.gpu.count:
        found[asked.gpu.resource] = str(asked.gpu.count)
    # Equal values: a replica that uses more than it requested is evicted first.
    return {"requests": found, "limits": dict(found)} if found else {}
