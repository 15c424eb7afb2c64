"""Values of ``%output`` that a termination message cannot hold: who gives them as files, and when.

They take the way of the cell's files (:mod:`.output_checks`), in a folder beside the program. Where
none is possible, a cell without files runs as it would without it, and says which value was too
large.
"""

from __future__ import annotations

import logging

from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.config import Settings
from ciao_kernel.errors import CiaoError
from ciao_kernel.model import Job, Replica
from ciao_kernel.model.outputs import OutputWay
from ciao_kernel.plugins import AnyLanguage, Launching, Plan, endless_roles

_log = logging.getLogger(__name__)


async def giver(
    plan: Plan, target: Target, settings: Settings, *, brings: bool = True
) -> Replica | None:
    """Return the replica whose large values come as files: the one that decides about the job.

    Args:
        plan: The cell.
        target: Cluster and namespace.
        settings: The bucket, and others for the way.
        brings: Whether ciao writes the templates of the pods.

    Returns:
        None if none come.

    Raises:
        CiaoError: The cell names a way that is not possible.
    """
    # Late: who only reads pods, as `ciao logs` does, checks no way.
    from ciao_kernel.backends.kubernetes.submission import output_checks

    spec, other = plan.spec, (AnyLanguage, Launching)
    if not spec.output_names or spec.warm is not None or isinstance(plan.framework, other):
        return None
    if not brings:
        return None
    if not spec.kept_paths:
        try:
            await output_checks.check(plan, target, settings)
        except CiaoError as error:
            if set(spec.output_ways) - {OutputWay.AUTO}:
                raise
            _log.info("large values stay in their pod: %s", error.message)
            return None
    endless = endless_roles(plan.framework, spec.serve)
    ends = (one for one in spec.replicas() if one.role not in endless)
    return plan.framework.decider(spec) or next(ends, None)


async def detached_notice(plan: Plan, target: Target, job: Job, settings: Settings) -> str:
    """Return how long the large values of a job in the background are there; "" if that is said.

    Args:
        plan: The cell.
        target: Cluster and namespace.
        job: The job.
        settings: Waiting times.
    """
    from ciao_kernel.backends.kubernetes.submission import output_checks  # late: see giver

    if plan.spec.output_paths or await giver(plan, target, settings) is None:
        return ""
    if await output_checks.way(plan.spec, target, settings) is not OutputWay.EXEC:
        return ""
    return (
        "values of %output with more than some 3,000 bytes come back if "
        f"`%ciao attach {job.reference}` follows the job at its end, or begins within "
        f"{settings.fetch_wait:g} s after it (the setting fetchWait); later they are lost."
    )
