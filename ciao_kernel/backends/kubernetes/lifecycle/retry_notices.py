"""Notices about the tries of a job (``%retries``): who makes the next one, what a user can do."""

from __future__ import annotations

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import JOB
from ciao_kernel.model import Job


def resubmission(job: Job) -> str:
    """Return who starts a job again, for the cell and for a dry run."""
    attach = f"`%ciao attach {job.name}` does that later"
    if apis.of_job(job) is JOB:
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
