"""Asks a cluster for the runtime that administrators install for the jobs of a framework.

A dry run of a TrainJob that names it tells whether it exists, and by the fields that the server
keeps, which ones this version of Trainer has. That needs no right but the one to create TrainJobs:
runtimes of the cluster are outside of a namespace, so a Role cannot grant to read them.
"""

from __future__ import annotations

from dataclasses import asdict

from ciao_kernel.backends.kubernetes import runtime_overrides, shared_runtime
from ciao_kernel.backends.kubernetes.apis import TRAINER, trainer
from ciao_kernel.backends.kubernetes.runtime_overrides import Fields
from ciao_kernel.backends.kubernetes.target import Target
from ciao_kernel.errors import Refused
from ciao_kernel.plugins import Framework
from ciao_kernel.visible_text import short

_KNOWN = 60.0
"""Seconds for which an answer is kept."""


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
    if (kept := client.cache_get(key)) is not None:
        return Fields(**kept["fields"]) if "fields" in kept else str(kept["reason"])
    body = runtime_overrides.probe(name, target.namespace)
    try:
        answer = await client.create(TRAINER.at(target.namespace, "trainjobs"), body, dry_run=True)
    except Refused as error:
        found = None
        reason = f"the ClusterTrainingRuntime {name} is refused: {short(error.message)}"
        if trainer.RUNTIME_FIRST in error.message:
            reason = f"no ClusterTrainingRuntime {name} is installed"
    else:
        found = runtime_overrides.known(answer)
        reason = f"the ClusterTrainingRuntime {name} needs Trainer 2.1 or newer"
    client.cache_set(key, {"fields": asdict(found)} if found else {"reason": reason}, _KNOWN)
    return found or reason
