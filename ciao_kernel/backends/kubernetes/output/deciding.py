"""The replicas whose end is the end of their job: the controller then deletes all other pods."""

from __future__ import annotations

from collections.abc import Collection

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.states import foreseen
from ciao_kernel.kube.client import Object
from ciao_kernel.model import Job, Replica, State, Status


def ends_job(
    job: Job, item: Object, now: Status, replica: Replica, pod: Object, held: Collection[Replica]
) -> bool:
    """Return whether the controller deletes other pods when a held one ends.

    Args:
        job: The job.
        item: Its object.
        now: Its status.
        replica: The replica of the pod.
        pod: The pod, whose program has ended.
        held: All replicas whose programs have ended, and whose pods stay for their files.
    """
    one = next((one for one in now.replicas if one.replica == replica), None)
    if one is not None and foreseen.failed_for_good(one, pod, item):
        return True
    decider = job_metadata.decider(item)
    if decider is None or apis.of_item(item).needs_all_workers(item):
        endless = job_metadata.endless(item)
        # Those that ended earlier were released, and are not held any more.
        over = {one.replica for one in now.replicas if one.state is State.SUCCEEDED}
        over.update(held)
        return all(one in over for one in job.replicas if one.role not in endless)
    return replica == decider
