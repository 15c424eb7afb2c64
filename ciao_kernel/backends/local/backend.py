"""The local backend: jobs as processes of this machine, each with a supervisor of its own."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Callable

from ciao_kernel import preview
from ciao_kernel.backends.local import follower, gpus, interpreter, views
from ciao_kernel.backends.local.launch import Launcher
from ciao_kernel.backends.local.store import Store
from ciao_kernel.config import Settings
from ciao_kernel.errors import EnvironmentFault, SpecError
from ciao_kernel.model import ClusterSpec, Event, Job, Notice, Replica, Status
from ciao_kernel.plugins import Builder, Emit, Plan


class LocalBackend:
    """``%backend=local``.

    Args:
        settings: Where jobs are kept and how they are stopped.
        devices: Returns this machine's GPUs; a test passes its own.
    """

    name = views.BACKEND
    outlives_kernel = False

    def __init__(
        self, settings: Settings, devices: Callable[[], tuple[str, ...]] = gpus.installed
    ) -> None:
        self._settings = settings
        self._launcher = Launcher(settings, devices)
        self._store = Store(settings.storage / "jobs", settings.stop_grace)

    def available(self) -> bool:
        """Always: there is a machine."""
        return True

    async def check(self, plan: Plan) -> None:
        """See that the machine has the interpreter, the packages and the GPUs."""
        total = len(plan.spec.replicas())
        if total > self._settings.local_replicas:
            raise SpecError(
                f"the job has {total} replicas, and this machine runs at most "
                f"{self._settings.local_replicas:.0f} at once.",
                "Ask for fewer, or raise the setting: `%ciao config localReplicas=…`.",
                directive=max(plan.spec.groups, key=lambda g: g.count).role,
            )
        if plan.spec.builder not in (None, "auto", "folder"):
            raise SpecError(
                f"the builder {plan.spec.builder} makes nothing that runs on this machine.",
                "Leave %builder out.",
                directive="builder",
            )
        python, package = self._launcher.python(plan), plan.framework.package
        needed = package in plan.source.imports or plan.framework.needs_package(plan.spec)
        # An interpreter that the user named is asked in any case: it may be no Python at all.
        if needed or python != sys.executable:
            found = await interpreter.has(python, package)
            if needed and not found:
                raise EnvironmentFault(
                    f"{python} has no package {package}, which this job "
                    + ("imports." if package in plan.source.imports else "is started by."),
                    f"Install it (in a plain cell: %pip install {plan.framework.requirement}), "
                    "or name another interpreter with %python=….",
                )
        await self._launcher.check_gpus(plan)

    async def preview(self, plan: Plan, builder: Builder) -> str:
        """Files, commands and variables; ports and devices as a run now would choose them."""
        return preview.text(plan, await self._launcher.preview(plan), self.name)

    async def submit(self, plan: Plan, builder: Builder, emit: Emit, *, outlive: bool) -> Job:
        """Lay the job's folder out and start its supervisor."""
        spec = plan.spec
        if spec.cluster != ClusterSpec():
            emit(Notice("Directives of clusters, such as %image, mean nothing on this machine."))
        asked = [spec.asks(group.role) for group in spec.groups]
        if any(one.cpu or one.memory for one in asked):
            emit(Notice("%cpu and %memory bind on a cluster only; here, replicas share what is."))
        return views.job(await self._launcher.launch(plan, builder, emit, outlive=outlive))

    async def follow(self, job: Job, *, since: float = 0.0) -> AsyncIterator[Event]:
        """See :func:`ciao_kernel.backends.local.follower.follow`."""
        async with contextlib.aclosing(follower.follow(job, self._store.folder(job))) as events:
            async for event in events:
                yield event

    async def stop(self, job: Job, reason: str) -> None:
        """SIGTERM to all replicas, SIGKILL after the grace; the supervisor does both."""
        await self._store.stop(job, reason)

    async def delete(self, job: Job) -> None:
        """Stop the job and remove its folder, with all that it wrote there."""
        await self._store.delete(job)

    async def jobs(self) -> list[tuple[Job, Status]]:
        """All jobs that have a folder, oldest first; half-made ones are left out."""
        return await self._store.all()

    async def find(self, name: str) -> tuple[Job, Status]:
        """One job by its name; the error offers the nearest one."""
        return await self._store.find(name)

    async def log(self, job: Job, replica: Replica, *, last: int | None = None) -> bytes:
        """Read the replica's log file."""
        return await self._store.log(job, replica, last)

    def remains(self, job: Job) -> str:
        """Its folder, until it is deleted."""
        return f"its files stay in {job.place}"

    async def close(self) -> None:
        """Nothing is held open."""
