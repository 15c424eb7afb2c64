"""Jobs with their statuses, from the objects and pods that a server has listed."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from ciao_kernel.backends.kubernetes.apis import job_metadata, job_pods
from ciao_kernel.backends.kubernetes.lifecycle import try_record
from ciao_kernel.backends.kubernetes.states import job_status, status
from ciao_kernel.kube.server_clock import ServerClock
from ciao_kernel.model import Job, Manifest, Replica, ReplicaStatus, Status

JobWithStatus = tuple[Job, Status]
PodsByJob = dict[tuple[str, str], list[tuple[Manifest, ReplicaStatus]]]
"""Pods and their statuses, by the namespace and the name of their jobs."""


def job_of(item: Manifest, resource: str, context: str, clock: ServerClock) -> Job:
    """Return the job of an object, with the time of its creation by this machine's clock.

    Raises:
        KeyError, ValueError: The object is not a job of ciao.
    """
    created = clock.to_local(status.stamp(item["metadata"].get("creationTimestamp")))
    return replace(job_metadata.job(item, created, resource), context=context)


def by_job(pods: list[Manifest]) -> PodsByJob:
    """Return the pods of all jobs with their statuses; foreign pods are left out."""
    found: PodsByJob = {}
    for pod in sorted(pods, key=job_pods.rank):  # of several the last counts
        with contextlib.suppress(KeyError, ValueError, TypeError, AttributeError):
            meta = pod["metadata"]
            name = job_metadata.job_name(pod)
            if replica := job_metadata.replica(pod):
                known = found.setdefault((meta["namespace"], name), [])
                known.append((pod, status.of_pod(pod, replica)))
    return found


def with_status(job: Job, item: Manifest, states: PodsByJob, clock: ServerClock) -> JobWithStatus:
    """Return a job with its status, by times of this machine's clock.

    Args:
        job: The job, with the folder of its logs.
        item: Its object, or that of its last try (:attr:`.NextTry.last`).
        states: The pods of all jobs.
        clock: The server's clock.
    """
    seen: dict[Replica, ReplicaStatus] = {}
    if try_record.is_recorded(item):
        return job, try_record.status(job_status.of_job(job, item, seen))
    for pod, one in states.get((job.place, job.name), ()):
        if job_metadata.is_part_of(pod, job.uid, job.run):
            log = Path(job.folder, f"{one.replica}.log")
            seen[one.replica] = replace(one, log=str(log)) if log.exists() else one
    now = job_status.of_job(job, item, seen)
    now = job_status.settled(now) if now.state.over else now
    return job, status.at_local_time(now, clock)
