"""Runs one cell: parse, select, check, build, submit, follow, clean up.

Independent of Jupyter: kernel, extension and command line are front ends to it. Nothing is
created before every check has passed; once a job exists, its end is always taken care of. What
only a run needs is imported by its first one: `ciao jobs` runs nothing.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ciao_kernel.background import start_background
from ciao_kernel.errors import BackendError, SpecError
from ciao_kernel.model import (
    ALL_LINES,
    CleanPolicy,
    Job,
    JobResult,
    JobSpec,
    Owner,
    State,
    Status,
)
from ciao_kernel.model.queries import HERE, Where
from ciao_kernel.session import lookup, selection
from ciao_kernel.session.front_end import FrontEnd
from ciao_kernel.session.owner import current_user
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.stopping import Lifetime, NoShutdown, Stopper

if TYPE_CHECKING:
    from ciao_kernel.config import Settings
    from ciao_kernel.delivery.program import Program
    from ciao_kernel.magics.header import Style
    from ciao_kernel.magics.parse import Parsed
    from ciao_kernel.magics.scanned_cell import ScannedCell
    from ciao_kernel.plugins import Backend, Builder, Console, Display, Elsewhere, Plan
    from ciao_kernel.session import job_record
    from ciao_kernel.session.followed_job import FollowedJob
    from ciao_kernel.session.following import Following
    from ciao_kernel.session.tensorboard.board import Board, Reach
    from ciao_kernel.session.warm.pool import WarmPool

_log = logging.getLogger(__name__)


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
        warm: Keeps replicas for later cells; None if no later cell comes.
        reach: Returns how a browser reaches ports of this process; None: it is no kernel.
    """

    def __init__(
        self,
        registry: Registry,
        owner: Owner,
        settings: Settings,
        lifetime: Lifetime | None = None,
        warm: WarmPool | None = None,
        reach: Callable[[], Reach] | None = None,
    ) -> None:
        self.registry = registry
        self.warm = warm
        self._reach = reach
        self.settings = settings
        self._owner = owner
        self._stopper = Stopper(lifetime or NoShutdown())
        self.last: JobResult | None = None
        """Newest job that ran or was followed here, whatever its result: ``_job`` in a cell."""
        self.preview: Preview | None = None
        """The newest dry run, unless a job was submitted after it."""

    async def close(self) -> None:
        """Close the connections of all backends, and TensorBoard. A later cell opens them again."""
        if "board" in vars(self):
            await self.board.close()
        await self.registry.close()

    @functools.cached_property
    def board(self) -> Board:
        """What shows jobs in TensorBoard."""
        from ciao_kernel.session.tensorboard.board import Board

        return Board(lambda: self.settings, self._reach)

    async def run(
        self,
        cell: str | ScannedCell,
        display: Display,
        folder: Path,
        *,
        variables: Mapping[str, Any] | None = None,
        console: Console | Elsewhere | None = None,
    ) -> JobResult | None:
        """Run a cell to its end: :meth:`parse` and :meth:`run_parsed` in one step.

        Args:
            cell: The cell, including its header.
            display: Receives the events.
            folder: The user's working folder.
            variables: The notebook's variables, for ``%input``; None if there is no notebook.
            console: Where breakpoint() opens a prompt; None if nobody can answer.

        Raises:
            UsageError: The text is wrong; nothing was started.
        """
        parsed = self.parse(cell, variables=variables)
        return await self.run_parsed(parsed, display, folder, variables=variables, console=console)

    async def run_parsed(
        self,
        parsed: Parsed,
        display: Display,
        folder: Path,
        *,
        program: Program | None = None,
        variables: Mapping[str, Any] | None = None,
        console: Console | Elsewhere | None = None,
    ) -> JobResult | None:
        """Run a parsed cell or file to its end.

        Args:
            parsed: The cell or file, from :meth:`parse`.
            display: Receives the events.
            folder: The user's working folder.
            program: Where the program is and how it starts; None: a cell in ``folder``.
            variables: The notebook's variables, for ``%input``; None if there is no notebook.
            console: Where breakpoint() opens a prompt; None if nobody can answer.

        Returns:
            The job's result, or None after a dry run.

        Raises:
            UsageError: The cell asks for something that does not exist; nothing was started.
            EnvironmentFault: This machine cannot run it; nothing was started.
            JobFailed: The job ran and failed.
            asyncio.CancelledError: The cell was interrupted; the job is stopped or being stopped.
        """
        from ciao_kernel.delivery.program import Program

        try:
            front = FrontEnd(display, variables, console)
            return await self._run(parsed, program or Program(folder), front)
        except SpecError as error:
            raise parsed.locate(error) from None

    def parse(
        self,
        cell: str | ScannedCell,
        style: Style | None = None,
        options: Mapping[str, list[str]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> Parsed:
        """Parse a cell; the spec includes the roles that its framework adds.

        Args:
            cell: The cell or file.
            style: Marker of directives in a text that was not scanned; None is that of a cell.
            options: Options of the command line, by name.
            variables: The notebook's variables, for ``{name}`` in values.
        """
        from ciao_kernel.session import planning

        return planning.parse_cell(
            cell,
            self.registry,
            self.settings,
            style=style,
            options=options,
            variables=variables,
        )

    async def _run(self, parsed: Parsed, program: Program, front: FrontEnd) -> JobResult | None:
        from ciao_kernel.session import job_record, planning, preparation

        spec = parsed.spec
        for note in parsed.notes:
            front.show(note)
        if spec.outputs and self._deletes(spec):
            raise SpecError(
                "cleanPolicy=all removes the files of the job, and what %output brings back.",
                "Write %cleanPolicy=running.",
                directive="output",
            )
        planning.check_outputs(spec)
        chosen = self.backend(spec.backend)
        plan, backend, builder = await preparation.prepare(
            parsed, program, chosen, front, self.registry, self._owner, self.settings, self.warm
        )
        if spec.dryrun:
            text = await backend.preview(plan, builder)
            self.preview = Preview(plan.header, text, spec.name or "")
            front.show(text)
            return None
        record = await asyncio.to_thread(job_record.of, plan, self.registry.table)
        end = self._start(plan, record, backend, builder, front)
        del plan, record  # The variables in it may be large, and the job may take days.
        return await end

    async def _start(
        self,
        plan: Plan,
        record: job_record.Record,
        backend: Backend,
        builder: Builder,
        front: FrontEnd,
    ) -> JobResult:
        """Submit a job, and follow it unless it is detached."""
        from ciao_kernel.session import job_record
        from ciao_kernel.session.tensorboard import new_job

        self.preview = None
        spec, folder, display = plan.spec, plan.folder, front.display
        plan = replace(plan, made_of=record.facts)
        outlive = spec.detach or self._outlives(backend)
        if spec.tensorboard is not None and (self.board.stays or not spec.detach):
            self.board.check()
            start_background(self.board.start())
        job = await backend.submit(plan, builder, display.show, outlive=outlive)
        # The job exists: from here on an interrupt must reach it, so nothing is waited for that
        # does not stop it.
        keeping = start_background(asyncio.to_thread(job_record.keep, record, job))
        del plan, record  # as those who call this do
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
            # Before anything is waited for: an interrupt leaves the job running.
            front.show(_detached(job, deletes=self._deletes(spec)))
            await asyncio.shield(keeping)  # the process of `ciao run --detach` ends
            if spec.tensorboard is not None:
                await new_job.show(self.board, backend, job, display)
            return self.last
        end = self._run_to_end(job, spec, backend, folder, front, keeping)
        if spec.tensorboard is None:
            return await end
        async with new_job.shown(self.board, backend, job, display):
            return await end

    async def rerun(
        self,
        name: str,
        display: Display,
        *,
        where: Where = HERE,
        folder: Path = Path(),
        console: Console | Elsewhere | None = None,
    ) -> JobResult:
        """Run a job again from what it was made of: the same source and header, the next name.

        Args:
            name: Name of the job, which may still run.
            display: Receives the events.
            where: Where to look for the job.
            folder: The user's working folder, for errors of the program.
            console: Where breakpoint() opens a prompt; None if nobody can answer.

        Raises:
            NoSuchJob: No job has that name.
            UsageError: This machine has no record of it.
            JobFailed: The new job ran and failed.
        """
        from ciao_kernel.delivery import inspection
        from ciao_kernel.magics import render
        from ciao_kernel.session import job_record, planning
        from ciao_kernel.session.inspection.watchers import why_passed_over

        backend, job, _ = await self.find(name, where)
        record = await asyncio.to_thread(job_record.read, job)
        import tempfile

        with tempfile.TemporaryDirectory(prefix="ciao-") as programs:
            plan = planning.plan_again(
                job,
                record.header,
                record.shown,
                job_record.source(record, Path(programs)),
                folder,
                self.registry,
                self.settings,
                self._owner,
            )
            header = render.render(plan.spec, self.registry.table)  # with the name, for another one
            record = replace(record, header=header)
            builder = selection.builder(plan.spec, backend, self.registry, self.settings)
            await backend.check(plan)
            if inspection.has_files(plan.source):
                passed_over = await why_passed_over(plan.spec, backend, self.settings, console)
                wait, kept_for = self.settings.debug_wait, plan.spec.on_error
                plan = replace(
                    plan,
                    source=inspection.with_files(plan.source, passed_over, wait, kept_for),
                )
            front = FrontEnd(display, None, console)
            end = self._start(plan, record, backend, builder, front)
            del plan, record
            return await end

    async def _run_to_end(
        self,
        job: Job,
        spec: JobSpec,
        backend: Backend,
        folder: Path,
        front: FrontEnd,
        keeping: asyncio.Task[None],
    ) -> JobResult:
        """Follow a cell's own job to its end; its record is being written."""
        from ciao_kernel.session import failure
        from ciao_kernel.session.following import Following
        from ciao_kernel.session.inspection.watchers import watchers

        delete = self._deletes(spec)
        display, variables, console = front.display, front.variables, front.console
        # Lines left out of the cell are in the log files, which are about to be removed here: only
        # an explicit %lines leaves lines out then.
        shown = replace(job, lines=job.lines or ALL_LINES, logs_kept=False) if delete else job
        describe_leftovers = None if delete else backend.describe_leftovers
        watched = watchers(shown, backend, display.show, self.settings, console, spec=spec)
        following = Following(
            shown,
            backend,
            display,
            spec.follow,
            judge=lambda status, tails: failure.judge(
                shown, status, tails, folder, describe_leftovers, variables, watched.after_kill
            ),
            watched=watched,
        )
        return await self._followed(job, following).run_to_end(
            first=keeping,
            delete=delete,
            reason=f"interrupted by {self._owner.label}",
            shutdown_wait=lambda: self.settings.shutdown_wait if self._outlives(backend) else None,
        )

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
        console: Console | None = None,
        found: tuple[Backend, Job] | None = None,
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
            console: Where breakpoint() opens a prompt; None if nobody can answer.
            found: The job and its backend, if the caller has just looked for them.

        Raises:
            NoSuchJob: No job has that name.
            UsageError: The job's lines have no timestamps.
            JobFailed: The job failed, now or long ago.
        """
        from ciao_kernel.session import failure
        from ciao_kernel.session.following import Following
        from ciao_kernel.session.inspection.watchers import watchers

        backend, job = found or (await self.find(name, where))[:2]
        self.preview = None
        shown = job if lines is None else replace(job, lines=lines)
        following = Following(
            shown,
            backend,
            display,
            follow,
            since,
            lambda status, tails: failure.judge(
                job, status, tails, folder, backend.describe_leftovers
            ),
            watchers(job, backend, display.show, self.settings, console),
        )
        return await self._followed(job, following).attach_to_end()

    def _followed(self, job: Job, following: Following) -> FollowedJob:
        from ciao_kernel.session.followed_job import FollowedJob

        return FollowedJob(job, following, self._stopper, self.registry, self._set_last)

    def _set_last(self, result: JobResult) -> None:
        self.last = result

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


def _detached(job: Job, *, deletes: bool) -> str:
    text = (
        f"{job.name} runs in the background. `%ciao attach {job.reference}` follows it, "
        f"`%ciao delete {job.reference}` stops it."
    )
    left = " It is kept after its end: cleanPolicy=all only removes jobs that a cell waits for."
    return text + left if deletes else text
