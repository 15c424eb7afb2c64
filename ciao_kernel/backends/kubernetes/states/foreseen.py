"""The failure of a job that its pods show before its controller says so: pure functions.

The condition may come seconds after the end of a replica, if the machine is busy. This module
answers only where the controller (the operator, Trainer, or Kubernetes' own) can come to no
other result, and leaves all else to it.

Facts: training-operator 1.8 and 1.9, pkg/controller.v1/common/pod.go (ReconcilePods) and
pkg/controller.v1/{tensorflow,pytorch,jax,xgboost,paddlepaddle}/*_controller.go (UpdateJobStatus);
Kubernetes, pkg/controller/job/job_controller.go (syncJob).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.backends.kubernetes.states import job_status, status
from ciao_kernel.model import Manifest, Replica, ReplicaStatus, State, Status

_RETRYABLE = 128
"""With ``ExitCode``, the operator starts a replica again from this exit code on
(pkg/util/train/train_util.go)."""
_UNDECIDED = ("Restarting", "Suspended")
"""With these conditions a failed replica need not fail the job."""


def failure(item: Manifest, now: Status, pods: Mapping[Replica, Manifest | None]) -> Status | None:
    """Return the status of a job that will fail for certain; None if that is not certain.

    Any replica that is not started again fails its job, unless the job has succeeded before.

    Args:
        item: The job's object.
        now: The job's status, not over.
        pods: Each replica's pod, if it has one.
    """
    if now.state.over or not _is_decided_by_pods(item):
        return None
    specs = {role.lower(): one for role, one in apis.of_item(item).roles(item).items()}
    for replica, pod in pods.items():
        if pod and replica.index >= _count(specs.get(replica.role, {})):
            return None  # it is scaled down, and the operator counts these pods too
    ends = {one.replica: one for one in now.replicas}
    decider = job_metadata.decider(item)
    if job_metadata.is_decided_by_all(item):
        pass  # a replica that has failed for good is never among those that succeed
    elif decider not in ends or ends[decider].state is State.SUCCEEDED:
        return None  # the controller may have seen the success first
    failed = [
        one
        for one in now.replicas
        if (pod := pods.get(one.replica)) and failed_for_good(one, pod, item) and _fails(pod)
    ]
    first = job_status.first_failed(failed)
    if first is None:
        return None
    return replace(
        now,
        state=State.FAILED,
        since=ends[first].since,
        reason="",
        message="",
        decided_by=first,
        foreseen=True,
    )


def failed_for_good(one: ReplicaStatus, pod: Manifest | None, item: Manifest) -> bool:
    """Return whether a replica has failed, and the controller neither starts it again nor goes on.

    Args:
        one: The replica's status.
        pod: Its pod.
        item: The job's object.
    """
    if one.state is not State.FAILED or pod is None:
        return False
    if get(pod, "metadata", "deletionTimestamp") is not None:
        return False  # the controller may create it again
    api = apis.of_item(item)
    if api.replaces_disrupted and status.disruption_target(pod):
        return False  # the job's condition tells soon whether it does
    policy = api.restart_policy(item, one.replica.role)
    if policy == "ExitCode":
        return one.exit_code is not None and 0 < one.exit_code < _RETRYABLE
    return policy == "Never"


def _fails(pod: Manifest) -> bool:
    """Return whether the phase of a failed program's pod is ``Failed``, or will be.

    The kubelet sets the phase about a second after the end of the last container (Kubernetes,
    pkg/kubelet/kubelet_pods.go, getPhase). The operator reads only the phase. A success of the
    deciding replica that comes meanwhile takes as long, and so comes to the operator later.
    """
    if get(pod, "status", "phase") == "Failed":
        return True
    containers = many(pod, "spec", "containers")
    ended = {
        one.get("name")
        for one in many(pod, "status", "containerStatuses")
        if get(one, "state", "terminated") is not None
    }
    # In newer clusters, a container may have its own restart rules.
    ruled = any("restartPolicy" in one or "restartPolicyRules" in one for one in containers)
    never = get(pod, "spec", "restartPolicy") == "Never"
    return never and not ruled and ended >= {one.get("name") for one in containers}


def _is_decided_by_pods(item: Manifest) -> bool:
    """Return whether the job's controller reads its pods to decide, and nothing else does."""
    policy = apis.of_item(item).policy(item)
    return (
        not job_status.is_deleted(item)
        and not any(word in status.conditions(item) for word in _UNDECIDED)
        and policy.get("suspend") is not True
        and not policy.get("managedBy")
    )


def _count(spec: Manifest) -> int:
    count = spec.get("replicas", 1)
    return count if isinstance(count, int) else 1
