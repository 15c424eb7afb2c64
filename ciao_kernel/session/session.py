"""Runs one cell: parse, select, check, build, submit, follow, clean up.

Independent of Jupyter: kernel, extension and command line are front ends to it. Nothing is
created before every check has passed; once a job exists, its end is always taken care of.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ciao_kernel import log
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, JobError, PluginError, SpecError
from ciao_kernel.magics import build_spec, parse, render
from ciao_kernel.magics.header import Style
from ciao_kernel.magics.overrides import check_command, check_roles, merge
from ciao_kernel.magics.parse import Parsed
from ciao_kernel.magics.scanned_cell import ScannedCell
from ciao_kernel.magics.written import as_written
from ciao_kernel.model import (
    ALL_LINES,
    CleanPolicy,
    DryRun,
    Job,
    JobResult,
    JobSpec,
    Notice,
    Owner,
    State,
    Status,
)
from ciao_kernel.model.queries import HERE, Where
from ciao_kernel.plugins import AnyLanguage, Backend, Display, Plan
from ciao_kernel.session import lookup, selection
from ciao_kernel.session.following import Following
from ciao_kernel.session.keras_note import keras_note
from ciao_kernel.session.owner import current_user
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.stopping import Lifetime, NoShutdown, Stopper
from ciao_kernel.session.turns import stopped_by_success
from ciao_kernel.visible_text import listed

if TYPE_CHECKING:
    from ciao_kernel.delivery.program import Program

_log = logging.getLogger(__name__)

_LISTED = 8
"""So many paths are named in a notice at most."""


class Preview(NamedTuple):
    """A dry run: the directives of its cell, the text that it has shown, and the job's name."""

    header: str
    text: str
    name: str


