"""Settles submissions whose kernel was killed between two requests (:mod:`creation`).

- A source without its job is removed.
- A source whose job exists, but does not own it yet, gets its owner.
- A job whose source was never created can never start, and holds its GPUs: it is removed.

Only what the same user has submitted, and what is older than any submission takes.
:func:`clear_sources` asks for neither: it makes way for the next try of a job.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator

from ciao_kernel import log
from ciao_kernel.backends.kubernetes import apis, rights
from ciao_kernel.backends.kubernetes.apis import job_metadata, template_holder
from ciao_kernel.backends.kubernetes.cluster.paging import pages
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.lifecycle import creation, source_owners
from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.backends.kubernetes.states import status
from ciao_kernel.errors import BackendError, Refused
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job, Manifest, Notice
from ciao_kernel.plugins import Emit

_log = logging.getLogger(__name__)

_SETTLED = 600.0
"""Least number of seconds after which no kernel still creates the rest."""
_REQUESTS = 3
"""Requests of a submission, each of which is repeated for ``request_patience`` seconds."""
_RUNNING = "Running"
"""Condition of the operator's jobs that have their source; others have had it."""
_LOOK = 0.3


async def settle(target: Target, user: str, emit: Emit, patience: float) -> bool:
    """Settle the unfinished submissions of a user in a namespace, as far as the rights reach.

    Called by a kernel's first submission to a namespace, in the background. Reports only a removed
    job: nobody misses a source without one.

    Args:
        target: Cluster and namespace.
        user: User and machine, as in the owner of jobs.
        emit: Shows the notice.
        patience: Seconds for which a submission repeats a request.

    Returns:
        False if the cluster did not answer, so that the next submission should try again.
    """
    if not user:
        return True
    age = max(_SETTLED, _REQUESTS * patience)
    sources = jobs = False
    with log.ignored(_log, "looking for sources without an owner", BackendError):
        if all(await rights.allowed(target.client, target.namespace, *rights.SWEEP)):
            for item in await _unowned(target):
                if job_metadata.user(item) == user:
                    with log.ignored(_log, "settling a source without an owner", BackendError):
                        await _settle_source(target, item, age)
        sources = True
    with log.ignored(_log, "looking for jobs without a source", BackendError):
        for path, item in await _jobs(target):
            if job_metadata.user(item) == user:
                with log.ignored(_log, "ending a job without a source", BackendError):
                    await _settle_job(target, path, item, emit, age)
        jobs = True
    return sources and jobs


async def adopt(target: Target, job: Job) -> None:
    """Let a job own its source, so that both end together; called before the job is deleted."""
    with log.ignored(_log, "looking for a source without an owner", BackendError):
        if all(await rights.allowed(target.client, target.namespace, *rights.SWEEP)):
            for item in await _unowned(target, job.name):
                await _claimed(target, item)


async def clear_sources(client: Client, made: Objects, job: Job, within: float) -> None:
    """Remove the sources that a killed follower left, of which no job exists; wait for their end.

    If that follower lives after all, it cannot claim them, and removes its job.

    Args:
        client: The API server.
        made: The objects of the next try.
        job: The try that failed.
        within: Seconds to wait at most.

    Raises:
        Refused, ClusterFault: From the client.
    """
    paths = [f"{job_metadata.collection(one)}/{one['metadata']['name']}" for one in made.beside]
    for path in paths:
        item = await client.find(path)
        labels = get(item, "metadata", "labels") or {}
        unowned = job_metadata.UNOWNED in labels and labels.get(job_metadata.JOB) == job.name
        if item and unowned and not get(item, "metadata", "ownerReferences"):
            await client.delete(path, uid=str(item["metadata"]["uid"]))
    until = time.monotonic() + within
    while any([await client.find(path) for path in paths]) and time.monotonic() < until:
        await asyncio.sleep(_LOOK)


async def _unowned(target: Target, job: str = "") -> list[Manifest]:
    """Return the sources that no job owns, of one job or of all; normally there is none."""
    of = f"{job_metadata.JOB}={job}" if job else job_metadata.JOB
    selector = f"{job_metadata.OURS},{of},{job_metadata.UNOWNED}"
    found = await pages(target.client, _config_maps(target), selector)
    return [one for one in found if not many(one, "metadata", "ownerReferences")]


async def _settle_source(target: Target, item: Manifest, age: float) -> None:
    if not await _claimed(target, item) and _is_older(target, item, age):
        meta = item["metadata"]
        path = f"{_config_maps(target)}/{meta['name']}"
        await target.client.delete(path, uid=str(meta["uid"]))


async def _claimed(target: Target, item: Manifest) -> bool:
    """Make the job of a source its owner; return False if there is no such job."""
    meta, run = item["metadata"], job_metadata.run(item)
    name = get(meta, "labels", job_metadata.JOB)
    async with contextlib.aclosing(target.find(str(name))) as found:
        async for _, job in found:
            if run and job_metadata.run(job) == run:
                path = f"{_config_maps(target)}/{meta['name']}"
                source = source_owners.Source(path, str(meta["uid"]))
                owner = creation.owner_reference(job, job)
                await source_owners.claim(target.client, source, owner)
                return True
    return False


async def _jobs(target: Target) -> list[tuple[str, Manifest]]:
    """Return paths and objects of all jobs that this user may list."""
    found = []
    for api, plural in await target.resources():
        at = api.at(target.namespace, plural)
        try:
            listed = await pages(target.client, at, job_metadata.OURS)
        except Refused as error:
            if error.code not in (403, 404):
                raise
            continue
        found += [(f"{at}/{item['metadata']['name']}", item) for item in listed]
    return found


async def _settle_job(target: Target, path: str, item: Manifest, emit: Emit, age: float) -> None:
    if await _waits_forever(target, item, age):
        meta = item["metadata"]
        await target.client.delete(path, uid=str(meta["uid"]))
        emit(Notice(f"{meta['name']} is removed: its kernel ended before its source was sent."))


async def _waits_forever(target: Target, job: Manifest, age: float) -> bool:
    """Return whether a job lacks its source; one whose pods have started does not need it."""
    api = apis.of_item(job)
    started = {_RUNNING, *api.succeeded, *api.failed}
    if not _is_older(target, job, age) or status.conditions(job).keys() & started:
        return False
    client, meta = target.client, job["metadata"]
    holder = await template_holder.of(client, job, target.namespace)
    names = _sources(meta["name"], holder)
    sources = [await client.find(f"{_config_maps(target)}/{name}") for name in names]
    if all(sources):
        return False
    selector = f"{api.job_label}={meta['name']}"
    pods = await pages(client, f"/api/v1/namespaces/{target.namespace}/pods", selector)
    return all(get(pod, "status", "phase") == "Pending" for pod in pods)


def _sources(job: str, holder: Manifest) -> Iterator[str]:
    """Yield the names of the ConfigMaps that ciao made for a job; others are not its concern."""
    names = {
        str(get(volume, "configMap", "name") or "")
        for template in template_holder.pod_templates(holder).values()
        for volume in many(template, "spec", "volumes")
    }
    prefix = f"{job}-"
    yield from sorted(name for name in names if name.startswith(prefix))


def _is_older(target: Target, item: Manifest, age: float) -> bool:
    created = status.stamp(get(item, "metadata", "creationTimestamp"))
    return 0 < created < target.client.clock.now() - age


def _config_maps(target: Target) -> str:
    return f"/api/v1/namespaces/{target.namespace}/configmaps"
