"""Starts a job again after the loss of a replica (``%retries``), and follows all its tries as one.

A kind of the training operator fails as a whole when a pod is evicted or deleted, whatever its
restart policy (training-operator 1.9, pkg/core/status.go). The follower then deletes the job and
creates it again from its own objects, with the next number in an annotation, so any follower can do
that. The Job controller replaces pods that the cluster disrupts (``podFailurePolicy``); if other
replicas fail for want of them, the whole job is started again too.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import secrets
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

from ciao_kernel.backends.kubernetes import apis, creation, job_metadata, manifest
from ciao_kernel.backends.kubernetes.apis import JOB, MPI_OPERATOR
from ciao_kernel.backends.kubernetes.deletion import Deletions
from ciao_kernel.backends.kubernetes.follow import follow
from ciao_kernel.backends.kubernetes.losses import Losses
from ciao_kernel.backends.kubernetes.manifest import Objects
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.backends.kubernetes.status import DELETED
from ciao_kernel.backends.kubernetes.target import Target
from ciao_kernel.background import start_background
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, Refused
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.model import Event, Job, Manifest, Notice, State, Status
from ciao_kernel.plugins import Emit

_OF_SERVER = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)
"""Labels that the server adds to the template of a Job."""
_OTHERS = 10.0
"""Seconds for which another follower's next try is awaited, beyond the grace period of the pods."""
_LOOK = 0.3


