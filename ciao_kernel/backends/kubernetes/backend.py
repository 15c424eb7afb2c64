"""The kubernetes backend: kinds of the Kubeflow training operator, TrainJobs, Indexed Jobs.

Each method imports what it alone needs: a list of jobs needs a tenth of all that, and takes a
fraction of a second altogether.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import job_metadata, job_pods
from ciao_kernel.backends.kubernetes.cluster.paging import pages
from ciao_kernel.backends.kubernetes.cluster.target import Target, Targets
from ciao_kernel.backends.kubernetes.existing.lookup import Lookup
from ciao_kernel.backends.kubernetes.existing.submissions import Submissions
from ciao_kernel.background import start_background
from ciao_kernel.config import Settings
from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube import configured
from ciao_kernel.model import (
    ClusterSpec,
    Event,
    Job,
    JobSpec,
    Manifest,
    Notice,
    Replica,
    Status,
)
from ciao_kernel.model.queries import HERE, WHOLE_LOG, Details, LogOptions, Streams, Where

if TYPE_CHECKING:
    from ciao_kernel.backends.kubernetes.existing.pod_program import EnteredPods
    from ciao_kernel.backends.kubernetes.existing.warm_inputs import WarmInputs
    from ciao_kernel.backends.kubernetes.lifecycle.deletion import Deletions
    from ciao_kernel.backends.kubernetes.lifecycle.retries import Retries
    from ciao_kernel.model.stacks import ReplicaSamples, ReplicaStacks
    from ciao_kernel.model.usage import Usage, UsageReport
    from ciao_kernel.plugins import Builder, Emit, Plan, SentFiles, WayBack

_OWNED = 5.0
"""Seconds that closing waits for jobs that do not own their sources yet."""


class KubernetesBackend:
    """``%backend=kubernetes``.

    Args:
        settings: Context, namespace, images and timeouts.
    """

    name = job_metadata.BACKEND
    outlives_kernel = True
    keeps_runs = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._targets = Targets(settings)
        self._places = Submissions(settings.own_storage)
        self._lookup = Lookup(self._targets, self._places)
        self._settled: set[tuple[str, str]] = set()
        """Contexts and namespaces in which this process has settled unfinished submissions."""
        self._told: set[tuple[str, str]] = set()

    @cached_property
    def _inputs(self) -> WarmInputs:
        from ciao_kernel.backends.kubernetes.existing.warm_inputs import WarmInputs

        return WarmInputs()

    @cached_property
    def _deletions(self) -> Deletions:
        from ciao_kernel.backends.kubernetes.lifecycle.deletion import Deletions

        return Deletions()

    @cached_property
    def _retries(self) -> Retries:
        from ciao_kernel.backends.kubernetes.lifecycle.retries import Retries

        return Retries(self._deletions)

    def available(self) -> bool:
        """Return whether there is a kubeconfig or a service account."""
        return configured.configured()

    async def close(self) -> None:
        """Close the connections, when all jobs own their sources."""
        from ciao_kernel.backends.kubernetes.lifecycle import source_owners

        await source_owners.wait_until_all_owned(_OWNED)
        if "_inputs" in vars(self):
            await self._inputs.close()
        await self._targets.close()

    async def check(self, plan: Plan) -> None:
        """Check that the cluster can run the job and that the user may run it.

        Raises:
            ClusterFault: From the client; the hint also names the way without a cluster.
        """
        try:
            await self._check(plan)
        except ClusterFault as fault:
            if not fault.unreachable:
                raise
            hint = f"{fault.hint} To run on this machine: %backend=local."
            raise ClusterFault(fault.message, hint, unreachable=True) from fault

    async def _check(self, plan: Plan) -> None:
        from ciao_kernel.backends.kubernetes.cluster import checks
        from ciao_kernel.backends.kubernetes.manifests import manifest, volumes
        from ciao_kernel.backends.kubernetes.submission import choice, output_checks
        from ciao_kernel.delivery import checkpoints

        volumes.check(plan, self._settings.host_folders)
        checkpoints.check(plan)
        checkpoints.on_cluster(plan.spec, self._settings, plan.name or "")
        target = await self._targets.of(plan.spec.cluster)
        chosen = await choice.choose(plan, target, self._settings)
        made = manifest.kind_of(plan, chosen.api)
        await checks.check(target, made, chosen.api, chosen.rights)
        if plan.spec.kept_paths:
            await output_checks.check(plan, target, self._settings)

    async def preview(self, plan: Plan, builder: Builder) -> str:
        """Return the objects that a run would create, as YAML for kubectl.

        With ``%dryrun=server`` the server has checked them and would accept them.
        """
        from ciao_kernel.backends.kubernetes.submission import preview

        target = await self._targets.of(plan.spec.cluster)
        return await preview.text(plan, builder, target, self._settings)

    async def submit(self, plan: Plan, builder: Builder, emit: Emit, *, outlive: bool) -> Job:
        """Create the job and its ConfigMap; the kernel's pod owns a job that ends with it."""
        from ciao_kernel.backends.kubernetes.submission import (
            earlier_runs,
            output_checks,
            sent_values,
            submit,
        )

        target = await self._targets.of(plan.spec.cluster)
        if plan.name and plan.spec.checkpoint:
            deleting = functools.partial(self._deletions.names, target.namespace)
            await earlier_runs.wait(target, plan.name, deleting, emit)
        elif plan.name and self._deletions.ends(target.namespace, plan.name):
            emit(Notice(f"waiting until the stopped job {plan.name} is deleted …"))
            await self._deletions.wait_until_deleted(target.namespace, plan.name)
        if (here := (target.context, target.namespace)) not in self._settled:
            self._settled.add(here)
            user = plan.owner.label.partition(" ")[0]
            start_background(self._settle(here, target, user, emit))
        job = await submit.submit(
            plan, builder, target, self._settings, emit, outlive=outlive, told=self._told
        )
        self._places.remember(job, target.context)
        job = self._lookup.here(job)
        if plan.spec.detach:
            said = await output_checks.detached_notice(plan.spec, target, job, self._settings)
            if said := said or await sent_values.detached_notice(plan, target, job, self._settings):
                emit(Notice(said))
        return job

    async def _settle(self, here: tuple[str, str], target: Target, user: str, emit: Emit) -> None:
        """Settle what a killed kernel left; the next submission tries again after a fault."""
        from ciao_kernel.backends.kubernetes.lifecycle import unfinished

        if not await unfinished.settle(target, user, emit, self._settings.request_patience):
            self._settled.discard(here)

    async def follow(self, job: Job, *, since: float = 0.0) -> AsyncIterator[Event]:
        """Follow a job, and start it again after the loss of a replica (``%retries``)."""
        job, target = await self._newest(job)
        path = job_metadata.path(job.place, job.resource, job.name)
        if not job.resource:
            path, _ = await self._lookup.object(job.name, target)
            job = replace(job, resource=apis.resource_of(path.rpartition("/")[0]))
        folder = self._places.folder(job)
        events = self._retries.follow(target, job, path, folder, self._settings, since=since)
        async with contextlib.aclosing(events):
            async for event in events:
                yield event

    async def is_host_terminating(self, job: Job) -> bool:
        """Return whether this kernel's pod is being deleted; SIGTERM may follow seconds later."""
        from ciao_kernel.backends.kubernetes.lifecycle import kernel_pod

        return await kernel_pod.ends(await self._target(job))

    async def stop(
        self, job: Job, reason: str, *, stop_certain: Callable[[], None] = lambda: None
    ) -> None:
        """Delete the job with its pods and its ConfigMap, and wait until they are gone.

        Raises:
            ClusterFault: Some of them still exist, or the API server does not answer.
        """
        # Not the newest try: which one that is, is certain only when no further one can come.
        target = await self._target(job)
        path = job_metadata.path(job.place, job.resource, job.name)
        await self._retries.stop(target, job, path, stop_certain)

    async def set_suspended(self, job: Job, *, suspended: bool) -> None:
        """Suspend or resume a job; see :mod:`.suspension`."""
        from ciao_kernel.backends.kubernetes.lifecycle import suspension

        job, target = await self._newest(job)
        _, item = await self._lookup.object(job.name, target, job.resource)
        await suspension.set_suspended(target, job, item, suspended=suspended)

    async def delete(self, job: Job) -> None:
        """Stop the job as :meth:`stop` does; remove its saved logs and leftover build pods too."""
        import shutil

        from ciao_kernel.backends.kubernetes.cluster.build_pods import delete_stale_build_pods
        from ciao_kernel.backends.kubernetes.lifecycle import unfinished

        target = await self._target(job)
        await unfinished.adopt(target, job)
        await self.stop(job, "deleted")
        await delete_stale_build_pods(target, self._settings)
        await asyncio.to_thread(shutil.rmtree, self._places.folder(job), True)

    def describe_leftovers(self, job: Job) -> str:
        """Describe what is left of a job that was or is being stopped, as part of a sentence."""
        if left := self._deletions.left(self._retries.current(job)):
            return left
        kept = self._places.folder(job)
        return f"nothing of it is left in {job.place}, and its logs are in {kept}"

    async def jobs(self, where: Where = HERE) -> list[tuple[Job, Status]]:
        """Return all jobs of ciao in a place, oldest first."""
        return await self._lookup.jobs(where)

    async def find(self, name: str, where: Where = HERE) -> tuple[Job, Status]:
        """Return the job with this name."""
        return await self._lookup.find(name, where)

    async def details(self, job: Job) -> Details:
        """Return details from the job's object, its pods and their events."""
        from ciao_kernel.backends.kubernetes.apis import template_holder
        from ciao_kernel.backends.kubernetes.existing import details, job_events

        job, target = await self._newest(job)
        # First, because it tells whether there is such a job.
        _, item = await self._lookup.object(job.name, target, job.resource)
        pods = await self._pods(job, target)
        holder = await template_holder.of(target.client, item, target.namespace)
        events, missing = await job_events.read(target.client, job, pods)
        clock = target.client.clock
        return Details(
            facts=details.facts(job, item, target.client.access.source, holder),
            groups=details.groups(holder),
            pods={replica: str(pod["metadata"]["name"]) for replica, pod in pods.items()},
            conditions=details.conditions(item, clock),
            cluster_events=details.cluster_events(events, job.created, clock),
            missing=missing,
            manifest=details.shown(item),
        )

    async def log(self, job: Job, replica: Replica, options: LogOptions = WHOLE_LOG) -> bytes:
        """Return a replica's output so far: from its pod, otherwise from its saved log."""
        from ciao_kernel.backends.kubernetes.existing import logs

        job, target = await self._newest(job)
        kept = self._places.folder(job) / f"{replica}.log"
        return await logs.read(target.client, job, replica, options, kept)

    async def log_pieces(
        self, job: Job, replica: Replica, options: LogOptions = WHOLE_LOG
    ) -> AsyncGenerator[bytes, None]:
        """Yield a replica's output so far as it comes, see :meth:`log`."""
        from ciao_kernel.backends.kubernetes.existing import logs

        job, target = await self._newest(job)
        kept = self._places.folder(job) / f"{replica}.log"
        found = logs.stream(target.client, job, replica, options, kept)
        async with contextlib.aclosing(found):
            async for piece in found:
                yield piece

    async def execute(
        self, job: Job, replica: Replica, command: Sequence[str], streams: Streams
    ) -> int:
        """Run a command in the replica's container, or in the one that keeps its files.

        Raises:
            BackendError: The container is not running, or the command cannot be run.
        """
        from ciao_kernel.backends.kubernetes.existing import pod_command

        job, target = await self._newest(job)
        pod = (await self._pods(job, target)).get(replica)
        return await pod_command.execute(target.client, job, replica, pod, command, streams)

    async def sent(self, job: Job, replica: Replica) -> SentFiles | None:
        """Return what can still be had of a replica that has ended, see :mod:`.sent_files`."""
        from ciao_kernel.backends.kubernetes.output import sent_files

        job, target = await self._newest(job)
        # First, as for the details.
        _, item = await self._lookup.object(job.name, target, job.resource)
        pod = (await self._pods(job, target)).get(replica)
        return await sent_files.later(target.client, self._settings, job, replica, pod, item)

    async def check_feeding(self, plan: Plan) -> None:
        """Check the right to write to the job's pods."""
        from ciao_kernel.backends.kubernetes.cluster import checks
        from ciao_kernel.backends.kubernetes.existing import warm_inputs

        target = await self._targets.of(plan.spec.cluster)
        await checks.require_rights(target, "keep replicas warm", *warm_inputs.RIGHTS)

    async def send(self, job: Job, replica: Replica, data: bytes) -> None:
        """Write a command to the standard input of a warm replica's container."""
        # A warm job has one try, and its pods are asked for only until they are connected.
        target = await self._target(job)
        pods = functools.partial(self._pods, job, target)
        await self._inputs.send(target.client, job, replica, data, pods)

    async def stop_feeding(self, job: Job) -> None:
        """Close the connections to the pods of a warm job."""
        await self._inputs.forget(job)

    async def way_back(self, plan: Plan) -> WayBack:
        """Return how files of a run leave warm pods, see :mod:`.warm_files`."""
        from ciao_kernel.backends.kubernetes.submission import warm_files

        target = await self._targets.of(plan.spec.cluster)
        return await warm_files.way_back(plan, target, self._settings)

    async def stacks(self, job: Job, replicas: Sequence[Replica]) -> list[ReplicaStacks]:
        """Return where the processes of some replicas stand.

        Raises:
            BackendError: This user may not enter pods, or the API server does not answer.
        """
        from ciao_kernel.backends.kubernetes.existing import stacks

        return await stacks.stacks(await self._entered(job), replicas)

    async def samples(
        self, job: Job, replicas: Sequence[Replica], seconds: float
    ) -> list[ReplicaSamples]:
        """Return where the processes of some replicas stood, over some seconds.

        Raises:
            BackendError: This user may not enter pods, or the API server does not answer.
        """
        from ciao_kernel.backends.kubernetes.existing import stacks

        return await stacks.samples(await self._entered(job), replicas, seconds)

    async def why_not_debugged(self, spec: JobSpec) -> str:
        """Return the right that this user lacks to enter pods; "" if none is missing."""
        from ciao_kernel.backends.kubernetes.existing import debugging

        return await debugging.why_not(await self._targets.of(spec.cluster))

    async def debug(
        self, job: Job, replica: Replica, pid: int, streams: Streams, rank: str = ""
    ) -> bool:
        """Connect a person with a process that waits at a prompt, by one exec."""
        from ciao_kernel.backends.kubernetes.existing import debugging

        return await debugging.debug(await self._entered(job), replica, pid, streams, rank)

    async def halt(self, job: Job, replica: Replica, rank: str = "") -> str:
        """Let a process of a replica stop at its next line, by one exec."""
        from ciao_kernel.backends.kubernetes.existing import debugging

        return await debugging.halt(await self._entered(job), replica, rank)

    async def usage(self, job: Job, replicas: Sequence[Replica]) -> UsageReport:
        """Return what some replicas use, see :mod:`.usage`.

        Raises:
            BackendError: Nothing measures them, or this user may not ask.
        """
        from ciao_kernel.backends.kubernetes.existing import usage

        return await usage.usage(await self._entered(job), replicas)

    async def watch_usage(
        self, job: Job, replica: Replica, note: Callable[[Usage], None], *, gpus: bool = False
    ) -> None:
        """Measure a replica every two seconds until its container ends."""
        from ciao_kernel.backends.kubernetes.existing import usage

        await usage.watch(await self._entered(job), replica, note, gpus)

    # ----------------------------------------------------------------------------- parts

    async def _target(self, job: Job) -> Target:
        spec = ClusterSpec(context=job.context or None, namespace=job.place)
        return await self._targets.of(spec)

    async def _newest(self, job: Job) -> tuple[Job, Target]:
        """Return the newest try of a job, and where it is."""
        job = self._retries.current(job)
        return job, await self._target(job)

    async def _entered(self, job: Job) -> EnteredPods:
        """Return the pods of the newest try of a job, for programs that run in them."""
        from ciao_kernel.backends.kubernetes.existing.pod_program import EnteredPods

        job, target = await self._newest(job)
        pods = await self._pods(job, target)
        return EnteredPods(target.client, job, pods, self._settings.cluster_python)

    async def _pods(self, job: Job, target: Target) -> dict[Replica, Manifest]:
        """Return the pod of each replica that has one."""
        path = f"/api/v1/namespaces/{job.place}/pods"
        return job_pods.of_replicas(
            job, await pages(target.client, path, job_metadata.selector(job))
        )
