"""The part of a cell's header that applies only on a cluster: a :class:`ClusterSpec`."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class RestartPolicy(enum.StrEnum):
    """Reaction of the training operator, or of a local job, to a replica that ended."""

    NEVER = "Never"
    ON_FAILURE = "OnFailure"
    ALWAYS = "Always"
    EXIT_CODE = "ExitCode"


class SuccessPolicy(enum.StrEnum):
    """Replicas that must succeed for a TensorFlow job to succeed."""

    WORKER_0 = "worker0"
    ALL_WORKERS = "allWorkers"


class ApiName(enum.StrEnum):
    """The API that runs a job on a cluster."""

    AUTO = "auto"
    """The training operator's if the cluster serves its kind, else TrainJobs, else Indexed Jobs."""
    V1 = "v1"
    """A kind of the training operator (``kubeflow.org/v1``)."""
    TRAINER = "trainer"
    """A TrainJob of Kubeflow Trainer (``trainer.kubeflow.org/v1alpha1``)."""
    JOB = "job"
    """An Indexed Job of Kubernetes itself (``batch/v1``)."""


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """Options that apply only on a cluster; the local backend ignores them with a notice."""

    context: str | None = None
    namespace: str | None = None
    image: str | None = None
    env_secrets: tuple[str, ...] = ()
    """Secrets whose keys become environment variables."""
    service_account: str | None = None
    pull_secrets: tuple[str, ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[str, ...] = ()
    """Taints as in ``kubectl taint``: ``key=value:Effect``, ``key:Effect`` or ``key``."""
    priority_class: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    restart_policy: RestartPolicy | None = None
    backoff_limit: int | None = None
    ttl: int | None = None
    """Seconds after which a finished job is deleted."""
    success_policy: SuccessPolicy | None = None
    api: ApiName | None = None
    queue: str | None = None
    """Queue of Kueue that admits the job."""
    queue_priority: str | None = None
    """WorkloadPriorityClass of the job in its queue."""
    pod_patch: str | None = None
    """File with a patch of the pod templates, relative to the user's folder."""