class Retries:
    """The tries of jobs that this process follows.

    Args:
        deletions: Deletes the try that has failed.
    """

    def __init__(self, deletions: Deletions) -> None:
        self._deletions = deletions
        self._current: dict[str, Job] = {}
        """The newest try of a job by the uid of its first."""
        self._stopped: set[str] = set()
        self._creating: dict[str, asyncio.Lock] = {}

    def current(self, job: Job) -> Job:
        """Return the newest known try of a job."""
        newest = self._current.get(job.identity)
        return newest if newest and newest.tries > job.tries else job

    async def stop(self, job: Job) -> Job:
        """Prevent further tries of a job; return the newest, which has to be deleted."""
        first = job.identity
        self._stopped.add(first)
        if lock := self._creating.get(first):
            async with lock:
                pass
        return self.current(job)

    async def follow(
        self,
        target: Target,
        job: Job,
        path: str,
        logs: Path,
        settings: Settings,
        *,
        since: float = 0.0,
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of a job and of its further tries, until the last one is settled.

        Args:
            target: The job's cluster and namespace.
            job: The job.
            path: Path of its object.
            logs: Folder for the log files.
            settings: Timeouts.
            since: Seconds since the epoch; older lines are left out.

        Raises:
            ClusterFault, Refused: As :func:`.follow.follow`; or a try could not be created.
        """
        while True:
            losses, failed, why = Losses(), None, ""
            events = follow(target.client, job, path, logs, settings, since=since, losses=losses)
            async with contextlib.aclosing(events):
                async for event in events:
                    if isinstance(event, Status):
                        event = _counted(event, job)
                        why = losses.excuse(event) if self._may_retry(job) else ""
                        if why and event.settled:
                            failed = event
                            break
                        event = _going_on(event) if why else event
                    yield event
            if failed is None:
                return
            yield Notice(
                f"{why}; {job.name} is started again, try {job.tries + 1} of {job.retries + 1} "
                f"(%retries={job.retries})."
            )
            await asyncio.to_thread(_keep_logs, logs, job)
            notices: list[Event] = []
            # An interrupt of the cell or command must not leave the job deleted.
            work = start_background(self._again(target, job, path, settings, notices.append))
            again = await asyncio.shield(work)
            for notice in notices:
                yield notice
            if again is None:
                yield replace(failed, state=State.STOPPED, message=DELETED)
                return
            job, since = again, 0.0

    def _may_retry(self, job: Job) -> bool:
        left = job.tries <= job.retries
        return left and apis.of_job(job) is not apis.TRAINER and job.identity not in self._stopped

    async def _again(
        self, target: Target, job: Job, path: str, settings: Settings, emit: Emit
    ) -> Job | None:
        """Delete a failed try and create the next one; None if somebody else ended the job."""
        client, first = target.client, job.identity
        grace = settings.grace(job.grace)
        item = await client.find(path)
        if item is None or get(item, "metadata", "deletionTimestamp"):
            return await self._others(client, job, path, grace)
        if (uid := str(item["metadata"]["uid"])) != (job.uid or uid):
            return self._found(item, job)
        run = secrets.token_hex(8)
        made = next_try(item, await _sources(target, item, job), job, run)
        await self._deletions.remove(client, replace(job, uid=uid), path, lambda: None)
        created: Object | None = None
        async with self._creating.setdefault(first, asyncio.Lock()):
            if first in self._stopped:
                return None
            try:
                created = await creation.create(target, made, emit)
            except Refused as error:
                if error.reason != "AlreadyExists":
                    raise
            if created is not None:
                uid = str(created["metadata"]["uid"])
                again = replace(
                    job, uid=uid, run=run, tries=job.tries + 1, first_uid=first, created=time.time()
                )
                self._current[first] = again
                return again
        return await self._others(client, job, path, grace)  # another follower was faster

    async def _others(self, client: Client, job: Job, path: str, grace: float) -> Job | None:
        """Return the next try that another follower makes; None if somebody ended the job.

        The other one deletes the failed try first, which takes as long as its pods need to end.
        """
        until = time.monotonic() + grace + _OTHERS
        while True:
            item = await client.find(path)
            if item and (found := self._found(item, job)):
                return found
            foreign = item and str(item["metadata"]["uid"]) != job.uid
            if foreign or job.identity in self._stopped or time.monotonic() > until:
                return None
            await asyncio.sleep(_LOOK)

    def _found(self, item: Manifest, job: Job) -> Job | None:
        """Return the next try of a job that another follower has created; None if it is none."""
        notes = get(item, "metadata", "annotations") or {}
        if notes.get(job_metadata.FIRST_UID) != job.identity or (
            str(item["metadata"]["uid"]) == job.uid  # a further try is still there
        ):
            return None
        again = replace(
            job,
            uid=str(item["metadata"]["uid"]),
            run=job_metadata.run(item),
            tries=int(notes.get(job_metadata.TRY, job.tries + 1)),
            first_uid=job.identity,
        )
        self._current[job.identity] = again
        return again


def resubmission_notice(job: Job) -> str:
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


def next_try(item: Manifest, sources: list[Manifest], job: Job, run: str) -> Objects:
    """Return the objects of a job's next try: those of the last, without what the server added.

    Args:
        item: The object of the last try.
        sources: The objects beside it.
        job: The last try.
        run: Unique identifier of the next submission.
    """
    body = _cleaned(item, run)
    body["apiVersion"], body["kind"] = _kind(item, job)
    notes = {job_metadata.TRY: str(job.tries + 1), job_metadata.FIRST_UID: job.identity}
    body["metadata"]["annotations"] |= notes
    if owners := get(item, "metadata", "ownerReferences"):  # a kernel's pod
        body["metadata"]["ownerReferences"] = owners
    body["spec"] = dict(item["spec"])
    if apis.of_item(item) is MPI_OPERATOR:  # its pods name their submission
        body["spec"] = copy.deepcopy(item["spec"])
        for template in manifest.pod_templates(body).values():
            template["metadata"]["annotations"][job_metadata.RUN] = run
    if apis.of_item(item) is JOB:
        body["spec"].pop("selector", None)
        template = dict(body["spec"]["template"])
        labels = get(template, "metadata", "labels") or {}
        kept = {key: value for key, value in labels.items() if key not in _OF_SERVER}
        template["metadata"] = {**template["metadata"], "labels": kept}
        body["spec"]["template"] = template
    beside = []
    for source in sources:
        made = _cleaned(source, run)
        made |= {key: source[key] for key in ("data", "binaryData", "immutable") if key in source}
        if source["kind"] == "Service":
            own = ("clusterIP", "publishNotReadyAddresses", "selector")
            made["spec"] = {key: source["spec"][key] for key in own if key in source["spec"]}
        beside.append(made)
    return Objects(tuple(beside), body, job_metadata.path(job.place, job.resource, "")[:-1])


def _cleaned(item: Manifest, run: str) -> Manifest:
    meta = item["metadata"]
    labels = dict(meta.get("labels") or {})
    labels.pop(job_metadata.UNOWNED, None)
    return {
        "apiVersion": item.get("apiVersion"),
        "kind": item.get("kind"),
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": {**(meta.get("annotations") or {}), job_metadata.RUN: run},
        },
    }


def _kind(item: Manifest, job: Job) -> tuple[str, str]:
    api = apis.of_resource(job.resource)
    return f"{api.group}/{api.version}", str(item["kind"])


async def _sources(target: Target, item: Manifest, job: Job) -> list[Manifest]:
    """Return what ciao created beside a job: its ConfigMaps and the Service of its hosts."""
    core, found = f"/api/v1/namespaces/{job.place}", dict[str, tuple[str, str]]()
    for template in manifest.pod_templates(item).values():
        for volume in many(template, "spec", "volumes"):
            if name := get(volume, "configMap", "name"):
                found[f"{core}/configmaps/{name}"] = ("v1", "ConfigMap")
        if name := get(template, "spec", "subdomain"):
            found[f"{core}/services/{name}"] = ("v1", "Service")
    made = []
    for path, (version, kind) in sorted(found.items()):
        source = await target.client.find(path)
        if source is None:
            name = path.rpartition("/")[2]
            raise BackendError(
                f"{job.name} cannot be started again: its {kind} {name} is gone.",
                "Run the cell again; with %checkpoint it goes on.",
            )
        if job_metadata.run(source) == job_metadata.run(item):
            made.append({**source, "apiVersion": version, "kind": kind})
    return made


def _counted(now: Status, job: Job) -> Status:
    """Return a status in which each replica counts the earlier tries of the job as restarts."""
    if job.tries == 1:
        return now
    replicas = (replace(one, restarts=one.restarts + job.tries - 1) for one in now.replicas)
    return replace(now, replicas=tuple(replicas), tries=job.tries)


def _going_on(now: Status) -> Status:
    """Return the status of a job that has failed, and that is started again."""
    return replace(
        now,
        state=State.RUNNING,
        reason="",
        message="",
        decided_by=None,
        foreseen=False,
        decided=False,
    )


def _keep_logs(folder: Path, job: Job) -> None:
    """Name the log files of a try after it, so that the next one has files of its own.

    Other files there came back from the program (``%output``).
    """
    for replica in job.replicas:
        with contextlib.suppress(OSError):
            path = folder / f"{replica}.log"
            kept = path.with_suffix(f".try-{job.tries}.log")
            # Another follower may have done it, and write the files of the next try already.
            if path.exists() and not kept.exists():
                path.replace(kept)
