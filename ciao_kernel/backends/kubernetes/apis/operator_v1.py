"""The Kubeflow training operator: TFJob, PyTorchJob and its other kinds of ``kubeflow.org/v1``.

Facts: training-operator 1.8 and 1.9, pkg/apis/kubeflow.org/v1/common_types.go (labels, conditions),
pkg/controller.v1/common/job.go (messages) and pkg/util/train/train_util.go.
"""

from __future__ import annotations

from dataclasses import dataclass

from ciao_kernel.backends.kubernetes.apis.api import Api
from ciao_kernel.backends.kubernetes.apis.replica_list import ROLE
from ciao_kernel.backends.kubernetes.object_fields import get
from ciao_kernel.model import Manifest, Replica

JOB_LABEL = "training.kubeflow.org/job-name"
ROLE_LABEL = "training.kubeflow.org/replica-type"
INDEX_LABEL = "training.kubeflow.org/replica-index"
DEADLINE = "longer than specified deadline"
"""Part of the message about a job that its deadline has ended."""
LAUNCHER = "launcher"
"""The role of an MPIJob whose only pod has no index."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of a built-in framework.

    Args:
        plural: Its name in paths.
        specs: The field with its roles.
        exit_code_restarts: Whether the operator calls every failure under ``ExitCode`` a restart;
            its framework refuses that policy (frameworks/refusals.py: ``check_restart_policy``).
        decided_by_pods: Whether the restart policies of its pods alone decide what a failure means.
        services: Whether each replica has a Service.
    """

    plural: str
    specs: str
    exit_code_restarts: bool = False
    decided_by_pods: bool = True
    services: bool = True


_KINDS = (
    _Kind("tfjobs", "tfReplicaSpecs"),
    _Kind("pytorchjobs", "pytorchReplicaSpecs"),
    _Kind("jaxjobs", "jaxReplicaSpecs", exit_code_restarts=True),
    _Kind("xgboostjobs", "xgbReplicaSpecs", exit_code_restarts=True),
    _Kind("paddlejobs", "paddleReplicaSpecs", exit_code_restarts=True),
    # Without Services: mpi/mpijob_controller.go, ReconcileServices.
    _Kind("mpijobs", "mpiReplicaSpecs", decided_by_pods=False, services=False),
)
KINDS = tuple(kind.plural for kind in _KINDS)
"""The kinds of the built-in frameworks, as written in paths."""
_EXIT_CODE_RESTARTS = tuple(kind.specs for kind in _KINDS if kind.exit_code_restarts)
_DECIDED_BY_PODS = tuple(kind.specs for kind in _KINDS if kind.decided_by_pods)
_WITHOUT_SERVICES = tuple(kind.specs for kind in _KINDS if not kind.services)


def _searches(job: str, replica: Replica) -> tuple[dict[str, str], ...]:
    found = {JOB_LABEL: job, ROLE_LABEL: replica.role}
    if replica.role != LAUNCHER:
        found[INDEX_LABEL] = str(replica.index)
    return (found,)


def _replica(pod: Manifest) -> Replica | None:
    labels = pod["metadata"].get("labels")
    found = labels if isinstance(labels, dict) else {}
    role, index = str(found.get(ROLE_LABEL) or ""), str(found.get(INDEX_LABEL) or "")
    if role == LAUNCHER and not index:
        index = "0"
    return Replica(role, int(index)) if ROLE.fullmatch(role) and index.isdecimal() else None


def _roles(item: Manifest) -> dict[str, Manifest]:
    spec = get(item, "spec")
    for key, value in spec.items() if isinstance(spec, dict) else ():
        if not isinstance(value, dict) or not value:
            continue
        with_pods = all(isinstance(one, dict) and "template" in one for one in value.values())
        if with_pods or str(key).endswith("ReplicaSpecs"):
            return {str(role): one for role, one in value.items() if isinstance(one, dict)}
    return {}


def _templates(item: Manifest) -> dict[str, Manifest]:
    found = {role: one.get("template") for role, one in _roles(item).items()}
    return {role: pod for role, pod in found.items() if isinstance(pod, dict)}


def _policy(item: Manifest) -> Manifest:
    found = get(item, "spec", "runPolicy")
    return found if isinstance(found, dict) else {}


def _restart_policy(item: Manifest, role: str) -> str:
    """Return "" for other kinds than those of ciao, which follow rules of their own."""
    if not any(isinstance(get(item, "spec", key), dict) for key in _DECIDED_BY_PODS):
        return ""
    if get(item, "spec", "pytorchReplicaSpecs") is not None:
        if get(item, "spec", "elasticPolicy") is not None:
            return ""
    elif role == "worker" and get(item, "spec", "enableDynamicWorker"):
        return ""
    specs = {name.lower(): one for name, one in _roles(item).items()}
    found = str(specs.get(role, {}).get("restartPolicy") or "")
    restarts = any(isinstance(get(item, "spec", key), dict) for key in _EXIT_CODE_RESTARTS)
    return "" if restarts and found == "ExitCode" else found


def _needs_all_workers(item: Manifest) -> bool:
    return bool(get(item, "spec", "successPolicy") == "AllWorkers")


def _for_each_replica(item: Manifest) -> tuple[str, ...]:
    without = any(get(item, "spec", key) is not None for key in _WITHOUT_SERVICES)
    return ("pods",) if without else ("pods", "services")


def _from_label(name: str, label: str) -> Manifest:
    path = f"metadata.labels['{label}']"
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _pod_names(job: str, replica: Replica) -> tuple[str, ...]:
    name = f"{job}-{replica}"
    return (name, f"{job}-{LAUNCHER}") if replica.role == LAUNCHER else (name,)


OPERATOR_V1 = Api(
    name="v1",
    group="kubeflow.org",
    version="v1",
    plurals=KINDS,
    controller="the training operator",
    for_each_replica=_for_each_replica,
    parents=lambda job, role: (),
    job_label=JOB_LABEL,
    failed=("Failed",),
    succeeded=("Succeeded",),
    given_up=(DEADLINE, "reached the specified backoff limit"),
    hopeless=(),
    rights=(),
    missing="the Kubeflow training operator is not installed there",
    install=(
        "An administrator installs it: kubectl apply --server-side -k "
        '"github.com/kubeflow/training-operator.git/manifests/overlays/standalone?ref=v1.9.3"'
    ),
    searches=_searches,
    replica=_replica,
    roles=_roles,
    templates=_templates,
    policy=_policy,
    restart_policy=_restart_policy,
    needs_all_workers=_needs_all_workers,
    identity=(
        _from_label("CIAO_ROLE", ROLE_LABEL),
        _from_label("CIAO_INDEX", INDEX_LABEL),
        {"name": "CIAO_REPLICA", "value": "$(CIAO_ROLE)-$(CIAO_INDEX)"},
    ),
    pod_names=_pod_names,
    policy_field="runPolicy",
)
