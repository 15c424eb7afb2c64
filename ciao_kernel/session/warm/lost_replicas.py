"""Errors and sentences of a run whose replicas have ended before it."""

from __future__ import annotations

from ciao_kernel.errors import JobLost
from ciao_kernel.model import Job
from ciao_kernel.model.times import span

_HINT = "Run the cell again: it starts new replicas."


def ended(job: Job) -> JobLost:
    """Return the error for replicas that have ended, if nothing more is known."""
    return JobLost(f"the warm replicas of {job.name} have ended.", _HINT)


def replaced(job: Job, why: str) -> JobLost:
    """Return the error for replicas that lack the run, because they were started again.

    Args:
        job: Their job.
        why: What has happened to them, as a clause.
    """
    return JobLost(f"the run was lost, because {why} in {job.name}.", _HINT)


def too_old(job: Job, most: float) -> str:
    """Return the sentence about replicas whose longest life is over.

    Args:
        job: Their job.
        most: The setting ``warmMost``.
    """
    return (
        f"the warm replicas of {job.name} have ended after {span(most)}, their longest life (the "
        "setting warmMost)."
    )
