"""Checks before a job with files of ``%output`` is created: can they come back?"""

from __future__ import annotations

from ciao_kernel.backends.kubernetes import (
    checks,
    choice,
    job_metadata,
    manifest,
    output_sidecar,
)
from ciao_kernel.backends.kubernetes.apis import OPERATOR_V1
from ciao_kernel.backends.kubernetes.manifest import Objects
from ciao_kernel.backends.kubernetes.rights import Right
from ciao_kernel.backends.kubernetes.target import Target
from ciao_kernel.errors import Refused, SpecError
from ciao_kernel.plugins import AnyLanguage, Plan

RIGHTS = tuple(Right(verb, "pods", subresource="exec") for verb in ("create", "get"))
"""A WebSocket begins as a GET; servers from 1.35 on also require create."""
_INSTEAD = "Leave out %output, and let the program write its files to a %volume."


async def check(plan: Plan, target: Target) -> None:
    """Check that files of a cell can come back from this cluster.

    Raises:
        SpecError: The framework or the cluster cannot keep them.
        ClusterFault: The user may not fetch them; the error lists the missing rights.
    """
    if isinstance(plan.framework, AnyLanguage):
        raise SpecError(
            f"files of a job of {plan.framework.name} do not come back from a cluster: its image "
            "need not have Python, which keeps and sends them.",
            _INSTEAD,
            directive="output",
        )
    if not choice.at_least(await choice.server_version(target), *output_sidecar.OLDEST):
        raise SpecError(
            "files come back by %output from Kubernetes 1.29 on, and this cluster is older.",
            _INSTEAD,
            directive="output",
        )
    await checks.require_rights(target, "fetch the files of %output", *RIGHTS)


async def try_out(target: Target, made: Objects) -> None:
    """Try the object with the pod templates in a dry run of the server.

    Raises:
        SpecError: Its schema drops what the job's pods need.
    """
    holder = made.holder
    path = made.path if holder is made.job else job_metadata.collection(holder)
    try:
        found = await target.client.create(path, holder, dry_run=True)
    except Refused:
        return  # the creation itself tells why
    if not output_sidecar.is_native(manifest.pod_templates(found).values()):
        raise SpecError(
            f"files do not come back by %output from a {made.job['kind']} of this cluster: its "
            "operator is older than native sidecars.",
            f"{_INSTEAD} Or write %api=job."
            if made.job["apiVersion"].startswith(OPERATOR_V1.group)
            else _INSTEAD,
            directive="output",
        )
