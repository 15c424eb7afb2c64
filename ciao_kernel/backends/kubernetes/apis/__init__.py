"""The APIs that run jobs on a cluster, one file each, and what belongs to which of them."""

from __future__ import annotations

from ciao_kernel.backends.kubernetes.apis import trainer
from ciao_kernel.backends.kubernetes.apis.api import Api
from ciao_kernel.backends.kubernetes.apis.indexed_job import JOB, is_pod
from ciao_kernel.backends.kubernetes.apis.operator_v1 import OPERATOR_V1
from ciao_kernel.backends.kubernetes.apis.trainer import TRAINER
from ciao_kernel.model import Job, Manifest

ALL = (OPERATOR_V1, TRAINER, JOB)

__all__ = ["ALL", "JOB", "OPERATOR_V1", "TRAINER", "Api", "of_item", "of_job", "of_pod"]
__all__ += ["of_resource"]


def of_resource(resource: str) -> Api:
    """Return the API of a kind, as written in paths; unknown kinds are kinds of the operator."""
    return next((api for api in (TRAINER, JOB) if resource in api.plurals), OPERATOR_V1)


def of_job(job: Job) -> Api:
    """Return the API of a job."""
    return of_resource(job.resource)


def of_item(item: Manifest) -> Api:
    """Return the API of a job's object, by its form: objects of lists lack their kind."""
    spec = item.get("spec")
    if trainer.is_object(item):
        return TRAINER
    return JOB if isinstance(spec, dict) and "template" in spec else OPERATOR_V1


def of_pod(pod: Manifest) -> Api:
    """Return the API of the job of a pod."""
    if trainer.is_pod(pod):  # it belongs to an Indexed Job too
        return TRAINER
    return JOB if is_pod(pod) else OPERATOR_V1