class Session:
    """Runs cells, and finds the jobs that they created.

    Args:
        registry: Finds plug-ins.
        owner: Owner of new jobs.
        settings: From :func:`ciao_kernel.config.load`; :attr:`settings` may be replaced.
        lifetime: Distinguishes a stop from a shutdown.
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
        self._stopper = Stopper(lifetime or NoShutdown())
        self.last: JobResult | None = None
        """Newest job that ran or was followed here, whatever its result: ``_job`` in a cell."""
        self.preview: Preview | None = None
        """The newest dry run, unless a job was submitted after it."""

    async def close(self) -> None:
        """Close the connections of all backends. A later cell opens them again."""
        await self.registry.close()

    async def run(
        self,
        cell: str | ScannedCell,
        display: Display,
        folder: Path,
        *,
        variables: Mapping[str, Any] | None = None,
    ) -> JobResult | None:
        """Run a cell to its end: :meth:`parse` and :meth:`run_parsed` in one step.

        Args:
            cell: The cell, including its header.
            display: Receives the events.
            folder: The user's working folder.
            variables: The notebook's variables, for ``%input``; None if there is no notebook.

        Raises:
            UsageError: The text is wrong; nothing was started.
        """
        parsed = self.parse(cell, variables=variables)
        return await self.run_parsed(parsed, display, folder, variables=variables)

    async def run_parsed(
        self,
        parsed: Parsed,
        display: Display,
        folder: Path,
        *,
        program: Program | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> JobResult | None:
        """Run a parsed cell or file to its end.

        Args:
            parsed: The cell or file, from :meth:`parse`.
            display: Receives the events.
            folder: The user's working folder.
            program: Where the program is and how it starts; None: a cell in ``folder``.
            variables: The notebook's variables, for ``%input``; None if there is no notebook.

        Returns:
            The job's result, or None after a dry run.

        Raises:
            UsageError: The cell asks for something that does not exist; nothing was started.
            EnvironmentFault: This machine cannot run it; nothing was started.
            JobFailed: The job ran and failed.
            asyncio.CancelledError: The cell was interrupted; the job is stopped or being stopped.
        """
        from ciao_kernel.delivery.program import Program  # late: `ciao jobs` runs nothing

        try:
            return await self._run(parsed, display, program or Program(folder), variables)
        except SpecError as error:
            raise parsed.locate(error) from None

    def parse(
        self,
        cell: str | ScannedCell,
        style: Style = Style.CELL,
        options: Mapping[str, list[str]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> Parsed:
        """Parse a cell; the spec includes the roles that its framework adds.

        Args:
            cell: The cell or file.
            style: Marker of directives in a text that was not scanned.
            options: Options of the command line, by name.
            variables: The notebook's variables, for ``{name}`` in values.
        """
        table, options = self.registry.table, dict(options or {})
        default = (options.get("framework") or [self.settings.framework])[-1] or None
        # Another interpreter may accept syntax that this one rejects.
        own = not self.settings.python
        parsed = parse.parse(
            cell,
            table,
            style=style,
            default_framework=default,
            check_syntax=own,
            variables=variables,
        )
        given = parse.option_tokens(options)
        changed = {build_spec.find(token, table).field for token in given}
        spec = merge(parsed.spec, build_spec.read(given, table, parsed.spec.framework), changed)
        parsed = replace(parsed, tokens=parsed.tokens + given)
        framework = self.registry.framework(spec.framework)
        try:
            check_roles(spec, framework)
            check_command(spec, framework)
            spec = framework.complete(spec)
        except SpecError as error:
            raise parsed.locate(error) from None
        spec = replace(spec, groups=tuple(group for group in spec.groups if group.count))
        build_spec.check_follow(spec, parsed.tokens, table)
        return replace(parsed, spec=spec)

    async def _run(
        self,
        parsed: Parsed,
        display: Display,
        program: Program,
        variables: Mapping[str, Any] | None,
    ) -> JobResult | None:
        spec, folder = parsed.spec, program.folder
        for note in parsed.notes:
            display.show(Notice(note))
        backend = self.backend(spec.backend)
        builder = selection.builder(spec, backend, self.registry, self.settings)
        plan = await self._plan(parsed, program, variables)
        await backend.check(plan)
        for note in _delivery_notices(plan):
            display.show(Notice(note))
        # Local replicas have the kernel's environment, those of a cluster do not.
        environment = () if backend.outlives_kernel else os.environ
        if note := keras_note(spec, parsed.code, environment):
            display.show(Notice(note))
        if spec.dryrun:
            text = await backend.preview(plan, builder)
            self.preview = Preview(plan.header, text, spec.name or "")
            display.show(Notice(text))
            return None
        self.preview = None
        outlive = spec.detach or self._outlives(backend)
        job = await backend.submit(plan, builder, display.show, outlive=outlive)
        del plan  # The variables in it may be large, and the job may take days.
        _log.info(
            "%s is submitted to %s: %s, %d replicas, in %s",
            job.name,
            job.backend,
            job.framework,
            len(job.replicas),
            job.place,
        )
        self.last = JobResult(job, Status(State.RUNNING, ()))
        if spec.detach:
            display.show(Notice(_detached(job, goes=self._deletes(spec))))
            return self.last
        return await self._follow_to_end(job, spec, backend, display, folder, variables)

    async def _plan(
        self, parsed: Parsed, program: Program, variables: Mapping[str, Any] | None
    ) -> Plan:
        """Collect everything that a job needs from this machine."""
        from ciao_kernel.delivery import imports
        from ciao_kernel.delivery.packages import requirements
        from ciao_kernel.delivery.variables import deliver, module_code

        spec, folder = parsed.spec, program.folder
        framework = self.registry.framework(spec.framework)
        python = not isinstance(framework, AnyLanguage)
        source = await asyncio.to_thread(
            imports.gather,
            parsed.code,
            folder,
            spec.files,
            program.entry if python else imports.TEXT,
            module_code(spec.inputs, variables),
            module=program.module if python else "",
            stands=program.stands,
            python=python,
        )
        if spec.build.requirements:
            # Read again when they are installed. A dry run installs nothing, and finds errors too.
            await asyncio.to_thread(requirements.read, spec.build, folder)
        if spec.inputs:
            source = await asyncio.to_thread(deliver, source, spec.inputs, variables)
        # Records and lists show the header: %dryrun is not part of the job, variables are secret.
        header = render.render(replace(spec, dryrun=DryRun.NO), self.registry.table, secrets=False)
        written = as_written(parsed.tokens, self.registry.table)
        return Plan(spec.name, spec, framework, source, folder, header, self._owner, written)

    async def _follow_to_end(
        self,
        job: Job,
        spec: JobSpec,
        backend: Backend,
        display: Display,
        folder: Path,
        variables: Mapping[str, Any] | None,
    ) -> JobResult:
        """Follow a job to its end, and handle every possible end."""
        from ciao_kernel.session import failure

        goes = self._deletes(spec)
        # Lines left out of the cell are in the log files, which are about to be removed here: only
        # an explicit %lines leaves lines out then.
        shown = replace(job, lines=job.lines or ALL_LINES, logs_kept=False) if goes else job
        following = Following(shown, backend, display, spec.follow)
        try:
            status = await self._wait(following, to_end=goes)
        except asyncio.CancelledError:
            if ended := following.ended:  # only the last plot is still drawn: nothing to stop
                self.last = JobResult(job, ended)
                if goes or ended.hopeless:
                    await self._stopper.finish(self._remove(following, goes))
                raise
            wait = self.settings.shutdown_wait if self._outlives(backend) else None
            reason = f"interrupted by {self._owner.label}"
            self.last = JobResult(job, Status(State.STOPPED, (), since=time.time()))
            await self._stopper.stop(following, reason, wait=wait, delete=goes)
            raise
        except (JobError, BackendError):
            raise  # the job is over, or its state is unknown: it is left as it is
        except Exception:
            if backend.outlives_kernel:
                with log.ignored(_log, "the notice"):  # the display itself is broken
                    text = f"{job.name} keeps running; `%ciao delete {job.reference}` stops it."
                    display.show(Notice(text))
                raise
            # The display is broken (for example a closed pipe): nobody else would stop the job.
            await self._stopper.finish(backend.stop(job, "its display failed"))
            raise
        self.last = JobResult(job, status)
        _log.info("%s: %s", job.name, status.state.value)
        self._show_stopped(job, status, display)
        describe_leftovers = None if goes else backend.describe_leftovers
        error = failure.judge(job, status, following.tails, folder, describe_leftovers, variables)
        if goes or status.hopeless:
            await self._stopper.finish(self._remove(following, goes))
        if error is not None:
            raise error
        return self.last

    async def _wait(self, following: Following, *, to_end: bool = False) -> Status:
        """Return the status that a cell ends with.

        A failed cell ends with the failed replica, unless the cause may be in the last lines of
        another one. What the others still write is shown behind the error.

        Args:
            following: Shows the job.
            to_end: Wait for the job's end in any case.
        """
        from ciao_kernel.session import failure

        if to_end or not self._stopper.outlasts_cells:
            return await following.wait_until_shown()
        status = await following.wait_until_decided()
        if status.settled:
            return status
        others_run = any(not one.state.over for one in status.replicas)
        if others_run and failure.is_consequence(status, following.tails):
            return await following.wait_until_shown()
        self._stopper.finish_behind(following.show_rest())
        return status

    async def _remove(self, following: Following, goes: bool) -> None:
        """Finish following; then delete the job, or stop a job that can never start."""
        job, backend, display = following.job, following.backend, following.display
        await following.end()
        following.show_stopped()
        try:
            await (backend.delete(job) if goes else backend.stop(job, "it cannot start"))
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
        lines: int | None = None,
    ) -> JobResult:
        """Follow an existing job from its first line; an interrupt leaves it running.

        Args:
            name: Name of the job.
            display: Receives the events.
            follow: Roles and replicas whose lines are shown; empty: all.
            where: Where to look for the job.
            since: Seconds since the epoch; older lines are left out.
            folder: The user's working folder, to find files that the job missed.
            lines: First and last lines of each replica to keep; None: as the job's header says.

        Raises:
            NoSuchJob: No job has that name.
            UsageError: The job's lines have no timestamps.
            JobFailed: The job failed, now or long ago.
        """
        from ciao_kernel.session import failure

        backend, job, _ = await self.find(name, where)
        self.preview = None
        shown = job if lines is None else replace(job, lines=lines)
        following = Following(shown, backend, display, follow, since)
        try:
            status = await self._wait(following)
        except asyncio.CancelledError:
            await following.end(0)
            if following.ended:  # some replicas may still be ending
                self.last = JobResult(job, following.show_stopped())
                raise
            display.show(
                Notice(f"{job.name} keeps running; `%ciao delete {job.reference}` stops it.")
            )
            raise
        self.last = JobResult(job, status)
        _log.info("%s: %s", job.name, status.state.value)
        self._show_stopped(job, status, display)
        if error := failure.judge(job, status, following.tails, folder, backend.describe_leftovers):
            raise error
        return self.last

    def _show_stopped(self, job: Job, status: Status, display: Display) -> None:
        """Name the replicas that the job's success has stopped."""
        try:
            endless = self.registry.framework(job.framework).endless
        except PluginError:  # attached here, where its plug-in is not installed
            endless = frozenset()
        if text := stopped_by_success(job, status, endless):
            display.show(Notice(text))

    # ---------------------------------------------------------------------- existing jobs

    async def jobs(
        self, faults: list[BackendError] | None = None, where: Where = HERE
    ) -> list[tuple[Job, Status]]:
        """Return the jobs of all available backends, oldest first.

        Args:
            faults: Collects the errors of backends that cannot be asked; None: they are raised.
            where: Where to look for jobs.
        """
        return await lookup.jobs(self.available(), where, faults)

    async def find(self, name: str, where: Where = HERE) -> tuple[Backend, Job, Status]:
        """Find one job in any backend.

        Raises:
            NoSuchJob: No job has that name; the hint suggests the closest name.
        """
        return await lookup.find(self.available(), name, where)

    def owns(self, job: Job) -> bool:
        """Return whether a job is this user's: a namespace may hold the jobs of a whole team."""
        return job.kind_of_place == "folder" or job.owner.split(" ")[0] == current_user()

    def available(self) -> list[Backend]:
        """Return the backends that can be used here; the local one, always usable, is last."""
        return selection.available(self.registry, self.settings)

    def backend(self, asked: str | None) -> Backend:
        """Return the backend that a cell names, or the default backend."""
        return selection.backend(asked, self.registry, self.settings)

    def _deletes(self, spec: JobSpec) -> bool:
        """Return whether a job's folder or object is removed after a cell has seen its end."""
        return (spec.clean_policy or self.settings.clean_policy) is CleanPolicy.ALL

    def _outlives(self, backend: Backend) -> bool:
        if self.settings.on_shutdown == "auto":
            return backend.outlives_kernel
        return self.settings.on_shutdown == "leave"


def _delivery_notices(plan: Plan) -> Iterator[str]:
    """Yield notices about the files that are sent with the code."""
    from ciao_kernel.delivery.variables import MODULE

    source = plan.source
    if source.modules:
        names = listed([file.path for file in source.modules], _LISTED)
        yield f"included, because the code imports them: {names}"
    if plan.spec.inputs:
        sent = [file.path for file in source.files if file.data is not None]
        named = [path for path in sent if Path(path).stem in (*plan.spec.inputs, MODULE)]
        yield f"included, because %input names them: {listed(named, _LISTED)}"
        if others := [path for path in sent if path not in named]:
            yield f"included, because functions of %input use them: {listed(others, _LISTED)}"
    yield from source.notes


def _detached(job: Job, *, goes: bool) -> str:
    text = (
        f"{job.name} runs in the background. `%ciao attach {job.reference}` follows it, "
        f"`%ciao delete {job.reference}` stops it."
    )
    left = " It is kept after its end: cleanPolicy=all only removes jobs that a cell waits for."
    return text + left if goes else text
