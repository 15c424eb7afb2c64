"""Decides whether the end of a job is an error of its cell, and which error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ciao_kernel.errors import JobError, JobStopped
from ciao_kernel.model import Job, Replica, State, Status


def judge(
    job: Job,
    status: Status,
    tails: Mapping[Replica, bytes],
    folder: Path,
    describe_leftovers: Callable[[Job], str] | None,
    variables: Mapping[str, Any] | None = None,
    after_kill: Callable[[Replica], str] = lambda _: "",
    registry: str = "",
) -> JobError | None:
    """Return the error that a cell ends with, or None if its job succeeded or runs on.

    Args:
        job: The job. If its failure is decided, other replicas may still run.
        status: The status that the cell ends with.
        tails: End of each replica's log.
        folder: The user's working folder, to find files that the job missed.
        describe_leftovers: Describes what is left of the job; None: the job and its logs are
            removed next.
        variables: The notebook's variables, which the job may have missed.
        after_kill: Returns what a replica that was killed for its memory needs, "" if unknown.
        registry: The setting: where images that ciao makes are pushed; "" if it names none.
    """
    if status.state is State.STOPPED:
        why = f" ({status.message})" if status.message else ""
        left = describe_leftovers(job) if describe_leftovers and status.message != "deleted" else ""
        hint = f"{left[0].upper()}{left[1:]}." if left else ""
        return JobStopped(f"{job.name} was stopped{why}.", hint)
    if status.state is not State.FAILED:
        return None
    # Late: 70 modules that a job without a failure does not need.
    from ciao_kernel.session.failure.evidence import Failure
    from ciao_kernel.session.failure.explanation import explain

    gone = [one for one in status.replicas if describe_leftovers is None or not _exists(one.log)]
    known = tuple(replace(one, log="") if one in gone else one for one in status.replicas)
    status = replace(status, replicas=known)
    return explain(Failure(job, status, tails, folder, variables or {}, after_kill, registry))


def _exists(log: str) -> bool:
    """Return whether there is a log: a container that did not start has written none."""
    try:
        return bool(log) and Path(log).exists()
    except OSError:
        return False
