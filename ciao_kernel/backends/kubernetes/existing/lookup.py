"""Finds and lists jobs: in one namespace, in all, and where this machine submitted jobs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from dataclasses import replace

from ciao_kernel import log
from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import Api, job_metadata
from ciao_kernel.backends.kubernetes.cluster.paging import pages
from ciao_kernel.backends.kubernetes.cluster.target import Target, Targets
from ciao_kernel.backends.kubernetes.existing.listed_jobs import (
    JobWithStatus,
    PodsByJob,
    by_job,
    job_of,
    with_status,
)
from ciao_kernel.backends.kubernetes.existing.submissions import Submission, Submissions
from ciao_kernel.backends.kubernetes.lifecycle import next_try, try_record
from ciao_kernel.errors import BackendError, ClusterFault, NoSuchJob, Refused, UsageError
from ciao_kernel.model import Job, Manifest
from ciao_kernel.model.queries import Where

_log = logging.getLogger(__name__)

_ELSEWHERE = 4.0
"""Seconds in which another cluster must answer whether it has a job."""
_PODS = f"{job_metadata.OURS},{job_metadata.JOB}"

_Place = tuple[str, str]
"""Context and namespace."""
_Answer = list[Manifest] | BaseException
"""The objects of one kind, or why they could not be listed."""


class Lookup:
    """Finds jobs.

    Args:
        targets: Opens clusters.
        places: Places in which this machine submitted jobs.
    """

    def __init__(self, targets: Targets, places: Submissions) -> None:
        self._targets, self._places = targets, places

    def here(self, job: Job) -> Job:
        """Return the job with its options for commands and the folder of its logs."""
        options = self._targets.options(job.context, job.place)
        return replace(job, folder=str(self._places.folder(job)), options=options)

    async def find(self, name: str, where: Where) -> JobWithStatus:
        """Return the job with this name; without options, search places of earlier jobs too.

        Raises:
            NoSuchJob: There is no such job.
            UsageError: Several jobs have the name.
        """
        target = await self._targets.at(where)
        try:
            return await self._one(name, target, where.context)
        except (NoSuchJob, Refused) as error:  # not found, or not allowed
            gone = [(target.context, target.namespace)]
            found = [] if where.is_explicit else await self._elsewhere(name, target, gone)
            if not found:
                if isinstance(error, NoSuchJob):
                    raise self._missing(name, gone, error) from None
                raise
        if len(found) > 1:
            which = " or ".join(f"`{job.reference}`" for job, _ in found)
            raise UsageError(f"there are {len(found)} jobs named {name}.", f"Write {which}.")
        return found[0]

    async def object(self, name: str, target: Target, resource: str = "") -> tuple[str, Manifest]:
        """Return a job's path and object; search all kinds unless ``resource`` names the kind.

        Raises:
            NoSuchJob: There is no job with this name.
        """
        async with contextlib.aclosing(target.find(name, resource)) as found:
            async for path, item in found:
                if job_metadata.is_ours(item):
                    return path, item
        # Its last try is deleted, and the next one does not exist yet.
        if record := await next_try.find(target.client, target.namespace, name):
            return record.path, record.last
        raise NoSuchJob(
            f"there is no job {name} in the namespace {target.namespace}.",
            "`%ciao jobs` lists all jobs; --namespace selects another namespace.",
        )

    async def jobs(self, where: Where) -> list[JobWithStatus]:
        """Return all jobs of ciao in a place, oldest first.

        Without options: the jobs in the settings' namespace, and the jobs that this machine
        submitted to other namespaces of the same cluster.

        Raises:
            ClusterFault: This user may not list the jobs.
        """
        target = await self._targets.at(where)
        if where.everywhere:
            found = await self._listed(target, where.context, everywhere=True)
        elif where.is_explicit:
            found = await self._listed(target, where.context)
            if not found and where.namespace:
                await _check_namespace(target)
        else:
            found = [
                *await self._listed(target, ""),
                *await self._submitted(target, self._places.known()),
            ]
        return sorted(found, key=lambda pair: pair[0].created)

    # ----------------------------------------------------------------------------- parts

    async def _one(self, name: str, target: Target, context: str) -> JobWithStatus:
        path, item = await self.object(name, target)
        kind = apis.resource_of(path.rpartition("/")[0])
        try:
            job = self.here(job_of(item, kind, context, target.client.clock))
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise BackendError(
                f"the job {name} in the namespace {target.namespace} has invalid annotations "
                f"({type(error).__name__}: {error}).",
                f"`kubectl get -n {target.namespace} {kind} {name} -o yaml` shows them.",
            ) from error
        selector = job_metadata.selector(job)
        pods = pages(target.client, f"/api/v1/namespaces/{job.place}/pods", selector)
        return with_status(job, item, by_job(await pods), target.client.clock)

    def _missing(self, name: str, gone: list[_Place], error: NoSuchJob) -> NoSuchJob:
        """Return the error for a job that is not in these places: it may have left its logs here.

        The stop button deletes a job of a cluster, and so does its time to live.
        """
        for context, namespace in gone:
            if folder := self._places.kept(name, context, namespace):
                return NoSuchJob(
                    f"the job {name} is no longer on the cluster (namespace {namespace}); "
                    f"its logs are in {folder}.",
                    error.hint,
                    existed=True,
                )
        return error

    async def _elsewhere(self, name: str, here: Target, gone: list[_Place]) -> list[JobWithStatus]:
        """Return the existing jobs of this name that this machine submitted elsewhere.

        Args:
            name: The name.
            here: Where the caller has looked.
            gone: Takes the places where no job has the name any more.
        """

        async def at(place: Submission) -> list[JobWithStatus]:
            if (place.context, place.namespace) == (here.context, here.namespace):
                return []
            context = "" if place.context == here.context else place.context
            # A missing job or a silent cluster must not delay the answers of the others.
            with log.ignored(_log, "looking elsewhere", BackendError, TimeoutError):
                async with asyncio.timeout(_ELSEWHERE):
                    target = await self._targets.at(Where(context, place.namespace))
                    try:
                        pair = await self._one(name, target, context)
                    except NoSuchJob:
                        gone.append((place.context, place.namespace))
                    else:
                        return [pair] if place.holds(pair[0]) else []
            return []

        lists = await asyncio.gather(*map(at, self._places.known(name)))
        return [pair for found in lists for pair in found]

    async def _forget(self, place: Submission, here: Target) -> None:
        """Forget a place if its job is certainly gone, and not only missing from a list."""
        name = place.folder.name.rpartition("-")[0]
        with log.ignored(_log, "forgetting a job", BackendError):
            try:
                pair = await self._one(name, Target(here.client, place.namespace), "")
            except NoSuchJob:
                # A cluster that just started may not serve the operator's kinds yet.
                if await here.kinds(apis.of_resource(place.resource).path):
                    self._places.forget(place)
            else:
                if not place.holds(pair[0]):
                    self._places.forget(place)

    async def _submitted(self, here: Target, known: Iterable[Submission]) -> list[JobWithStatus]:
        """Return existing jobs that this machine submitted to other namespaces of a cluster."""
        others: dict[str, list[Submission]] = {}
        for place in known:
            if place.context == here.context and place.namespace != here.namespace:
                others.setdefault(place.namespace, []).append(place)

        async def one(namespace: str, places: list[Submission]) -> list[JobWithStatus]:
            try:
                listed = await self._listed(Target(here.client, namespace), "")
            except BackendError:
                return []  # the namespace is gone, or this user has lost access
            for place in places:
                if not any(place.holds(job) for job, _ in listed):
                    await self._forget(place, here)
            return [pair for pair in listed if any(place.holds(pair[0]) for place in places)]

        lists = await asyncio.gather(*(one(name, places) for name, places in others.items()))
        return [pair for found in lists for pair in found]

    async def _listed(
        self, target: Target, context: str, *, everywhere: bool = False
    ) -> list[JobWithStatus]:
        namespace = "" if everywhere else target.namespace
        scope = f"/namespaces/{namespace}" if namespace else ""

        async def of_kind(api: Api, plural: str) -> list[Manifest] | Refused:
            try:
                return await pages(target.client, api.at(namespace, plural), job_metadata.OURS)
            except Refused as error:
                if error.code not in (403, 404):
                    raise
                return error  # a kind that this user may not list

        async def between_tries() -> list[Manifest]:
            """Return the records of next tries that do not exist yet, as far as the rights go."""
            with contextlib.suppress(Refused):
                at = f"/api/v1{scope}/configmaps"
                return await pages(target.client, at, try_record.SELECTOR)
            return []

        async def of_all_kinds() -> tuple[list[tuple[Api, str]], list[_Answer]]:
            kinds = await target.resources()
            asked = (of_kind(api, plural) for api, plural in kinds)
            return kinds, list(await asyncio.gather(*asked, return_exceptions=True))

        waiting, pods, jobs = await asyncio.gather(
            between_tries(),
            pages(target.client, f"/api/v1{scope}/pods", _PODS),
            of_all_kinds(),
            return_exceptions=True,
        )
        if isinstance(jobs, BaseException):
            raise jobs
        kinds, answers = jobs
        for answer in (waiting, pods, *answers):
            if isinstance(answer, BaseException) and not _forbids(answer):
                if isinstance(answer, Refused) and answer.code == 404:
                    continue
                raise answer
        refusals = [answer for answer in answers if isinstance(answer, Refused)]
        # Without an operator there may be no job at all, and so no right to list any.
        installed = [(api, plural) for api, plural in kinds if not api.built_in]
        if installed and len(refusals) == len(kinds) and all(map(_forbids, refusals)):
            raise _not_allowed(target, _listing(installed), everywhere=everywhere)
        states: PodsByJob = {}
        if isinstance(pods, list):
            states = by_job(pods)
        elif any(isinstance(answer, list) and answer for answer in answers):
            raise _not_allowed(target, "list pods", everywhere=everywhere)
        clock, found = target.client.clock, []
        for (_, plural), answer in zip(kinds, answers, strict=True):
            for item in answer if isinstance(answer, list) else ():
                with contextlib.suppress(KeyError, ValueError, TypeError, AttributeError):
                    job = self.here(job_of(item, plural, context, clock))
                    found.append(with_status(job, item, states, clock))
        known = {(job.place, job.name) for job, _ in found}
        for item in waiting if isinstance(waiting, list) else ():
            with contextlib.suppress(KeyError, ValueError, TypeError, AttributeError):
                if record := try_record.read(item, item["metadata"]["namespace"]):
                    kind = apis.resource_of(record.made.path)
                    job = self.here(job_of(record.last, kind, context, clock))
                    if (job.place, job.name) not in known:
                        found.append(with_status(job, record.last, states, clock))
        return found


async def _check_namespace(target: Target) -> None:
    """Raise an error if the namespace does not exist, as far as this user may read it."""
    try:
        await target.client.get(f"/api/v1/namespaces/{target.namespace}")
    except Refused as error:
        if error.code == 404:
            raise ClusterFault(
                f"there is no namespace {target.namespace} in {target.client.access.source}.",
                "`kubectl get namespaces` lists all namespaces.",
            ) from None


def _listing(kinds: list[tuple[Api, str]]) -> str:
    """Return the right to list the kinds of the first API, as part of a sentence."""
    first, _ = kinds[0]
    served = [plural for api, plural in kinds if api is first]
    used = [plural for plural in first.plurals if plural in served] or served
    names = ", ".join(plural.partition(".")[0] for plural in used)  # a Role names no version
    return f"list {names} of {first.group}"


def _forbids(answer: BaseException) -> bool:
    return isinstance(answer, Refused) and answer.code == 403


def _not_allowed(target: Target, right: str, *, everywhere: bool) -> ClusterFault:
    source = target.client.access.source
    if everywhere:
        return ClusterFault(
            f"you may not list the jobs of all namespaces of {source}: you lack the right to "
            f"{right} in the whole cluster.",
            "Name a namespace (--namespace NAME), or ask for a ClusterRole with this right.",
        )
    return ClusterFault(
        f"you may not list the jobs of the namespace {target.namespace} of {source}: "
        f"you lack the right to {right}.",
        "Ask for the Role in deploy/rbac/, or name another namespace: --namespace NAME.",
    )
