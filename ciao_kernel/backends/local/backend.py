"""The local backend: jobs as processes of this machine, each with its own supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ciao_kernel.backends.local import follower, log_file, views
from ciao_kernel.backends.local.hosts import Host
from ciao_kernel.backends.local.machine import gpus
from ciao_kernel.backends.local.store import Store
from ciao_kernel.errors import EnvironmentFault, NoSuchJob, SpecError
from ciao_kernel.model import DryRun, Event, Job, Notice, Replica, Status
from ciao_kernel.model.queries import HERE, WHOLE_LOG, Details, LogOptions, Where

if TYPE_CHECKING:
    from ciao_kernel.backends.local.launch import Launcher
    from ciao_kernel.config import Settings
    from ciao_kernel.model import JobSpec, Volume
    from ciao_kernel.model.queries import Streams
    from ciao_kernel.model.stacks import ReplicaSamples, ReplicaStacks
    from ciao_kernel.model.usage import UsageReport
    from ciao_kernel.plugins import Builder, Emit, Plan


class LocalBackend:
    """``%backend=local``.

    Args:
        settings: Folder of the jobs, limits, and how jobs are stopped.
        devices: Returns this machine's GPUs; replaced in tests.
        host: This machine, among those that share the storage; replaced in tests.
    """

    name = views.BACKEND
    outlives_kernel = False
    keeps_runs = True

    def __init__(
        self,
        settings: Settings,
        devices: Callable[[], gpus.Devices] = gpus.installed,
        host: Host | None = None,
    ) -> None:
        self._settings = settings
        self._devices = devices
        storage = settings.own_storage
        self._host = host or Host(storage)
        self._store = Store(storage / "jobs", self._host)

    @cached_property
    def _launcher(self) -> Launcher:
        # Imported late: a list of jobs does not need it, nor pip's part below it.
        from ciao_kernel.backends.local.launch import Launcher

        return Launcher(self._settings, self._devices, self._host)

    def available(self) -> bool:
        """Return True: this machine is always available."""
        return True

    async def check(self, plan: Plan) -> None:
        """Check that the machine has the interpreter, the packages and the GPUs."""
        # Late, as all that only a new or a running job needs: a list of jobs is quick.
        from ciao_kernel.backends.local import executable, volumes
        from ciao_kernel.backends.local.machine import isolation
        from ciao_kernel.delivery import checkpoints
        from ciao_kernel.plugins import AnyLanguage

        if plan.spec.dryrun is DryRun.SERVER:
            raise SpecError(
                "this job would run on this machine, which has no server for a dry run.",
                "Write %dryrun without a value, or choose a cluster: %backend=kubernetes.",
                directive="dryrun",
            )
        if isolation.is_isolated(self._settings):
            await isolation.check()
        total = len(plan.spec.replicas())
        if total > self._settings.local_replicas:
            raise SpecError(
                f"the job has {total} replicas, and this machine runs at most "
                f"{self._settings.local_replicas:.0f} at once.",
                "Ask for fewer, or raise the setting: `%ciao config localReplicas=…`.",
                directive=max(plan.spec.groups, key=lambda g: g.count).role,
            )
        volumes.check(plan, self._settings.volumes)
        checkpoints.check(plan)
        checkpoints.on_this_machine(plan.spec, self._settings, plan.name or "")
        if isinstance(plan.framework, AnyLanguage):
            executable.check(plan, plan.framework.executable(plan.spec))
        else:
            await self._check_python(plan)
        await self._launcher.check_gpus(plan)

    def check_volume(self, volume: Volume) -> None:
        """Check that this machine has a folder for a volume."""
        from ciao_kernel.backends.local import volumes

        volumes.check_one(volume, self._settings.volumes)

    async def _check_python(self, plan: Plan) -> None:
        """Check that the interpreter has the framework's package."""
        from ciao_kernel.backends.local import executable, interpreter

        python, package = self._launcher.python(plan), plan.framework.package
        needed = package in plan.source.imports or plan.framework.needs_package(plan.spec)
        # An interpreter named by the user is always checked: it may not be Python at all.
        if plan.spec.build.needed:
            pass  # the requirements may include it, and are installed later
        elif needed or python != sys.executable:
            hint = interpreter.remedy(self._settings, plan.spec.python)
            found = await interpreter.has(python, package, hint)
            if needed and not found:
                install = interpreter.install_words(python, plan.framework.requirement)
                raise EnvironmentFault(
                    f"{python} has no package {package}, which this job "
                    + ("imports." if package in plan.source.imports else "needs to start."),
                    f"Install it: {install}. Or name another interpreter with %python=….",
                )
        if not plan.spec.build.needed:
            executable.check_beside(plan, python)

    async def preview(self, plan: Plan, builder: Builder) -> str:
        """Return files, commands and variables, with ports and devices that are free now."""
        from ciao_kernel.backends.local import preview, volumes
        from ciao_kernel.delivery import checkpoints

        kept = checkpoints.on_this_machine(plan.spec, self._settings, plan.name or "NAME")
        return preview.text(
            plan,
            await self._launcher.preview(plan),
            self.name,
            [
                *volumes.described(plan.spec, self._settings.volumes),
                *([f"{checkpoints.WHERE}  {kept}"] if kept else []),
            ],
        )

    async def submit(self, plan: Plan, builder: Builder, emit: Emit, *, outlive: bool) -> Job:
        """Create the job's folder and start its supervisor."""
        from ciao_kernel.backends.local.unused import unused

        for text in unused(plan):
            emit(Notice(text))
        return views.job(await self._launcher.launch(plan, builder, emit, outlive=outlive))

    def follow(self, job: Job, *, since: float = 0.0) -> AsyncIterator[Event]:
        """Follow a job, see :func:`ciao_kernel.backends.local.follower.follow`.

        Raises:
            UsageError: ``since`` is given; raised at once.
        """
        if since:
            raise log_file.no_timestamps_error("--since")
        return self._follow(job)

    async def _follow(self, job: Job) -> AsyncIterator[Event]:
        following = follower.follow(job, self._store.folder(job), self._host)
        async with contextlib.aclosing(following) as events:
            async for event in events:
                yield event

    async def is_host_terminating(self, job: Job) -> bool:
        """Return False: this machine tells the kernel itself that it ends."""
        return False

    async def stop(
        self, job: Job, reason: str, *, stop_certain: Callable[[], None] = lambda: None
    ) -> None:
        """Let the supervisor send SIGTERM to all replicas, and SIGKILL after the grace period."""
        await self._store.stop(job, reason, stop_certain=stop_certain)

    async def delete(self, job: Job) -> None:
        """Stop the job and remove its folder with all its content."""
        await self._store.delete(job)

    async def jobs(self, where: Where = HERE) -> list[tuple[Job, Status]]:
        """Return all jobs that have a folder, oldest first; none if a cluster is specified."""
        return [] if where.is_explicit else await self._store.all()

    async def find(self, name: str, where: Where = HERE) -> tuple[Job, Status]:
        """Return one job by its name."""
        if where.is_explicit:
            raise NoSuchJob(
                f"job {name} cannot be found: no cluster is configured here.",
                "Set KUBECONFIG; for a job of this machine leave --namespace and --context out.",
            )
        return await self._store.find(name)

    async def details(self, job: Job) -> Details:
        """Return the job's specification and its processes."""
        return self._store.details(job)

    async def log(self, job: Job, replica: Replica, options: LogOptions = WHOLE_LOG) -> bytes:
        """Read the replica's log file.

        Raises:
            UsageError: An option needs information that is not recorded here.
        """
        return await log_file.read(self._log_file(job, replica), options)

    def log_pieces(
        self, job: Job, replica: Replica, options: LogOptions = WHOLE_LOG
    ) -> AsyncGenerator[bytes, None]:
        """Read the replica's log file in pieces; the errors are those of :meth:`log`."""
        return log_file.pieces(self._log_file(job, replica), options)

    def _log_file(self, job: Job, replica: Replica) -> Path:
        return self._store.folder(job).log(str(replica))

    async def execute(
        self, job: Job, replica: Replica, command: Sequence[str], streams: Streams
    ) -> int:
        """Run a command in the job's folder, with the variables of a replica."""
        from ciao_kernel.backends.local import execute

        folder = self._store.folder(job)
        return await execute.execute(folder, self._host, replica, command, streams)

    async def check_feeding(self, plan: Plan) -> None:
        """Do nothing: replicas of this machine need no right."""

    async def send(self, job: Job, replica: Replica, data: bytes) -> None:
        """Write a command to the pipe of a warm replica's agent."""
        from ciao_kernel.backends.local import warm_input

        await asyncio.to_thread(warm_input.feed, self._store.folder(job), replica, data)

    async def stop_feeding(self, job: Job) -> None:
        """Do nothing: a pipe is open only while a command is written."""

    async def stacks(self, job: Job, replicas: Sequence[Replica]) -> list[ReplicaStacks]:
        """Return where the processes of some replicas stand."""
        from ciao_kernel.backends.local.inspection import stacks

        return await stacks.stacks(self._store.folder(job), self._host, replicas)

    async def samples(
        self, job: Job, replicas: Sequence[Replica], seconds: float
    ) -> list[ReplicaSamples]:
        """Return where the processes of some replicas stood, over some seconds."""
        from ciao_kernel.backends.local.inspection import stacks

        return await stacks.samples(self._store.folder(job), self._host, replicas, seconds)

    async def why_not_debugged(self, spec: JobSpec) -> str:
        """Return "": each process of a local job can be reached."""
        return ""

    async def debug(
        self, job: Job, replica: Replica, pid: int, streams: Streams, rank: str = ""
    ) -> bool:
        """Connect a person with a process that waits at a prompt."""
        from ciao_kernel.backends.local.inspection import debugging

        folder = self._store.folder(job)
        return await debugging.debug(folder, self._host, replica, pid, streams, rank)

    async def halt(self, job: Job, replica: Replica, rank: str = "") -> str:
        """Let a process of a replica stop at its next line."""
        from ciao_kernel.backends.local.inspection import debugging

        return await debugging.halt(self._store.folder(job), self._host, replica, rank)

    async def usage(self, job: Job, replicas: Sequence[Replica]) -> UsageReport:
        """Return what the processes of some replicas use."""
        from ciao_kernel.backends.local.inspection import usage

        return await usage.usage(self._store.folder(job), self._host, replicas)

    def describe_leftovers(self, job: Job) -> str:
        """Return what is left of a job: a replica that still ends, or its folder."""
        if self._store.runs(job):
            return "a replica has not ended yet"
        return f"its files stay in {job.place}"

    async def close(self) -> None:
        """Do nothing: no connection is open."""
