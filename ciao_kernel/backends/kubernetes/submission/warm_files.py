"""How files of ``%output`` leave warm pods: as from others, but nothing keeps the pod for it."""

from __future__ import annotations

import asyncio

from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.output import output_log, output_sidecar
from ciao_kernel.backends.kubernetes.output.output_store import RunObjects
from ciao_kernel.backends.kubernetes.submission import output_checks
from ciao_kernel.config import Settings
from ciao_kernel.model.outputs import OutputWay
from ciao_kernel.plugins import Plan, WayBack


async def way_back(plan: Plan, target: Target, settings: Settings) -> WayBack:
    """Return how the files of one run come back.

    Args:
        plan: The cell; :func:`.output_checks.check` has accepted it.
        target: Cluster and namespace.
        settings: The bucket, and the limit of files.

    Raises:
        BackendError: There are no credentials for the bucket.
    """
    way = await output_checks.way(plan.spec, target, settings)
    limit = output_sidecar.limit(settings, way)
    notice = await output_checks.way_notice(plan.spec, target, settings)
    if way is OutputWay.LOG:
        return WayBack(way, limit, notice, output_log.log_words(settings))
    if way is not OutputWay.S3:
        return WayBack(way, limit, notice)
    objects = await asyncio.to_thread(RunObjects, settings)
    addresses = {one: objects.address(one) for one in plan.spec.replicas()}
    return WayBack(way, limit, notice, addresses=addresses, read=objects.read)
