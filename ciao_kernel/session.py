"""Run one cell: parse, choose, check, build, submit, follow, clean up.

Knows nothing of Jupyter: kernel, extension and command line are faces of it. Nothing exists
before every check has passed; once a job exists, its end is always seen to.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ciao_kernel import failure, finder, inputs, workspace
from ciao_kernel.config import Settings
from ciao_kernel.errors import (
    BackendError,
    JobError,
    JobLost,
    JobStopped,
    PluginError,
    SpecError,
)
from ciao_kernel.magics import parse, render, values
from ciao_kernel.magics.header import Style
from ciao_kernel.magics.parse import Parsed
from ciao_kernel.model import (
    CleanPolicy,
    DryRun,
    Event,
    Job,
    JobResult,
    JobSpec,
    Notice,
    Output,
    Owner,
    Replica,
    State,
    Status,
)
from ciao_kernel.options import check_roles, merge
from ciao_kernel.owner import me
from ciao_kernel.plugins import Backend, Builder, Display, Plan
from ciao_kernel.queries import HERE, Where
from ciao_kernel.registry import Registry
from ciao_kernel.stopping import Endless, Lifetime, Stopper
from ciao_kernel.tails import Tails


class Session:
    """Runs cells, and finds the jobs that cells have made.

    Args:
        registry: Finds plug-ins.
        owner: Whom new jobs belong to.
        settings: From :func:`ciao_kernel.config.load`; :attr:`settings` may be replaced.
        lifetime: Tells a stop from a shutdown.
    """

    def __init__(
        self,
        registry: Registry,
        owner: Owner,
        settings: Settings,
        lifetime: Lifetime | None = None,
    ) -> None:
        self.registry = registry
        self.settings = settings
        self._owner = owner
        self._stopper = Stopper(lifetime or Endless())
        self.last: JobResult | None = None
        """The newest job that ran or was followed here, however it ended: ``_job`` in a cell."""

    async def close(self) -> None:
        """Close the connections of all backends. A further cell opens them again."""
        await self.registry.close()

    async def run(
        self,
        text: str,
        display: Display,
        folder: Path,
        *,
        style: Style = Style.CELL,
        entry: str = workspace.CELL,
        options: Mapping[str, list[str]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> JobResult | None:
        """Run a cell or a file to its end.

        Args:
            text: The cell, header and all.
            display: Where events go.
            folder: Where the user works.
            style: How directives are marked.
            entry: File name of the delivered program.
            options: Directives of a command line, which win over the header's.
            variables: Those of the notebook's cells, for ``%input``; None: there is no notebook.

        Returns:
            What the job left, or None after a dry run.

        Raises:
            UsageError: The text is wrong; nothing was started.
            EnvironmentFault: This machine cannot run it; nothing was started.
            JobFailed: It ran and failed.
            asyncio.CancelledError: It was interrupted; the job is stopped or being stopped.
        """
        parsed = self.parse(text, style, options)
        try:
            return await self._run(parsed, display, folder, entry, variables)
        except SpecError as error:
            raise parsed.locate(error) from None

    def parse(
        self, text: str, style: Style = Style.CELL, options: Mapping[str, list[str]] | None = None
    ) -> Parsed:
        """Read a cell; the spec has the roles that its framework adds."""
        table, options = self.registry.table, dict(options or {})
        default = (options.get("framework") or [self.settings.framework])[-1] or None
        # Another interpreter may know a syntax that this one does not.
        own = not self.settings.python
        parsed = parse.parse(text, table, style=style, default_framework=default, check_syntax=own)
        given = parse.option_tokens(options)
        spec = merge(parsed.spec, values.read(given, table, parsed.spec.framework))
        parsed = replace(parsed, tokens=parsed.tokens + given)
        framework = self.registry.framework(spec.framework)
        try:
            check_roles(spec, framework)
            spec = framework.complete(spec)
        except SpecError as error:
            raise parsed.locate(error) from None
        spec = replace(spec, groups=tuple(group for group in spec.groups if group.count))
        values.check_follow(spec, parsed.tokens, table)
        return replace(parsed, spec=spec)

    async def _run(
        self,
        parsed: Parsed,
        display: Display,
        folder: Path,
        entry: str,
        variables: Mapping[str, Any] | None,
    ) -> JobResult | None:
        spec = parsed.spec
        backend = self.backend(spec.backend)
        builder = self._builder(spec, backend)
        source = await asyncio.to_thread(workspace.gather, parsed.code, folder, spec.files, entry)
        if spec.inputs:
            source = await asyncio.to_thread(inputs.deliver, source, spec.inputs, variables)
        # Records and lists show it: %dryrun is no part of the job, and variables are secret.
        header = render.render(replace(spec, dryrun=DryRun.NO), self.registry.table, secrets=False)
        framework = self.registry.framework(spec.framework)
        plan = Plan(spec.name, spec, framework, source, folder, header, self._owner)
        await backend.check(plan)
        if source.modules:
            names = ", ".join(file.path for file in source.modules)
            display.show(Notice(f"taking along, because the code imports them: {names}"))
        if spec.inputs:
            stored = ", ".join(file.path for file in source.files if file.data is not None)
            display.show(Notice(f"taking along, because %input names them: {stored}"))
        for note in source.notes:
            display.show(Notice(note))
        if spec.dryrun:
            display.show(Notice(await backend.preview(plan, builder)))
            return None
        outlive = spec.detach or self._outlives(backend)
        job = await backend.submit(plan, builder, display.show, outlive=outlive)
        del plan, source  # The variables in it may be large, and the job may take days.
        self.last = JobResult(job.name, State.RUNNING, job.files)
        if spec.detach:
            display.show(Notice(_detached(job)))
            return self.last
        goes = (spec.clean_policy or self.settings.clean_policy) is CleanPolicy.ALL
        seen: list[Status] = []
        try:
            status, tails = await self._follow(job, backend, display, spec.follow, seen=seen)
        except asyncio.CancelledError:
            if seen and seen[-1].state.over:  # its last picture was being made: nothing to stop
                self.last = _result(job, seen[-1])
                if goes or seen[-1].hopeless:
                    await self._remove(job, backend, display, goes)
                raise
            wait = self.settings.shutdown_wait if self._outlives(backend) else None
            reason = f"interrupted by {self._owner.label}"
            self.last = replace(self.last, state=State.STOPPED)
            last = seen[-1] if seen else None
            await self._stopper.stop(
                job, backend, display, reason, wait=wait, delete=goes, last=last
            )
            raise
        except (JobError, BackendError):
            raise  # the job is over, or nobody can say: then it is left as it is
        except Exception:
            if backend.outlives_kernel:
                with contextlib.suppress(Exception):  # what shows the job is broken
                    text = f"{job.name} runs on; `%ciao delete {job.reference}` stops it."
                    display.show(Notice(text))
                raise
            # What shows the job is broken (a closed pipe, for one): nobody would ever stop it.
            await asyncio.shield(self._stopper.later(backend.stop(job, "its display broke")))
            raise
        self.last = _result(job, status)
        error = self._judge(job, status, tails, backend, folder, goes)
        if goes or status.hopeless:
            await self._remove(job, backend, display, goes)
        if error is not None:
            raise error
        return self.last

    async def _remove(self, job: Job, backend: Backend, display: Display, goes: bool) -> None:
        """Remove a job that is over, or one that would wait for ever; its own end goes first."""
        remove = backend.delete(job) if goes else backend.stop(job, "it cannot start")
        try:
            await asyncio.shield(self._stopper.later(remove))
        except BackendError as fault:
            display.show(Notice(f"{job.name} could not be removed: {fault.message}"))
        else:
            if goes:
                display.show(Notice(f"{job.name} and its files are removed (%cleanPolicy=all)."))

    async def attach(
        self,
        name: str,
        display: Display,
        follow: tuple[str, ...] = (),
        *,
        where: Where = HERE,
        since: float = 0.0,
        folder: Path = Path(),
    ) -> JobResult:
        """Follow a job that exists, from its first line; an interrupt leaves it running.

        Args:
            name: Of the job.
            display: Where events go.
            follow: Roles and replicas whose lines are shown; empty: all.
            where: Where it is looked for.
            since: Seconds since the epoch; older lines are left out.
            folder: Where the user works, to find what the job missed.

        Raises:
            NoSuchJob: There is none of that name.
            UsageError: Its lines have no times.
            JobFailed: It failed, now or long ago.
        """
        backend, job, _ = await self.find(name, where)
        seen: list[Status] = []
        try:
            status, tails = await self._follow(job, backend, display, follow, since, seen)
        except asyncio.CancelledError:
            if seen and seen[-1].state.over:
                self.last = _result(job, seen[-1])
                raise
            display.show(Notice(f"{job.name} runs on; `%ciao delete {job.reference}` stops it."))
            raise
        self.last = _result(job, status)
        if error := self._judge(job, status, tails, backend, folder):
            raise error
        return self.last

    # --------------------------------------------------------------------- jobs that exist

    async def jobs(
        self, faults: list[BackendError] | None = None, where: Where = HERE
    ) -> list[tuple[Job, Status]]:
        """All jobs of all backends that are available, oldest first.

        Args:
            faults: Gets the errors of backends that cannot be asked now; None: they are raised.
            where: Where they are looked for.
        """
        return await finder.jobs(self.available(), where, faults)

    async def find(self, name: str, where: Where = HERE) -> tuple[Backend, Job, Status]:
        """Find one job in any backend.

        Raises:
            NoSuchJob: There is none of that name; the hint offers the nearest one.
        """
        return await finder.find(self.available(), name, where)

    def owns(self, job: Job) -> bool:
        """Whether a job is this user's: a namespace may hold those of a whole team."""
        return job.kind_of_place == "folder" or job.owner.split(" ")[0] == me()

    def backend(self, asked: str | None) -> Backend:
        """The backend for a cell: what it asks for, else the setting, else the first there is."""
        name = asked if asked and asked != "auto" else self.settings.backend
        if name and name != "auto":
            return self.registry.backend(name, self.settings)
        return self.available()[0]

    # ----------------------------------------------------------------------------- steps

    def _builder(self, spec: JobSpec, backend: Backend) -> Builder:
        name = spec.builder if spec.builder and spec.builder != "auto" else self.settings.builder
        if name and name != "auto":
            named = self.registry.builder(name, self.settings)
            lacks = spec.build.wishes - named.brings
            if named.backend == backend.name and lacks:
                raise SpecError(
                    f"the builder {name} does not bring what {self._written(lacks)} asks for.",
                    "Leave %builder out: then one is chosen that does.",
                    directive="builder",
                )
            if named.backend == backend.name or backend.name != "local":
                return named  # else the cell was written for a cluster, and runs here all the same
        try:
            return self.registry.builder_for(backend.name, self.settings, spec.build.wishes)
        except PluginError:
            if not spec.build.wishes:
                raise
            raise SpecError(
                f"no builder brings {self._written(spec.build.wishes)} together.",
                "What one of them asks for can stand in the other's file, or in another image.",
                directive="framework",
            ) from None

    def _written(self, wishes: frozenset[str]) -> str:
        """Fields of BuildSpec as directives."""
        named = {f"build.{name}" for name in wishes}
        names = [f"%{one.name}" for one in self.registry.table.entries if one.field in named]
        return " and ".join(names)

    def available(self) -> list[Backend]:
        """The backends that can be used here; the local one, which always can, is the last."""
        return [one for one in self.registry.backends(self.settings) if one.available()]

    def _outlives(self, backend: Backend) -> bool:
        if self.settings.on_shutdown == "auto":
            return backend.outlives_kernel
        return self.settings.on_shutdown == "leave"

    async def _follow(
        self,
        job: Job,
        backend: Backend,
        display: Display,
        follow: tuple[str, ...],
        since: float = 0.0,
        seen: list[Status] | None = None,
    ) -> tuple[Status, Mapping[Replica, bytes]]:
        """Show a job to its end; return its last status and the ends of its logs.

        ``seen`` gets the last status also where the following is cancelled.
        """
        status: Status | None = None
        tails = Tails(len(job.replicas))
        async with _following(backend, job, since) as events:
            display.begin(job, follow)
            try:
                async for event in events:
                    if isinstance(event, Status):
                        status = event
                        if seen is not None:
                            seen[:] = [event]
                    elif isinstance(event, Output):
                        tails.add(event)
                    display.show(event)
            finally:
                await display.end()
        if status is None:
            raise JobLost(
                f"{job.name} said nothing of itself.", "`%ciao jobs` shows what is known."
            )
        return status, tails.data

    def _judge(
        self,
        job: Job,
        status: Status,
        tails: Mapping[Replica, bytes],
        backend: Backend,
        folder: Path,
        goes: bool = False,
    ) -> JobError | None:
        """The error that a job's end is; ``goes`` says that its logs are removed next."""
        if status.state is State.STOPPED:
            why = f" ({status.message})" if status.message else ""
            stay = not goes and status.message != "deleted"
            left = backend.remains(job)
            hint = left[:1].upper() + left[1:] + "." if stay else ""
            return JobStopped(f"{job.name} was stopped{why}.", hint)
        if status.state is not State.FAILED:
            return None
        if goes:
            status = replace(status, replicas=tuple(replace(r, log="") for r in status.replicas))
        return failure.explain(job, status, tails, folder)


@contextlib.asynccontextmanager
async def _following(
    backend: Backend, job: Job, since: float
) -> AsyncIterator[AsyncIterator[Event]]:
    """Follow a job, and let the backend close what it opened as soon as nobody follows."""
    events = backend.follow(job, since=since)
    try:
        yield events
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()


def _result(job: Job, status: Status) -> JobResult:
    return JobResult(job.name, status.state, job.files, status.replicas)


def _detached(job: Job) -> str:
    return (
        f"{job.name} runs by itself. `%ciao attach {job.reference}` follows it, "
        f"`%ciao delete {job.reference}` ends it."
    )
