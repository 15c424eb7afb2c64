"""Makes a job the owner of its sources, after its cell has gone on.

The owner of a source can only be set when the job exists, and nothing that a cell shows depends on
it. So a submission does not wait for it; the removal of the job and the end of the connections do.
If this kernel is killed before, :mod:`unfinished` settles the source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.background import start_background
from ciao_kernel.errors import BackendError, Refused
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Manifest, Notice
from ciao_kernel.plugins import Emit

_GONE = (404, 409)
"""Answers for an object that was deleted, and perhaps made again with another uid."""

_claims: dict[str, asyncio.Task[None]] = {}
"""Unfinished claims, by the uid of the job."""


@dataclass(frozen=True, slots=True)
class Source:
    """A ConfigMap that was created before the job that needs it."""

    path: str
    uid: str


def claim_later(target: Target, owner: Manifest, sources: Sequence[Source], emit: Emit) -> None:
    """Make a job the owner of its sources, in the background.

    Called by a submission that has just created the job.

    Args:
        target: The job's cluster and namespace.
        owner: Owner reference to the job.
        sources: What it shall own.
        emit: Shows a notice if the cluster refuses, or does not answer.
    """
    if not sources:
        return
    uid = str(owner["uid"])
    _claims[uid] = task = start_background(_claim_all(target, owner, sources, emit))
    task.add_done_callback(lambda _: _claims.pop(uid, None))


async def wait_until_owned(uid: str) -> None:
    """Wait until a job owns its sources, or the cluster has refused; called during its removal.

    Kubernetes also deletes a source whose owner is set after the owner's deletion, so a job that
    another thread has submitted is not waited for.

    Args:
        uid: The job's uid.
    """
    task = _claims.get(uid)
    if task is not None and task.get_loop() is asyncio.get_running_loop():
        await asyncio.wait({task})


async def wait_until_all_owned(within: float) -> None:
    """Wait for the claims of this event loop; called before its connections are closed.

    Args:
        within: Seconds to wait at most.
    """
    loop = asyncio.get_running_loop()
    if mine := {task for task in _claims.values() if task.get_loop() is loop}:
        await asyncio.wait(mine, timeout=within)


async def claim(client: Client, source: Source, owner: Manifest) -> None:
    """Make a job the owner of one source; a source that is gone needs none.

    Args:
        client: The API server.
        source: The source: a later object of the same name stays as it is.
        owner: Owner reference to the job.

    Raises:
        Refused, ClusterFault: From the client.
    """
    labels = {job_metadata.UNOWNED: None}
    meta = {"uid": source.uid, "labels": labels, "ownerReferences": [owner]}
    try:
        await client.patch(source.path, {"metadata": meta})
    except Refused as error:
        if error.code not in _GONE:
            raise


async def _claim_all(
    target: Target, owner: Manifest, sources: Sequence[Source], emit: Emit
) -> None:
    for source in sources:
        try:
            await claim(target.client, source, owner)
        except BackendError as error:
            name, words = owner["name"], f"{owner['name']} --namespace {target.namespace}"
            emit(
                Notice(
                    f"{name} does not own its ConfigMap {source.path.rpartition('/')[2]} yet: "
                    f"{error.message} `%ciao delete {words}` removes both."
                )
            )
            return
