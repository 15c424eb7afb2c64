"""The APIs that run jobs on a cluster, one file each, and what belongs to which of them."""

from __future__ import annotations

from ciao_kernel.backends.kubernetes.apis import mpi_operator, trainer
from ciao_kernel.backends.kubernetes.apis.api import Api
from ciao_kernel.backends.kubernetes.apis.indexed_job import JOB, is_pod
from ciao_kernel.backends.kubernetes.apis.mpi_operator import MPI_OPERATOR
from ciao_kernel.backends.kubernetes.apis.operator_v1 import OPERATOR_V1
from ciao_kernel.backends.kubernetes.apis.trainer import TRAINER
from ciao_kernel.model import Job, Manifest

ALL = (OPERATOR_V1, TRAINER, JOB)
"""The APIs that a cluster can serve together; :data:`MPI_OPERATOR` takes the place of the first."""

__all__ = ["ALL", "JOB", "MPI_OPERATOR", "OPERATOR_V1", "TRAINER", "Api", "of_item", "of_job"]
__all__ += ["is_suspended", "of_pod", "of_resource", "resource_of"]


def of_resource(resource: str) -> Api:
    """Return the API of a kind, as written in paths; unknown kinds are kinds of the operator."""
    known = (TRAINER, JOB, MPI_OPERATOR)
    return next((api for api in known if resource in api.plurals), OPERATOR_V1)


def resource_of(collection: str) -> str:
    """Return the kind of jobs at a path as :attr:`Job.resource` names it, as kubectl does.

    Args:
        collection: The path, without the name of a job.
    """
    if collection.startswith(f"{MPI_OPERATOR.path}/"):
        return MPI_OPERATOR.plurals[0]
    return collection.rpartition("/")[2]


def of_job(job: Job) -> Api:
    """Return the API of a job."""
    return of_resource(job.resource)


def of_item(item: Manifest) -> Api:
    """Return the API of a job's object, by its form: objects of lists lack their kind."""
    spec = item.get("spec")
    if trainer.is_object(item):
        return TRAINER
    if mpi_operator.is_object(item):
        return MPI_OPERATOR
    return JOB if isinstance(spec, dict) and "template" in spec else OPERATOR_V1


def of_pod(pod: Manifest) -> Api:
    """Return the API of the job of a pod."""
    if trainer.is_pod(pod):  # it belongs to an Indexed Job too
        return TRAINER
    if mpi_operator.is_pod(pod):
        return MPI_OPERATOR
    return JOB if is_pod(pod) else OPERATOR_V1


def is_suspended(item: Manifest) -> bool:
    """Return whether a job has no pods because somebody, or its queue, wants that."""
    return of_item(item).policy(item).get("suspend") is True
