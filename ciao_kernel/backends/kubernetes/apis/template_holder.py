"""The object that has the pod templates of a job: the job itself, or its TrainingRuntime.

A TrainJob with a runtime of the cluster has what it changes in the runtime's pods.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from ciao_kernel import log
from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import TRAINER, trainer
from ciao_kernel.errors import BackendError
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Manifest

_log = logging.getLogger(__name__)


def among(job: Manifest, beside: Iterable[Manifest]) -> Manifest:
    """Return the holder among the objects of a submission."""
    return next((one for one in beside if one["kind"] == trainer.RUNTIME), job)


def path(item: Manifest, namespace: str) -> str:
    """Return the path of the runtime that has the templates of a job; "" if the job has them."""
    name = trainer.runtime_name(item)
    return f"{TRAINER.path}/namespaces/{namespace}/{trainer.RUNTIMES}/{name}" if name else ""


async def of(client: Client, item: Manifest, namespace: str) -> Manifest:
    """Return the holder of a job's templates; the job itself if its runtime cannot be read.

    Args:
        client: The API server.
        item: The job's object.
        namespace: Its namespace.
    """
    if at := path(item, namespace):
        with log.ignored(_log, "reading the runtime of a job", BackendError):
            return await client.find(at) or item
    return item


def pod_templates(body: Manifest) -> Mapping[str, Manifest]:
    """Return the pod templates of an object by role, as the kind spells it.

    Args:
        body: The job, or the holder of its templates.
    """
    return apis.of_item(body).templates(body)
