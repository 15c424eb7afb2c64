"""Kubeflow Trainer 2: TrainJobs (``trainer.kubeflow.org/v1alpha1``), which run as JobSets.

Facts: trainer 2.3, pkg/runtime/core/trainingruntime.go, pkg/webhooks, pkg/controller and
pkg/runtime/framework/plugins/jobset; jobset 0.12, pkg/webhooks/jobset_webhook.go.

A TrainJob has no pods in it: a runtime has. The runtimes that an administrator installs restart a
failed pod six times, and a TrainJob cannot change that: not by ``runtimePatches`` (2.2 and later),
``podTemplateOverrides`` (2.1) or ``podSpecOverrides`` (2.0). So ciao creates a TrainingRuntime for
each job, with a replicatedJob for each role. It says everything about the pods, also what no
installed runtime does, such as the parameter servers of TensorFlow; the TrainJob itself only refers
to it. Overrides are not needed, and so the version of their schema does not matter.

Users without the right for that use the ClusterTrainingRuntimes of ``deploy/``
(:mod:`.shared_runtime`), in which all replicas are pods of one replicatedJob, named ``node``.
"""

from __future__ import annotations

import re

from ciao_kernel.backends.kubernetes.apis import replica_list
from ciao_kernel.backends.kubernetes.apis.api import Api
from ciao_kernel.backends.kubernetes.apis.indexed_job import INDEX, JOB
from ciao_kernel.backends.kubernetes.apis.replica_list import ROLE
from ciao_kernel.backends.kubernetes.object_fields import get, many, mapping
from ciao_kernel.backends.kubernetes.rights import CLAIM, Right
from ciao_kernel.model import Manifest, Replica

GROUP, VERSION = "trainer.kubeflow.org", "v1alpha1"
RUNTIME, RUNTIMES = "TrainingRuntime", "trainingruntimes"
"""Kind of the object with the pods of a job, and its name in paths."""
SHARED = "ClusterTrainingRuntime"
"""Kind of the runtimes that administrators install."""
STEP, CONTAINER = "node", "node"
"""The replicatedJob of such a runtime with all replicas of ciao, and the program's container."""
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
"""Label of the replicatedJob to which a TrainJob's ``spec.trainer`` applies."""
PATCHES, OVERRIDES = "runtimePatches", "podTemplateOverrides"
"""Fields of a TrainJob that change its runtime: since Trainer 2.2, and in 2.1."""
RUNTIME_FIRST = "must be created before the TrainJob is created"
"""Part of the refusal of a TrainJob whose runtime Trainer does not see, after all other checks.
Source: ``pkg/webhooks/trainjob_webhook.go`` and ``pkg/runtime/core`` of Trainer 2.3."""
SNAPSHOT = "runtime-snapshot"
"""Last words of the name of a ConfigMap in which Trainer keeps a copy of the runtime."""
JOB_LABEL = "jobset.sigs.k8s.io/jobset-name"
ROLE_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
RULES = "ciao-kernel/rules"
"""Annotation of a TrainJob with the rules of its runtime that differ from the usual ones."""
RESTARTS, ALL_WORKERS = "restarts", "all-workers"
"""Words of that annotation: a failed replica is started again; all workers must succeed."""

_CONTROLLER = "trainer.kubeflow.org/trainjob-controller"
"""Default of ``managedBy``: Trainer itself."""
_NUMBER = re.compile(r"[0-9]{1,9}")


def is_object(item: Manifest) -> bool:
    """Return whether an object is a TrainJob or a runtime, by its form."""
    return get(item, "spec", "runtimeRef") is not None or bool(_parts(item))


def is_pod(pod: Manifest) -> bool:
    """Return whether a pod belongs to a JobSet."""
    return get(pod, "metadata", "labels", JOB_LABEL) is not None


def runtime_name(item: Manifest) -> str:
    """Return the name of the TrainingRuntime of a TrainJob; "" if it has another runtime."""
    found = get(item, "spec", "runtimeRef")
    return str(get(found, "name") or "") if get(found, "kind") == RUNTIME else ""


def _searches(job: str, replica: Replica) -> tuple[dict[str, str], ...]:
    # In a shared runtime all roles have one replicatedJob, so no pod has a label of its role.
    own = {JOB_LABEL: job, ROLE_LABEL: replica.role, INDEX: str(replica.index)}
    return own, {JOB_LABEL: job}


def _replica(pod: Manifest) -> Replica | None:
    if get(pod, "metadata", "annotations", replica_list.ANNOTATION) is not None:
        return JOB.replica(pod)  # all replicas are pods of one Indexed Job
    role = str(get(pod, "metadata", "labels", ROLE_LABEL) or "")
    index = str(get(pod, "metadata", "annotations", INDEX) or "")
    known = ROLE.fullmatch(role) and _NUMBER.fullmatch(index)
    return Replica(role, int(index)) if known else None


