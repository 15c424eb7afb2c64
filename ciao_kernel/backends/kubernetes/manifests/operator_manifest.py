"""A cell as a job of an operator: a kind of the training operator's, or mpi-operator's MPIJob."""

from __future__ import annotations

from ciao_kernel.backends.kubernetes.apis import job_metadata, operator_v1
from ciao_kernel.backends.kubernetes.manifests import gangs
from ciao_kernel.backends.kubernetes.manifests.rendering import (
    Pods,
    Rendered,
    Rendering,
    Request,
    refuse_ttl,
    time_to_live,
)
from ciao_kernel.config import Settings
from ciao_kernel.model import CleanPolicy, Manifest
from ciao_kernel.plugins import JobManifest, OperatorKind, Plan, StartedBySsh


def _made(plan: Plan, pods: Pods) -> JobManifest:
    assert isinstance(plan.framework, OperatorKind)  # choice.choose has checked it
    return plan.framework.manifest(plan.spec, pods)


def _made_by_ssh(plan: Plan, pods: Pods) -> JobManifest:
    assert isinstance(plan.framework, StartedBySsh)  # the same
    return plan.framework.ssh_manifest(plan.spec, pods)


def _empty(plan: Plan) -> Pods:
    pod: Manifest = {"metadata": {}, "spec": {"containers": [{}]}}  # only the kind is used
    return {group.role: pod for group in plan.spec.groups}


def _render(ask: Request, pods: Pods) -> Rendered:
    made = _made(ask.plan, pods)
    ends = {"ttlSecondsAfterFinished": time_to_live(ask.plan, ask.settings)}
    policy = {**_run_policy(ask.plan, ask.settings, made), **ends}
    return Rendered(made, {"runPolicy": policy, **made.spec})


def _check_by_ssh(plan: Plan, settings: Settings) -> None:
    """Check that mpi-operator can run a cell.

    Raises:
        SpecError: A directive does not fit.
    """
    refuse_ttl(
        plan,
        "an MPIJob of mpi-operator has no time to live: only its launcher would be deleted after "
        "it.",
    )


def _render_by_ssh(ask: Request, pods: Pods) -> Rendered:
    named = {role: _named(pod, role, ask.run) for role, pod in pods.items()}
    made = _made_by_ssh(ask.plan, named)
    # The launcher is a Job, which would start a failed program again. Without
    # ttlSecondsAfterFinished: that Job alone would go, and with it the log of a job that stays.
    policy = {**_run_policy(ask.plan, ask.settings, made), "backoffLimit": 0}
    return Rendered(made, {"runPolicy": policy, **made.spec})


def _named(pod: Manifest, role: str, run: str) -> Manifest:
    """Return a pod that tells its role and its job: mpi-operator does not."""
    meta = pod["metadata"]
    labels = {**meta["labels"], operator_v1.ROLE_LABEL: role}
    notes = {**meta["annotations"], job_metadata.RUN: run}
    return {**pod, "metadata": {**meta, "labels": labels, "annotations": notes}}


def _run_policy(plan: Plan, settings: Settings, made: JobManifest) -> Manifest:
    policy = plan.spec.clean_policy or settings.clean_policy
    keeps = policy is CleanPolicy.NONE or made.ends_pods
    found: Manifest = {
        # The operator deletes pods, so that a PS ends even if nobody follows the job. For "all"
        # the job itself is deleted after its logs are read; the operator cannot know that time.
        "cleanPodPolicy": "None" if keeps else "Running",
    }
    if plan.spec.deadline is not None:
        found["activeDeadlineSeconds"] = plan.spec.deadline
    if plan.spec.restart_limit is not None:
        found["backoffLimit"] = plan.spec.restart_limit
    return {**found, **gangs.policy(plan.spec, settings)}


OPERATOR = Rendering(kind=lambda plan: _made(plan, _empty(plan)), render=_render)
MPI_BY_SSH = Rendering(
    kind=lambda plan: _made_by_ssh(plan, _empty(plan)), render=_render_by_ssh, check=_check_by_ssh
)
