"""Asks a cluster for the runtime that administrators install for the jobs of a framework.

A dry run of a TrainJob that names it tells whether it exists, and by the fields that the server
keeps, which ones this version of Trainer has. That needs no right but the one to create TrainJobs:
runtimes of the cluster are outside of a namespace, so a Role cannot grant to read them.
"""

from __future__ import annotations

from dataclasses import asdict

from ciao_kernel.backends.kubernetes.apis import TRAINER, trainer
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.manifests import runtime_overrides, shared_runtime
from ciao_kernel.backends.kubernetes.manifests.runtime_overrides import Fields
from ciao_kernel.errors import Refused
from ciao_kernel.kube import responses
from ciao_kernel.plugins import Framework
from ciao_kernel.visible_text import short

_KNOWN = 60.0
"""Seconds for which an answer is kept."""
_SILENT = 600.0
"""Those for which a webhook that does not answer is kept: each try may take its whole time."""


async def fields(framework: Framework, target: Target) -> Fields | str:
    """Return what a TrainJob can change in the runtime of a framework, or why it cannot use it.

    Args:
        framework: The job's framework.
        target: Cluster and namespace of the job.

    Returns:
        The fields, or a reason as part of a sentence.

    Raises:
        ClusterFault: The server does not answer.
    """
    client, name = target.client, shared_runtime.name(framework)
    key = f"runtime {name} for {target.namespace}"
    if (kept := client.cache.get(key)) is not None:
        return Fields(**kept["fields"]) if "fields" in kept else str(kept["reason"])
    path, seconds = TRAINER.at(target.namespace, "trainjobs"), _KNOWN
    body = runtime_overrides.probe(name, target.namespace)
    try:
        # Without the answer the job runs as another kind: no reason to let a cell wait.
        answer = await client.create(path, body, dry_run=True, awaits_webhooks=False)
    except Refused as error:
        found = None
        if responses.is_of_webhook(error):
            seconds = _SILENT
        reason = f"the ClusterTrainingRuntime {name} is refused: {short(error.message)}"
        if trainer.RUNTIME_FIRST in error.message:
            reason = f"no ClusterTrainingRuntime {name} is installed"
    else:
        found = runtime_overrides.known(answer)
        reason = f"the ClusterTrainingRuntime {name} needs Trainer 2.1 or newer"
    client.cache.keep(key, {"fields": asdict(found)} if found else {"reason": reason}, seconds)
    return found or reason
