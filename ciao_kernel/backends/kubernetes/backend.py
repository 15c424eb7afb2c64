"""The kubernetes backend: jobs of the Kubeflow training operator."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from ciao_kernel.backends.kubernetes import checks, marks, status, submit
from ciao_kernel.backends.kubernetes.follow import follow
from ciao_kernel.backends.kubernetes.target import Target, Targets
from ciao_kernel.config import Settings
from ciao_kernel.errors import ClusterFault, NoSuchJob, Refused, SpecError
from ciao_kernel.kube import access
from ciao_kernel.model import Event, Job, Manifest, Replica, ReplicaStatus, Status
from ciao_kernel.plugins import Builder, Emit, Plan

_GONE = 15.0
"""Seconds for which a stop waits until the pods are gone; what is left is said then."""


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

    async def follow(self, job: Job) -> AsyncIterator[Event]:
        """See :func:`ciao_kernel.backends.kubernetes.follow.follow`."""
        target = await self._target(job)
        path, _ = await self._object(job.name, target)
        logs = self._logs(job)
        with contextlib.suppress(FileNotFoundError):
            await asyncio.to_thread(shutil.rmtree, logs)  # it is read again from the start
        events = follow(target.client, job, path, logs, self._settings)
        async with contextlib.aclosing(events):
            async for event in events:
                if isinstance(event, Status) and event.settled and event.reason in status.HOPELESS:
                    await self.stop(job, event.reason)  # it would wait for ever
                yield event

    async def stop(self, job: Job, reason: str) -> None:
        """Delete the job with its pods and its ConfigMap, and wait until they are gone."""
        target = await self._target(job)
        try:
            path, item = await self._object(job.name, target)
        except NoSuchJob:
            return
        client = target.client
        await client.delete(path, uid=item["metadata"]["uid"], policy="Background")
        pods = f"/api/v1/namespaces/{job.place}/pods"
        query = {"labelSelector": f"{marks.OPERATOR_JOB}={job.name}"}
        deadline = time.monotonic() + _GONE
        while (await client.get(pods, **query)).get("items") or await client.find(path):
            if time.monotonic() > deadline:
                left = status.many(await client.get(pods, **query), "items")
                names = ", ".join(pod["metadata"]["name"] for pod in left) or job.name
                raise ClusterFault(
                    f"{job.name} is deleted, but still there: {names}.",
                    "Kubernetes removes them when their nodes answer.",
                )
            await asyncio.sleep(0.2)

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
        for plural in await self._kinds(target):
            path = f"{marks.API}/namespaces/{target.namespace}/{plural}"
            try:
                listed = await target.client.get(path, labelSelector=marks.OURS)
            except Refused as error:
                if error.code in (403, 404):
                    continue  # a kind that this user has nothing to do with
                raise
            for item in status.many(listed, "items"):
                with contextlib.suppress(KeyError, ValueError, TypeError):
                    found.append((self._here(_job(item)), item))
        states = await self._states(target)
        pairs = [(job, status.of_job(job, item, states.get(job.name, {}))) for job, item in found]
        return sorted([(job, _over(now)) for job, now in pairs], key=lambda pair: pair[0].created)

    async def find(self, name: str) -> tuple[Job, Status]:
        """One job by its name."""
        target = await self._targets.of()
        _, item = await self._object(name, target)
        job = self._here(_job(item))
        states = await self._states(target, f"{marks.OPERATOR_JOB}={name}")
        return job, _over(status.of_job(job, item, states.get(name, {})))

    async def log(self, job: Job, replica: Replica, *, last: int | None = None) -> bytes:
        """The output of one replica so far: from its pod, else from what was followed here."""
        target = await self._target(job)
        pods = f"/api/v1/namespaces/{job.place}/pods"
        name = f"{job.name}-{replica}"
        with contextlib.suppress(Refused, ClusterFault, KeyError, IndexError):
            pod = await target.client.get(f"{pods}/{name}")
            query = {"container": pod["spec"]["containers"][0]["name"]}
            text = await target.client.text(f"{pods}/{name}/log", **query)
            return text if last is None else text[-last:]
        file = self._logs(job) / f"{replica}.log"
        data = await asyncio.to_thread(file.read_bytes) if file.exists() else b""
        return data if last is None else data[-last:]

    # ----------------------------------------------------------------------------- parts

    def _here(self, job: Job) -> Job:
        """Say where on this machine the job's logs are kept."""
        return replace(job, folder=str(self._logs(job)))

    def _logs(self, job: Job) -> Path:
        return self._settings.storage / "cluster" / job.place / job.name

    async def _target(self, job: Job) -> Target:
        target = await self._targets.of()
        return Target(target.client, job.place)

    async def _kinds(self, target: Target) -> list[str]:
        served = await target.client.find(marks.API)
        names = [str(one.get("name")) for one in status.many(served, "resources")]
        return [name for name in names if "/" not in name]

    async def _object(self, name: str, target: Target) -> tuple[str, Manifest]:
        """A job's path and object, whatever its kind."""
        for plural in await self._kinds(target):
            path = f"{marks.API}/namespaces/{target.namespace}/{plural}/{name}"
            with contextlib.suppress(Refused):
                if (item := await target.client.find(path)) and _is_ours(item):
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


def _job(item: Manifest) -> Job:
    return marks.job(item, status.stamp(item["metadata"].get("creationTimestamp")))


def _over(now: Status) -> Status:
    return replace(now, settled=now.state.over)


def _no_pods(plan: Plan) -> dict[str, Manifest]:
    """Templates that are looked at by nobody: only the kind is wanted."""
    empty: Manifest = {"metadata": {}, "spec": {"containers": [{}]}}
    return {group.role: empty for group in plan.spec.groups}
