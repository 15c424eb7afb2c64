"""Notices about the tries of a job (``%retries``): who makes the next one, what a user can do."""

from __future__ import annotations

from ciao_kernel.config import Settings
from ciao_kernel.model import Job


def resubmission(name: str, *, replaces: bool) -> str:
    """Return who starts a job again, for the cell and for a dry run.

    Args:
        name: Name of the job.
        replaces: Whether the cluster itself replaces a pod that it disrupts.
    """
    attach = f"`%ciao attach {name}` does that later"
    if replaces:
        return (
            "%retries: Kubernetes replaces pods that it disrupts; if other replicas fail because "
            f"of that, who follows the job starts it again. If nobody does, {attach}."
        )
    return (
        "%retries: who follows the job starts it again after the loss of a replica. If nobody "
        f"does, {attach}."
    )


def again(job: Job) -> str:
    """Return that a job is started again, as part of a sentence."""
    tries = f"try {job.tries + 1} of {job.retries + 1} (%retries={job.retries})"
    return f"{job.name} is started again, {tries}"


def kept(job: Job) -> str:
    """Return what a user can do about a try of which only the record exists."""
    return (
        f"{job.name} could not be started again yet: `%ciao attach {job.reference}` tries again, "
        f"`%ciao delete {job.reference}` gives it up."
    )


def delayed(job: Job, why: str, settings: Settings, limit: float | None) -> str:
    """Return that the next try has to wait for the cluster.

    Args:
        job: The try that failed.
        why: The fault, as a sentence.
        settings: The setting ``followPatience``.
        limit: Seconds after which a refusal counts as final, None if the fault is none.
    """
    patience = settings.follow_patience
    if limit is None or limit >= patience:
        time = f"{patience:.0f} s (setting followPatience)"
    else:
        time = f"{limit:.0f} s"
    return f"{job.name} is not started again yet: {why.rstrip('.')}; it is tried again for {time} …"
