"""From a plan to the objects that are created: pure functions, dicts out."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ciao_kernel.backends.kubernetes import marks
from ciao_kernel.config import Settings
from ciao_kernel.kube.tolerations import toleration
from ciao_kernel.model import Artifact, CleanPolicy, ClusterSpec, Job, Manifest, ReplicaGroup
from ciao_kernel.plugins import JobManifest, Plan


@dataclass(frozen=True, slots=True)
class Objects:
    """What one submission creates: what is beside the job first, then the job."""

    beside: tuple[Manifest, ...]
    job: Manifest
    path: str
    """Of the job's kind in the API, up to the namespace's jobs."""
    secured: bool = False
    """Whether its pods ask for no rights, as :func:`secured` makes them."""


def kind_of(plan: Plan) -> JobManifest:
    """What kind of job it will be. Its pods are empty: nobody looks at them."""
    empty: Manifest = {"metadata": {}, "spec": {"containers": [{}]}}
    return plan.framework.manifest(plan.spec, {group.role: empty for group in plan.spec.groups})


def collection(made: JobManifest, namespace: str) -> str:
    """The path that jobs of a kind are created at."""
    return f"/apis/{made.api_version}/namespaces/{namespace}/{made.plural}"


def objects(
    plan: Plan, job: Job, artifact: Artifact, settings: Settings, run: str, *, sleeps: bool
) -> Objects:
    """Return everything that a job consists of.

    Args:
        plan: What to run.
        job: Its name and place.
        artifact: What the builder made.
        settings: Default image, time to live, graces.
        run: A word that no other submission has.
        sleeps: Whether the cluster knows ``preStop.sleep`` (Kubernetes 1.30).
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
        "labels": {**dict(cluster.labels), **marks.labels(job.name)},
        "annotations": {
            **dict(cluster.annotations),
            **marks.notes(job, run, plan.framework.decider(plan.spec), plan.framework.endless),
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
                "labels": marks.labels(job.name),
                "annotations": {marks.RUN: run},
            },
        }
        for item in artifact.objects
    )
    return Objects(beside, body, collection(made, job.place))


def pods_of(body: Manifest) -> dict[str, Manifest]:
    """Return the pod templates of a job's manifest, by the role as the kind spells it."""
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
    """Return what two jobs have in common that a cluster takes or refuses alike.

    That is everything but their names and their source.
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
    """Return the objects with pods that Pod Security's level ``restricted`` lets in.

    Not the way that all pods are made: an image whose user is root does not start then, and one
    that starts may not write what belongs to others.
    """
    body = copy.deepcopy(made.job)
    for pod in pods_of(body).values():
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
        # By the operator, so that a PS goes also when nobody follows the job. For "all" the job
        # itself is deleted once its logs are read, which the operator could not know.
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
        # When worker-0 has ended the job is over, and the operator deletes those that still run.
        # They get a moment to end by themselves, and to write their last lines.
        container["lifecycle"] = {"preStop": {"sleep": {"seconds": int(settings.linger)}}}
    spec: Manifest = {
        "containers": [container],
        "volumes": [
            *artifact.volumes,
            # PyTorch's data loaders share tensors there; a container's own has 64 MiB.
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
        "terminationGracePeriodSeconds": max(1, round(settings.linger + settings.stop_grace)),
        "enableServiceLinks": False,
        # Else the program is process 1, which SIGTERM does not end unless it asks for that: each
        # stop, and each end of a PS, would take the whole grace period.
        "shareProcessNamespace": True,
        "automountServiceAccountToken": cluster.service_account is not None,
    }
    if plan.spec.deadline is not None:
        # The operator looks at its own deadline when something else happens; a kubelet at once.
        spec["activeDeadlineSeconds"] = plan.spec.deadline
    if artifact.init_containers:
        # A quota that wants limits wants them of every container.
        asked = {"image": image, "resources": container["resources"]}
        spec["initContainers"] = [{**asked, **one} for one in artifact.init_containers]
    spec |= _placement(cluster)
    return {
        "metadata": {
            "labels": {
                **dict(cluster.labels),
                **marks.labels(job.name),
                "sidecar.istio.io/inject": "false",
            },
            # With a sidecar a pod never ends. Old versions of Istio read the annotation.
            "annotations": {**dict(cluster.annotations), "sidecar.istio.io/inject": "false"},
        },
        "spec": spec,
    }


def architecture(plan: Plan, settings: Settings) -> str:
    """What the replicas' nodes are, in Go's words: as the cell picks them, else the setting."""
    return dict(plan.spec.cluster.node_selector).get("kubernetes.io/arch") or settings.architecture


def image_of(plan: Plan, settings: Settings) -> str:
    """The image of a job's replicas: the cell's, the settings', the framework's."""
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
    """The variables of every replica; the operator adds the framework's own."""

    def from_label(name: str, label: str) -> Manifest:
        path = f"metadata.labels['{label}']"
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}

    own = {"CIAO_JOB": job.name, "PYTHONUNBUFFERED": "1", **dict(artifact.env)}
    told = dict(plan.spec.env)
    if (path := dict(artifact.env).get("PYTHONPATH")) and "PYTHONPATH" in told:
        # The packages lie there that the builder brings. Else they could not be imported.
        told["PYTHONPATH"] = f"{path}:{told['PYTHONPATH']}"
    own |= told
    return [
        from_label("CIAO_ROLE", marks.OPERATOR_ROLE),
        from_label("CIAO_INDEX", marks.OPERATOR_INDEX),
        {"name": "CIAO_REPLICA", "value": "$(CIAO_ROLE)-$(CIAO_INDEX)"},
        *({"name": name, "value": _literal(value)} for name, value in own.items()),
    ]


def _literal(text: str) -> str:
    """Keep Kubernetes from putting a variable in the place of ``$(NAME)``, and ``$`` for ``$$``."""
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
    # Both the same: a replica that gets more than it asked for is the first to be evicted.
    return {"requests": found, "limits": dict(found)} if found else {}
