"""What looks after a followed job beside its lines: silence, prompts, memory, what it uses."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from ciao_kernel.config import Settings
from ciao_kernel.delivery.inspection.breakpoints import Breakpoint
from ciao_kernel.magics.directives import usage_columns
from ciao_kernel.model import Event, Job, JobSpec, Replica, Status
from ciao_kernel.plugins import Backend, Debugging
from ciao_kernel.plugins.console import Console, Elsewhere
from ciao_kernel.session.inspection import query
from ciao_kernel.session.inspection.memory_watch import MemoryWatch, memory_watch
from ciao_kernel.session.inspection.prompts import Prompts
from ciao_kernel.session.inspection.silence import SilenceWatch, is_inspected
from ciao_kernel.session.inspection.usage_watch import PATIENCE, UsageWatch


@dataclass(frozen=True, slots=True)
class Watchers:
    """The watchers of one job; None where nobody watches."""

    silence: SilenceWatch | None = None
    prompts: Prompts | None = None
    memory: MemoryWatch | None = None
    usage: UsageWatch | None = None

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch during the body."""
        async with contextlib.AsyncExitStack() as stack:
            if self.silence:
                await stack.enter_async_context(self.silence.watching())
            if self.prompts:
                await stack.enter_async_context(self.prompts.opened())
            if self.memory:
                await stack.enter_async_context(self.memory.watching())
            if self.usage:
                await stack.enter_async_context(self.usage.watching())
            yield

    def note(self, event: Event) -> None:
        """Take notice of an event of the job."""
        if self.silence:
            self.silence.note(event)
        if self.prompts and isinstance(event, Status):
            self.prompts.note_status(event)
        if self.memory:
            self.memory.note(event)
        if self.usage:
            self.usage.note(event)

    def note_breakpoint(self, replica: Replica, found: Breakpoint) -> None:
        """Take notice of a process that waits for a front end, or goes on."""
        if self.prompts:
            self.prompts.note(replica, found)
        if self.silence:
            self.silence.note_pause()

    async def show_before_stop(self) -> None:
        """Show where the replicas of a silent job stand that is about to be stopped."""
        if self.silence:
            await self.silence.show_before_stop()

    def show_after_deadline(self, status: Status) -> None:
        """Show where the replicas of a silent job stood when its deadline came."""
        if self.silence:
            self.silence.show_after_deadline(status)

    def after_kill(self, replica: Replica) -> str:
        """Return what a replica that was killed for its memory needs; "" if that is not known."""
        return self.memory.after_kill(replica) if self.memory else ""

    def after_success(self) -> str:
        """Return how little memory the replicas used; "" if that is not known, or no news."""
        return self.memory.after_success() if self.memory else ""


NOBODY = Watchers()


def watchers(
    job: Job,
    backend: Backend,
    show: Callable[[Event], None],
    settings: Settings,
    console: Console | Elsewhere | None,
    *,
    spec: JobSpec | None = None,
) -> Watchers:
    """Return the watchers of a job.

    Args:
        job: The job.
        backend: The backend that runs it.
        show: Shows an event in the cell.
        settings: Whether jobs are inspected, after which silence, and what the table shows.
        console: Where breakpoint() opens a prompt; None if nobody can answer.
        spec: The specification of a cell's own job; None if it was started elsewhere: then its
            deadline is not known, and whoever started it gives advice about its memory.
    """
    deadline = spec.deadline if spec else None
    silence = None
    if is_inspected(job, settings.inspect):
        silence = SilenceWatch(job, backend, show, settings.silence, deadline)
    prompts = None
    if console is not None and isinstance(backend, Debugging):
        asked = {one.role: spec.asks(one.role).gpu for one in spec.groups} if spec else {}
        gpus = {role: gpu.count for role, gpu in asked.items() if gpu}
        prompts = Prompts(job, backend, console, show, deadline, gpus=gpus)
        if silence:
            silence.pauses = lambda: prompts.active
            silence.forget_killed = lambda: prompts.forget_killed(
                lambda: query.ask_quietly(backend, job)
            )
    usage = None
    if usage_columns.has_usage_columns(job.header, settings.usage):
        usage = UsageWatch(job, backend, show)
    memory = memory_watch(
        job,
        backend,
        settings.inspect,
        advises=spec is not None,
        usage=usage.take if usage else None,
    )
    if usage and memory:
        usage.waits = PATIENCE
    return Watchers(silence, prompts, memory, usage)


async def why_passed_over(
    spec: JobSpec, backend: Backend, settings: Settings, console: Console | Elsewhere | None
) -> str:
    """Return why breakpoint() opens no prompt, to end a sentence; "" if it does."""
    if spec.detach:
        return "nobody follows a job with %detach"
    if console is None:
        return "this front end has no input"
    if spec.dryrun or (spec.inspect or settings.inspect) != "on":
        return ""
    if isinstance(backend, Debugging):
        return await backend.why_not_debugged(spec)
    return f"the backend {backend.name} has no debugger"
