"""Waits for earlier runs of a name whose replicas still save: the next one has the same folder.

Jobs of one ``%name`` share a folder of checkpoints, whatever number is behind their names. The pods
tell what ends there, because anybody may have deleted the job: another kernel, or a person.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.cluster.paging import pages
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.lifecycle import deletion
from ciao_kernel.backends.kubernetes.object_fields import get
from ciao_kernel.backends.kubernetes.states import status
from ciao_kernel.errors import Refused
from ciao_kernel.model import Manifest, Notice
from ciao_kernel.plugins import Emit
from ciao_kernel.visible_text import listed

_BEYOND = 30.0
"""Seconds that pods may take to end beyond their grace period."""
_FIRST_LOOK, _LAST_LOOK = 0.15, 2.0
_FORBIDDEN = 403
_PODS = f"{job_metadata.OURS},{job_metadata.JOB}"


async def wait(
    target: Target,
    name: str,
    deleting: Callable[[], Iterable[str]],
    emit: Emit,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Wait until no replica of a stopped run of a name runs any more, as long as it may save.

    Args:
        target: Cluster and namespace.
        name: The name, without a number.
        deleting: Returns the names of jobs there that this process is deleting: their pods may not
            be told yet.
        emit: Receives notices for the user.
        clock: Returns seconds.

    Raises:
        ClusterFault: The API server does not answer.
        Refused: It refuses the list of pods for another reason than a missing right.
    """
    same = re.compile(rf"{re.escape(name)}(-\d+)?")
    path = f"/api/v1/namespaces/{target.namespace}/pods"
    began, pause, grace, told = clock(), _FIRST_LOOK, 0.0, False
    while True:
        here = {one for one in deleting() if same.fullmatch(one)}
        try:
            items = await pages(target.client, path, _PODS)
        except Refused as error:
            if error.code != _FORBIDDEN:
                raise
            items = []  # this user may not list pods: only the deletions of this process are known
        pods = [one for one in items if same.fullmatch(job_metadata.job_name(one))]
        ending = [one for one in pods if _may_save(one)]
        saving = {job_metadata.job_name(one) for one in ending}
        names = sorted(here | saving)
        if not names:
            return
        if not told:
            emit(Notice(f"waiting until stopped jobs of this name have ended: {listed(names)} …"))
        told, grace = True, max([grace, *map(deletion.grace_of, pods)])
        if (waited := clock() - began) > grace + _BEYOND:
            if saving:  # without pods, nothing saves: perhaps a finalizer keeps the job's object
                text = f"replicas still end after {waited:.0f} s, and may save meanwhile"
                emit(Notice(f"{text}: {listed(sorted(saving))}. The new job starts beside them."))
            return
        await asyncio.sleep(pause)
        pause = min(_LAST_LOOK, pause * 1.3)


def _may_save(pod: Manifest) -> bool:
    """Return whether a pod was told to end, and its program has not ended yet."""
    if get(pod, "metadata", "deletionTimestamp") is None:
        return False
    replica = job_metadata.replica(pod)
    return replica is not None and not status.of_pod(pod, replica).state.over
