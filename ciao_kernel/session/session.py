"""Runs one cell: parse, select, check, build, submit, follow, clean up.

Independent of Jupyter: kernel, extension and command line are front ends to it. Nothing is
created before every check has passed; once a job exists, its end is always taken care of. What
only a run needs is imported by its first one: `ciao jobs` runs nothing.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ciao_kernel.errors import BackendError, SpecError
from ciao_kernel.model import CleanPolicy, Job, JobResult, JobSpec, Owner, Status
from ciao_kernel.model.queries import HERE, Where
from ciao_kernel.session import lookup, selection
from ciao_kernel.session.front_end import FrontEnd
from ciao_kernel.session.owner import current_user
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.stopping import Lifetime, NoShutdown, Stopper

if TYPE_CHECKING:
    from ciao_kernel.config import Settings
    from ciao_kernel.delivery.input.program import Program
    from ciao_kernel.magics.header import Style
    from ciao_kernel.magics.parse import Parsed
    from ciao_kernel.magics.scanned_cell import ScannedCell
    from ciao_kernel.plugins import Backend, Console, Display, Elsewhere
    from ciao_kernel.session.followed_job import FollowedJob
    from ciao_kernel.session.following import Following
    from ciao_kernel.session.tensorboard.board import Board, Reach
    from ciao_kernel.session.warm.ended_run import EndedRun
    from ciao_kernel.session.warm.pool import WarmPool


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
        self.owner = owner
        self._stopper = Stopper(lifetime or NoShutdown())
        self.last: JobResult | None = None
        """Newest job that ran or was followed here, whatever its result: ``_job`` in a cell."""
        self.started: set[str] = set()
        """Names of the jobs that were submitted here."""
        self.preview: Preview | None = None
        """The newest dry run, unless a job was submitted after it."""

    async def close(self) -> None:
        """Close the connections of all backends, and TensorBoard. A later cell opens them again."""
        if "board" in vars(self):
            await self.board.close()
        await self.registry.close()

    @functools.cached_property
    def board(self) -> Board:
        """The TensorBoard that shows jobs."""
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
        from ciao_kernel.delivery.input.program import Program

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
        from ciao_kernel.session import job_record, planning, preparation, submission

        spec = parsed.spec
        for note in parsed.notes:
            front.show(note)
        self.check_kept(spec)
        planning.check_outputs(spec)
        chosen = self.backend(spec.backend)
        plan, backend, builder = await preparation.prepare(
            parsed, program, chosen, front, self.registry, self.owner, self.settings, self.warm
        )
        if spec.dryrun:
            text = await backend.preview(plan, builder)
            self.preview = Preview(plan.header, text, spec.name or "")
            front.show(text)
            return None
        record = await asyncio.to_thread(job_record.of, plan, self.registry.table)
        end = submission.submit(self, plan, record, backend, builder, front)
        del plan, record  # The variables in it may be large, and the job may take days.
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
            UsageError: This machine has no record of it, or its results would be removed at once.
            JobFailed: The new job ran and failed.
        """
        from ciao_kernel.session.rerun import rerun

        backend, job, _ = await self.find(name, where)
        return await rerun(self, job, backend, folder, FrontEnd(display, None, console))

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
        ended: EndedRun | None = None,
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
            ended: A run of the job that is over, to be shown in place of the job.

        Raises:
            NoSuchJob: No job has that name.
            UsageError: The job's lines have no timestamps.
            JobFailed: The job failed, now or long ago.
        """
        from ciao_kernel.session.failure.verdict import judge
        from ciao_kernel.session.following import Following
        from ciao_kernel.session.inspection.watchers import NOBODY, watchers

        backend, job = found or (await self.find(name, where))[:2]
        if ended is not None:
            job = ended.job
        self.preview = None
        shown = job if lines is None else replace(job, lines=lines)
        following = Following(
            shown,
            backend,
            display,
            follow,
            since,
            lambda status, tails: judge(
                job,
                status,
                tails,
                folder,
                backend.describe_leftovers,
                registry=self.settings.registry,
            ),
            NOBODY if ended else watchers(job, backend, display.show, self.settings, console),
            ended.events() if ended else None,
        )
        return await self.followed(job, following).attach_to_end()

    def followed(self, job: Job, following: Following) -> FollowedJob:
        """Return what waits for the end of a job."""
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

    def deletes(self, spec: JobSpec) -> bool:
        """Return whether a job's folder or object is removed after a cell has seen its end."""
        return (spec.clean_policy or self.settings.clean_policy) is CleanPolicy.ALL

    def check_kept(self, spec: JobSpec) -> None:
        """Check that what ``%output`` brings back is not removed at once.

        Raises:
            SpecError: It is.
        """
        if spec.outputs and self.deletes(spec):
            setting = "" if spec.clean_policy else ", or `%ciao config cleanPolicy=running`"
            raise SpecError(
                "cleanPolicy=all removes the files of the job, and what %output brings back.",
                f"Write %cleanPolicy=running{setting}.",
                directive="output",
            )

    def outlives(self, backend: Backend) -> bool:
        """Return whether a followed job stays when its kernel ends."""
        if self.settings.on_shutdown == "auto":
            return backend.outlives_kernel
        return self.settings.on_shutdown == "leave"
