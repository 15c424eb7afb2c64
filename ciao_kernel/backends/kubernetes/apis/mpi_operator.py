"""mpi-operator: MPIJobs of ``kubeflow.org/v2beta1``, whose launcher reaches its workers by ssh.

Facts: mpi-operator 0.8, pkg/controller/mpi_job_controller.go and pkg/apis/kubeflow/v2beta1. Its
CustomResourceDefinition has the name of the training operator's, so a cluster serves one of the two
versions. Pods have the labels of the training operator but for the role, which ciao adds. The
launcher's pod belongs to a Job, so its owner does not tell whose pod it is.
"""

from __future__ import annotations

from dataclasses import replace

from ciao_kernel.backends.kubernetes.apis.operator_v1 import DEADLINE, LAUNCHER, OPERATOR_V1
from ciao_kernel.backends.kubernetes.object_fields import get
from ciao_kernel.model import Manifest

_VERSION = "v2beta1"
_OPERATOR_LABEL = "training.kubeflow.org/operator-name"


def _parents(job: str, role: str) -> tuple[tuple[str, str], ...]:
    return (("Job", f"{job}-{LAUNCHER}"),) if role == LAUNCHER else ()


MPI_OPERATOR = replace(
    OPERATOR_V1,
    name=_VERSION,
    version=_VERSION,
    plurals=(f"mpijobs.{_VERSION}.{OPERATOR_V1.group}",),
    controller="mpi-operator",
    for_each_replica=lambda item: ("pods",),
    parents=_parents,
    # Not the backoff limit: with a limit of 0 that message is about the failed launcher.
    given_up=(DEADLINE,),
    # It hands the time on to the launcher's Job, and keeps the MPIJob.
    expires=False,
    missing="mpi-operator is not installed there",
    install="An administrator installs it: https://github.com/kubeflow/mpi-operator.",
)


def is_object(item: Manifest) -> bool:
    """Return whether an object is such a job; the server fills in the field if it is missing."""
    return isinstance(get(item, "spec", "sshAuthMountPath"), str)


def is_pod(pod: Manifest) -> bool:
    """Return whether a pod belongs to such a job."""
    return bool(get(pod, "metadata", "labels", _OPERATOR_LABEL) == "mpi-operator")
