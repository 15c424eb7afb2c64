"""The kubernetes backend: jobs of the Kubeflow training operator."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from ciao_kernel.backends.kubernetes import checks, marks, status, submit
from ciao_kernel.backends.kubernetes.follow import follow
from ciao_kernel.backends.kubernetes.remove import remove
from ciao_kernel.backends.kubernetes.target import Target, Targets
from ciao_kernel.config import Settings
from ciao_kernel.errors import ClusterFault, NoSuchJob, Refused, SpecError
from ciao_kernel.kube import access
from ciao_kernel.model import ClusterSpec, Event, Job, Manifest, Replica, ReplicaStatus, Status
from ciao_kernel.plugins import Builder, Emit, Plan

_LINE = 80
"""Bytes of a usual line, to turn a size into a number of lines."""


class KubernetesBackend:
    """``%backend=kubernetes``.

    Args:
        settings: Context, namespace, images and waits.
    """

    name = marks.BACKEND
    outlives_kernel = True

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._targets = Targets(settings)

    def available(self) -> bool:
        """Whether there is a kubeconfig, or a service account."""
        return access.configured()

    async def close(self) -> None:
        """Close the connections."""
        await self._targets.close()

    async def check(self, plan: Plan) -> None:
        """See that the operator is there and that the user may run jobs."""
        if plan.spec.builder == "folder":
            raise SpecError(
                "the builder folder makes folders of this machine, which no pod sees.",
                "Leave %builder out.",
                directive="builder",
            )
        made = plan.framework.manifest(plan.spec, _no_pods(plan))
        await checks.check(await self._targets.of(plan.spec.cluster), made)

    async def preview(self, plan: Plan, builder: Builder) -> str:
        """The objects that a run would create, as YAML that kubectl takes."""
        import yaml

        target = await self._targets.of(plan.spec.cluster)
        name = plan.name or f"{plan.framework.name}-name"
        quiet: Emit = lambda _: None  # noqa: E731
        _, made = await submit.prepare(plan, builder, target, self._settings, quiet, name)
        texts = [
            yaml.safe_dump(item, sort_keys=False, allow_unicode=True, width=1000)
            for item in (*made.beside, made.job)
        ]
        return "---\n".join(texts)

    async def submit(self, plan: Plan, builder: Builder, emit: Emit, *, outlive: bool) -> Job:
        """Create the ConfigMap and the job. It outlives its kernel in any case."""
        target = await self._targets.of(plan.spec.cluster)
        return self._here(await submit.submit(plan, builder, target, self._settings, emit))

    async def follow(self, job: Job, *, since: float = 0.0) -> AsyncIterator[Event]:
        """See :func:`ciao_kernel.backends.kubernetes.follow.follow`."""
        target = await self._target(job)
        path, _ = await self._object(job.name, target, job.resource)
        logs = self._logs(job)
        events = follow(target.client, job, path, logs, self._settings, since=since)
        async with contextlib.aclosing(events):
            async for event in events:
                yield event

    async def stop(self, job: Job, reason: str) -> None:
        """Delete the job with its pods and its ConfigMap, and wait until they are gone.

        Raises:
            ClusterFault: Something is still there, or nobody answers.
        """
        target = await self._target(job)
        try:
            path, item = await self._object(job.name, target, job.resource)
        except NoSuchJob:
            return
        await remove(target.client, job, path, job.uid or str(item["metadata"]["uid"]))

    async def delete(self, job: Job) -> None:
        """As :meth:`stop`, and the logs that were kept here go too."""
        await self.stop(job, "deleted")
        await asyncio.to_thread(shutil.rmtree, self._logs(job), True)

    def remains(self, job: Job) -> str:
        """What is left of a job that was stopped, for a sentence."""
        return f"it is deleted from {job.place}, and its logs up to now are in {self._logs(job)}"

    async def jobs(self) -> list[tuple[Job, Status]]:
        """All jobs of ciao in the namespace, oldest first."""
        target = await self._targets.of()
        found = []
        for plural in await target.kinds():
            path = f"{marks.API}/namespaces/{target.namespace}/{plural}"
            try:
                listed = await target.client.get(path, labelSelector=marks.OURS)
            except Refused as error:
                if error.code in (403, 404):
                    continue  # a kind that this user has nothing to do with
                raise
            for item in status.many(listed, "items"):
                with contextlib.suppress(KeyError, ValueError, TypeError):
                    found.append((self._here(_job(item, plural)), item))
        states = await self._states(target)
        pairs = [(job, status.of_job(job, item, states.get(job.name, {}))) for job, item in found]
        return sorted([(job, _over(now)) for job, now in pairs], key=lambda pair: pair[0].created)

    async def find(self, name: str) -> tuple[Job, Status]:
        """One job by its name."""
        target = await self._targets.of()
        path, item = await self._object(name, target)
        job = self._here(_job(item, path.split("/")[-2]))
        states = await self._states(target, f"{marks.OPERATOR_JOB}={name}")
        return job, _over(status.of_job(job, item, states.get(name, {})))

    async def log(self, job: Job, replica: Replica, *, last: int | None = None) -> bytes:
        """The output of one replica so far: from its pod, else from what was followed here.

        Raises:
            Refused: The server says no, and nothing was kept here.
        """
        target = await self._target(job)
        name = f"{job.name}-{replica}"
        path = f"/api/v1/namespaces/{job.place}/pods/{name}"
        file = self._logs(job) / f"{replica}.log"
        try:
            pod = await target.client.get(path)
            query = {"container": marks.container(pod)}
            if last is not None:
                query["tailLines"] = str(max(100, last // _LINE))
            data = await target.client.text(f"{path}/log", **query)
        except (Refused, ClusterFault) as error:
            gone = isinstance(error, Refused) and error.code in (400, 404)
            if not file.exists():
                if gone:  # not started yet, or deleted by now
                    return b""
                raise
            data = await asyncio.to_thread(file.read_bytes)
        return data if last is None else data[-last:]

    # ----------------------------------------------------------------------------- parts

    def _here(self, job: Job) -> Job:
        """Say where on this machine the job's logs are kept."""
        return replace(job, folder=str(self._logs(job)))

    def _logs(self, job: Job) -> Path:
        # With the uid: a later job of the same name is another one.
        name = f"{job.name}-{job.uid[:8]}" if job.uid else job.name
        return self._settings.storage / "cluster" / job.place / name

    async def _target(self, job: Job) -> Target:
        spec = ClusterSpec(context=job.context or None, namespace=job.place)
        return await self._targets.of(spec)

    async def _object(self, name: str, target: Target, resource: str = "") -> tuple[str, Manifest]:
        """A job's path and object; of any kind, unless its kind is known."""
        async for path, item in target.find(name, resource):
            if _is_ours(item):
                return path, item
        raise NoSuchJob(
            f"there is no job {name} in the namespace {target.namespace}.",
            "`ciao jobs` lists those that exist.",
        )

    async def _states(
        self, target: Target, selector: str = marks.OPERATOR_JOB
    ) -> dict[str, dict[Replica, ReplicaStatus]]:
        path = f"/api/v1/namespaces/{target.namespace}/pods"
        found: dict[str, dict[Replica, ReplicaStatus]] = {}
        for pod in status.many(await target.client.get(path, labelSelector=selector), "items"):
            name = (pod["metadata"].get("labels") or {}).get(marks.OPERATOR_JOB, "")
            if replica := marks.replica(pod):
                found.setdefault(name, {})[replica] = status.of_pod(pod, replica)
        return found


def _is_ours(item: Manifest) -> bool:
    return bool((item["metadata"].get("labels") or {}).get(marks.MANAGED) == "ciao")


def _job(item: Manifest, resource: str) -> Job:
    created = status.stamp(item["metadata"].get("creationTimestamp"))
    return marks.job(item, created, resource)


def _over(now: Status) -> Status:
    return replace(now, settled=now.state.over)


def _no_pods(plan: Plan) -> dict[str, Manifest]:
    """Templates that are looked at by nobody: only the kind is wanted."""
    empty: Manifest = {"metadata": {}, "spec": {"containers": [{}]}}
    return {group.role: empty for group in plan.spec.groups}
