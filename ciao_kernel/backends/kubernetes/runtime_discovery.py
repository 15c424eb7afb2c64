"""Asks a cluster for the runtime that administrators install for the jobs of a framework.

A dry run of a TrainJob that names it tells whether it exists, and by the fields that the server
keeps, which ones this version of Trainer has. That needs no right but the one to create TrainJobs:
runtimes of the cluster are outside of a namespace, so a Role cannot grant to read them.
"""

from __future__ import annotations

import logging
from dataclasses import asdict

from ciao_kernel.backends.kubernetes import runtime_overrides, shared_runtime
from ciao_kernel.backends.kubernetes.apis import TRAINER
from ciao_kernel.backends.kubernetes.runtime_overrides import Fields
from ciao_kernel.backends.kubernetes.target import Target
from ciao_kernel.errors import Refused
from ciao_kernel.plugins import Framework

_log = logging.getLogger(__name__)
_KNOWN = 60.0
"""Seconds for which an answer is kept."""


async def fields(framework: Framework, target: Target) -> Fields | None:
    """Return what a TrainJob can change in the runtime of a framework; None if it has none.

    Args:
        framework: The job's framework.
        target: Cluster and namespace of the job.

    Raises:
        ClusterFault: The server does not answer.
    """
    client, name = target.client, shared_runtime.name(framework)
    key = f"runtime {name} for {target.namespace}"
    if (kept := client.cache_get(key)) is not None:
        return Fields(**kept["fields"]) if kept else None
    body = runtime_overrides.probe(name, target.namespace)
    try:
        answer = await client.create(TRAINER.at(target.namespace, "trainjobs"), body, dry_run=True)
    except Refused as error:
        _log.debug("no TrainJob with the runtime %s: %s", name, error.message)
        found = None
    else:
        found = runtime_overrides.known(answer)
    client.cache_set(key, {"fields": asdict(found)} if found else {}, _KNOWN)
    return found