def _parents(job: str, role: str) -> tuple[tuple[str, str], ...]:
    # The JobSet has the TrainJob's name (trainer 2.3, pkg/runtime/framework/plugins/jobset), and a
    # Job that of its replicatedJob with an index (jobset 0.12, pkg/util/placement: GenJobName).
    jobs = dict.fromkeys((f"{job}-{role}-0", f"{job}-{STEP}-0"))
    return (*(("Job", name) for name in jobs), ("JobSet", job))


def _parts(item: Manifest) -> list[Manifest]:
    """Return the replicatedJobs of a runtime."""
    return many(item, "spec", "template", "spec", "replicatedJobs")


def _override(item: Manifest) -> Manifest | None:
    """Return what a TrainJob changes in the pods of a shared runtime; None if it has its own."""
    if runtime_name(item):
        return None
    for patch in many(item, "spec", PATCHES):
        for part in many(patch, "trainingRuntimeSpec", "template", "spec", "replicatedJobs"):
            template = get(part, "template", "spec", "template")
            if part.get("name") == STEP and get(template, "spec", "containers"):
                return mapping(template)  # not Kueue's, which selects nodes
    for one in many(item, "spec", OVERRIDES):
        if get(one, "spec", "containers"):
            return one
    return None


def _whole(item: Manifest, override: Manifest) -> Manifest:
    """Return the pods of a shared runtime, as far as their TrainJob describes them."""
    container = dict((many(override, "spec", "containers") or [{}])[0])
    for name, field in (("image", "image"), ("resources", "resourcesPerNode")):
        if (value := get(item, "spec", "trainer", field)) is not None:
            container[name] = value
    spec = {**mapping(override.get("spec")), "containers": [container]}
    return {"metadata": mapping(override.get("metadata")), "spec": spec}


def _roles(item: Manifest) -> dict[str, Manifest]:
    """Return the roles of a runtime; those of a TrainJob with its own have no templates."""
    found: dict[str, Manifest] = {}
    for part in _parts(item):
        spec = get(part, "template", "spec")
        template = get(spec, "template")
        if isinstance(template, dict):
            found[str(part.get("name"))] = {
                "replicas": get(spec, "completions"),
                "restartPolicy": get(template, "spec", "restartPolicy"),
                "template": template,
            }
    if found:
        return found
    text = get(item, "metadata", "annotations", replica_list.ANNOTATION)
    try:
        counts = replica_list.counts(str(text or ""))
    except ValueError:
        return {}
    if override := _override(item):
        told = {"restartPolicy": "Never", "template": _whole(item, override)}
        return {role: {"replicas": count, **told} for role, count in counts.items()}
    return {role: {"replicas": count} for role, count in counts.items()}


def _templates(item: Manifest) -> dict[str, Manifest]:
    if override := _override(item):
        return {STEP: override}
    found = {role: one.get("template") for role, one in _roles(item).items()}
    return {role: pod for role, pod in found.items() if isinstance(pod, dict)}


def _policy(item: Manifest) -> Manifest:
    spec = get(item, "spec")
    found = dict(spec) if isinstance(spec, dict) else {}
    if found.get("managedBy") == _CONTROLLER:
        del found["managedBy"]
    return found


def _rules(item: Manifest) -> list[str]:
    return str(get(item, "metadata", "annotations", RULES) or "").split()


def _restart_policy(item: Manifest, role: str) -> str:
    return "" if RESTARTS in _rules(item) else "Never"


def _needs_all_workers(item: Manifest) -> bool:
    return ALL_WORKERS in _rules(item)


TRAINER = Api(
    name="trainer",
    group=GROUP,
    version=VERSION,
    plurals=("trainjobs",),
    controller="Kubeflow Trainer",
    for_each_replica=lambda item: ("pods",),
    parents=_parents,
    job_label=JOB_LABEL,
    failed=("Failed",),
    succeeded=("Complete",),
    given_up=("deadline",),
    # Such a job never gets a condition: trainjob_controller.go, Reconcile.
    hopeless=("TrainJobResourcesCreationFailed",),
    rights=(Right("create", RUNTIMES, GROUP), Right("get", RUNTIMES, GROUP), *CLAIM),
    missing="Kubeflow Trainer 2 is not installed there",
    install=(
        "An administrator installs it: kubectl apply --server-side -k "
        '"https://github.com/kubeflow/trainer.git/manifests/overlays/manager?ref=v2.3.0"'
    ),
    searches=_searches,
    replica=_replica,
    roles=_roles,
    templates=_templates,
    policy=_policy,
    restart_policy=_restart_policy,
    needs_all_workers=_needs_all_workers,
    replaces_disrupted=True,
    expires=False,
)
