"""Waits for the end of a followed job, and handles each end: success, failure, an interrupt.

The job of a cell is stopped by an interrupt, and may be removed after its end; an attached job is
only shown.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from ciao_kernel import log
from ciao_kernel.errors import BackendError, JobError, PluginError
from ciao_kernel.magics.directives import serving
from ciao_kernel.model import Job, JobResult, Notice, State, Status
from ciao_kernel.plugins import endless_roles
from ciao_kernel.session import returned_values
from ciao_kernel.session.following import Following
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.stopping import Stopper
from ciao_kernel.session.turns import stopped_by_success

_log = logging.getLogger(__name__)


class FollowedJob:
    """A job whose lines a cell or a command shows.

    Args:
        job: The job.
        following: Shows the job.
        stopper: Stops the job of an interrupted cell.
        registry: Finds the job's framework.
        set_result: Receives the result, before a cell's error is raised.
    """

    def __init__(
        self,
        job: Job,
        following: Following,
        stopper: Stopper,
        registry: Registry,
        set_result: Callable[[JobResult], None],
    ) -> None:
        self._job, self._following = job, following
        self._backend, self._display = following.backend, following.display
        self._stopper = stopper
        self._registry = registry
        self._set_result = set_result

    async def run_to_end(
        self,
        *,
        record_task: asyncio.Task[None],
        delete: bool,
        reason: str,
        shutdown_wait: Callable[[], float | None],
    ) -> JobResult:
        """Wait for the end of a cell's own job; an interrupt stops it.

        Args:
            record_task: Writes the record of the job, before anything of it may be removed.
            delete: Remove the job after its end.
            reason: Reason of a stop by an interrupt.
            shutdown_wait: Returns the seconds in which a shutdown may still save the job of an
                interrupted cell; None: nothing saves it.

        Raises:
            JobFailed: The job failed.
            asyncio.CancelledError: The cell was interrupted; the job is stopped or being stopped.
        """
        job, backend = self._job, self._backend
        try:
            await asyncio.shield(record_task)
            status = await self._wait(to_end=delete)
        except asyncio.CancelledError:
            self._following.withdraw()
            if ended := self._following.ended:  # only the last plot is still drawn: nothing to stop
                self._set_result(JobResult(job, ended))
                if delete or ended.hopeless:
                    await self._stopper.finish(self._remove(delete, record_task))
                raise
            self._set_result(JobResult(job, Status(State.STOPPED, (), since=time.time())))
            await self._following.watched.show_before_stop()
            await self._stopper.stop(
                self._following,
                reason,
                wait=shutdown_wait(),
                delete=delete,
                record_task=record_task,
            )
            raise
        except (JobError, BackendError):
            raise  # the job is over, or its state is unknown: it is left as it is
        except Exception:
            if backend.outlives_kernel:
                with log.ignored(_log, "the notice"):  # the display itself is broken
                    self._show_running()
                raise
            # The display is broken (for example a closed pipe): nobody else would stop the job.
            await self._stopper.finish(backend.stop(job, "its display failed"))
            raise
        error = self._following.conclude(status)  # before any notice: no line is folded behind one
        result = self._show_result(status, error)
        self._following.watched.show_after_deadline(status)
        if delete or status.hopeless:
            try:
                await self._stopper.finish(self._remove(delete, record_task))
            except asyncio.CancelledError:
                self._following.withdraw()
                raise
        if error is not None:
            raise error
        return result

    async def attach_to_end(self) -> JobResult:
        """Wait for the end of an attached job; an interrupt leaves it running.

        Raises:
            JobFailed: The job failed, now or long ago.
            asyncio.CancelledError: The cell was interrupted.
        """
        job, following = self._job, self._following
        try:
            status = await self._wait()
        except asyncio.CancelledError:
            following.withdraw()
            await following.end(0)
            if following.ended:  # some replicas may still be ending
                self._set_result(JobResult(job, following.show_stopped()))
                raise
            self._set_result(JobResult(job, Status(State.RUNNING, ())))
            self._show_running()
            raise
        error = following.conclude(status)
        result = self._show_result(status, error)
        if error:
            raise error
        return result

    async def _wait(self, *, to_end: bool = False) -> Status:
        """Return the status that a cell ends with.

        A failed cell ends with the failed replica, unless the cause may be in the last lines of
        another one. What the others still write is shown behind the error.

        Args:
            to_end: Wait for the job's end in any case.
        """
        following = self._following
        if to_end or not self._stopper.outlasts_cells:
            return await following.wait_until_shown()
        status = await following.wait_until_decided()
        if status.settled:
            return status
        if any(not one.state.over for one in status.replicas):
            from ciao_kernel.session.failure.explanation import is_consequence

            if is_consequence(status, following.tails):
                return await following.wait_until_shown()
        self._stopper.finish_behind(following.show_rest())
        return status

    async def _remove(self, delete: bool, record_task: asyncio.Task[None]) -> None:
        """Finish following; then delete the job, or stop a job that can never start."""
        job, backend, display = self._following.job, self._backend, self._display
        await self._following.end()
        self._following.show_stopped()
        await asyncio.wait({record_task})
        try:
            await (backend.delete(job) if delete else backend.stop(job, "it cannot start"))
        except BackendError as fault:
            display.show(Notice(f"{job.name} could not be removed: {fault.message}"))
        else:
            if delete:
                display.show(Notice(f"{job.name} and its files are removed (%cleanPolicy=all)."))

    def _show_result(self, status: Status, error: JobError | None) -> JobResult:
        """Store the result, log it; name stopped replicas and the values that came back."""
        result = JobResult(self._job, status, error)
        self._set_result(result)
        _log.info("%s: %s", self._job.name, status.state.value)
        try:
            framework = self._registry.framework(self._job.framework)
            roles = endless_roles(framework, serving.roles_in(self._job.header))
        except PluginError:  # attached here, where its plug-in is not installed
            roles = frozenset()
        if text := stopped_by_success(self._job, status, roles):
            self._display.show(Notice(text))
        text = self._following.watched.after_success()
        if text and status.state is State.SUCCEEDED:
            self._display.show(Notice(text))
        for text in returned_values.sentences(self._job, status):
            self._display.show(Notice(text))
        return result

    def _show_running(self) -> None:
        job = self._job
        text = (
            f"{job.name} keeps running; `%ciao attach {job.reference}` follows it again, "
            f"`%ciao delete {job.reference}` stops it."
        )
        self._display.show(Notice(text))
