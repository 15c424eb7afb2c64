"""A note before the start of a job whose ``%successPolicy`` has no effect."""

from __future__ import annotations

from ciao_kernel.model import SuccessPolicy
from ciao_kernel.plugins import Plan


def success_note(plan: Plan) -> str:
    """Return a note if ``allWorkers`` is asked for and a chief decides, else "".

    The training operator counts workers only in a TFJob without chief and master (UpdateJobStatus
    in pkg/controller.v1/tensorflow/tfjob_controller.go); jobs of other APIs follow its rule.

    Args:
        plan: A job for a cluster; on this machine the directive never has an effect.
    """
    if plan.spec.cluster.success_policy is not SuccessPolicy.ALL_WORKERS:
        return ""
    decider = plan.framework.decider(plan.spec)
    if decider is None or decider.role == "worker":
        return ""
    name = plan.written.get("cluster.success_policy") or "%successPolicy"
    return (
        f"{name} has no effect: the success of {decider} is the success of the job, and ends "
        "all other replicas."
    )
