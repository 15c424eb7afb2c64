"""When an Indexed Job starts a replica again, has failed and has succeeded: pure functions.

The Jobs that Kubeflow Trainer makes for the roles of a TrainJob have the same rules.
"""

from __future__ import annotations

from ciao_kernel.model import Manifest, Replica, RestartPolicy, SuccessPolicy
from ciao_kernel.plugins import Launching, Plan, endless_roles

_UNLIMITED = 2**31 - 1
_PROGRAM_FAILED = range(1, 128)
"""Exit codes of a program that failed; larger ones are those of a replica that was ended."""
# The CRDs of Trainer 2.0 and 2.1 require the status, which Kubernetes itself adds.
_LOST = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def job_rules(plan: Plan, count: int, container: str) -> Manifest:
    """Return the rules of an Indexed Job; a TrainJob has one for each role.

    Args:
        plan: The program to run, with its options.
        count: Number of its replicas.
        container: Name of the program's container.
    """
    limit = plan.spec.restart_limit
    rules: Manifest = {}
    if plan.spec.elastic:
        # As ExitCode of the operator: a replica that was ended is started again.
        # A lost replica's sidecar may end with any code, so only the program's container counts.
        failed_with = {"operator": "In", "values": list(_PROGRAM_FAILED)}
        codes = {"containerName": container, **failed_with}
        failed = {"action": "FailJob", "onExitCodes": codes}
        rules = {"podFailurePolicy": {"rules": [_LOST, failed]}}
    if plan.spec.retries and never(plan):
        # The cluster starts a pod that it disrupts again, also if nobody follows the job.
        rules = {"podFailurePolicy": {"rules": [_LOST]}}
    return {
        **rules,
        "completions": count,
        "parallelism": count,
        "completionMode": "Indexed",
        # With Never any failure is for good, as with the operator.
        "backoffLimit": 0 if never(plan) else _UNLIMITED if limit is None else limit,
        # Two pods of one index at a time would have the same host name.
        "podReplacementPolicy": "Failed",
    }


def never(plan: Plan) -> bool:
    """Return whether a failed program is not started again."""
    policy = plan.spec.cluster.restart_policy or RestartPolicy.NEVER
    return policy is RestartPolicy.NEVER


def needs_all_workers(plan: Plan) -> bool:
    """Return whether a job succeeds only with all its workers."""
    return plan.spec.cluster.success_policy is SuccessPolicy.ALL_WORKERS


def deciding(plan: Plan, replicas: tuple[Replica, ...]) -> str:
    """Return the indexes whose success is the success of the job: ``1`` or ``1-3``."""
    decider = plan.framework.decider(plan.spec)
    if decider is None:
        roles = endless_roles(plan.framework, plan.spec.serve)
        ends = [replica.role not in roles for replica in replicas]
        return ",".join(str(index) for index, one in enumerate(ends) if one)
    first = last = replicas.index(decider)
    if needs_all_workers(plan) and decider.role == "worker":
        last += plan.spec.count("worker") - 1
    return str(first) if first == last else f"{first}-{last}"


def possible_replicas(plan: Plan) -> tuple[Replica, ...]:
    """Return the replicas in the order of their indexes, with those that may be added later.

    An elastic job has workers only, and may be scaled up to %max.
    """
    first, most = plan.spec.replicas(), plan.spec.max_workers or 0
    return (*first, *(Replica("worker", index) for index in range(len(first), most)))


def launcher_role(plan: Plan) -> str:
    """Return the role of a replica that starts the program in the others; "" if there is none.

    It needs few resources, and gets those of the others.
    """
    decider = plan.framework.decider(plan.spec)
    return decider.role if decider and isinstance(plan.framework, Launching) else ""


def template_role(plan: Plan) -> str:
    """Return the role whose command is in the only template: the first that runs the cell."""
    return next(
        group.role
        for group in plan.spec.groups
        if group.count and group.role not in plan.spec.serve
    )
