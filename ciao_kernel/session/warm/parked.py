"""A job whose replicas are kept: hears what they say, and runs one program after the other in them.

It follows its job as a cell would, as long as the job lives: so it hears of a deleted pod between
two runs, and of each line exactly once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

from ciao_kernel import log
from ciao_kernel.background import cancel_all
from ciao_kernel.errors import BackendError, CiaoError, JobError, NoSuchJob
from ciao_kernel.model import Job, Notice, Output, Replica, State, Status
from ciao_kernel.plugins import Backend, Feeding
from ciao_kernel.session.warm import lost_replicas
from ciao_kernel.session.warm.expiry import Expiry
from ciao_kernel.session.warm.feeder import Feeder
from ciao_kernel.session.warm.key import Key
from ciao_kernel.session.warm.logs import keep_values
from ciao_kernel.session.warm.replica_states import ReplicaStates
from ciao_kernel.session.warm.run import Run
from ciao_kernel.session.warm.run_end import PING, RunEnd

_log = logging.getLogger(__name__)

_ENDING = 15.0
"""Seconds after the grace period in which a stopped run must have ended."""
_BEHIND = 0.01
"""Seconds between two looks whether a cell has taken its events: a flood fills no memory."""


class Parked:
    """The replicas of one job.

    Args:
        job: The job.
        backend: Runs it, and delivers commands (:class:`Feeding`).
        key: What a cell must have in common with it.
        nonce: Distinguishes its markers.
        grace: Seconds from SIGTERM to SIGKILL.
        linger: Seconds for other workers after the deciding one has succeeded.
        lease: Seconds without a word of the kernel after which idle replicas end.
        clock: Tells the time, also that of a sleep of this machine.
    """

    def __init__(
        self,
        job: Job,
        backend: Backend,
        key: Key,
        nonce: str,
        *,
        grace: float,
        linger: float,
        lease: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        assert isinstance(backend, Feeding)
        self.job, self.key = job, key
        self.loop = asyncio.get_running_loop()
        self.runs = 0
        self._lost = self._unfollowed = False
        self._unseen = False
        """True if idle replicas may still be there, although their job cannot be followed."""
        self._told = False
        self.run: Run | None = None
        self._last: Status | None = None
        """The last status of the job."""
        self._backend: Backend = backend
        self._feeding: Feeding = backend
        self._clock = clock
        self._expiry = Expiry(lease, clock)
        self._feeder = Feeder(job, backend, grace)
        self._grace = grace
        self._states = ReplicaStates(job.replicas, nonce)
        self._run_end = RunEnd(job, self._feeder, self._expiry, linger, self._start, self._release)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._start(self._follow())
        self._start(self._ping(min(PING, lease / 3)))

    @property
    def over(self) -> bool:
        """True if no run can begin in the replicas any more: their job has ended, or will end."""
        # It may be seconds until all of its pods or processes have ended.
        ended = self._last is not None and self._last.state.over
        return self._lost or self._unfollowed or (ended and self.run is None)

    @property
    def holds_room(self) -> bool:
        """True if some replicas may still hold what they asked for."""
        return self._unseen or not self._unfollowed

    @property
    def grace(self) -> float:
        """Seconds from SIGTERM to SIGKILL."""
        return self._grace

    @property
    def expires(self) -> float:
        """Time at which the replicas end by themselves if they hear nothing more."""
        return self._expiry.at

    @property
    def idle_end(self) -> float:
        """Time at which the replicas end if no run begins in them."""
        return self._expiry.idle_end

    @property
    def farewell(self) -> str:
        """The sentence that the replicas are not used any more, without its full stop."""
        if self._unseen:
            return f"the warm replicas of {self.job.name} could not be followed any more"
        why = self._expiry.why(over=self.over)
        return f"the warm replicas of {self.job.name} have ended{why}"

    @property
    def memory(self) -> int:
        """Megabytes that all zygotes hold, after the first run."""
        return self._states.memory

    @property
    def root(self) -> str:
        """Folder of the runs in the replicas; "" until they are ready."""
        return self._states.root

    def begin(self, run: Run) -> None:
        """Start a run as soon as all replicas are ready."""
        self.run, self.runs = run, run.number
        self._expiry.begin(run.plan.spec.warm or 0)
        if self._last is not None:
            run.locate(self._last)
        self._send_when_ready()

    async def stop(self, reason: str, stop_certain: Callable[[], None]) -> None:
        """End the processes of the active run, and wait for their end; the replicas stay.

        A run that was not sent yet, and one that does not end, are ended with their job.

        Args:
            reason: Reason shown to the user.
            stop_certain: Called as soon as the processes end also without this one.
        """
        run = self.run
        if run is None:
            return
        run.dropped = True
        run.decide(State.STOPPED, "StoppedByUser", reason)
        if not run.sent:
            await self._end_job(reason, stop_certain)
            return
        self._run_end.cancel_bringing()
        self._run_end.stop(run, lambda: run.active, stop_certain)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._grace + _ENDING):
                await run.over.wait()
                return
        await self._end_job(reason, stop_certain)

    async def end(self) -> None:
        """End the replicas; an active run is left as an ordinary job."""
        if self.over or self.run is not None:
            return
        await self._feeder.send_bye()

    def let_go(self) -> None:
        """Tell replicas that nobody needs them, if they should still be there."""
        if self.loop is not asyncio.get_running_loop():
            return  # those of another loop, as of a subshell that has ended, end by their lease
        if self._unseen:
            self._start(self._end_lost_job("its replicas could not be followed any more"))
        elif not self.over:
            self._start(self._feeder.send_bye())

    async def close(self) -> None:
        """Stop following the job, and wait until nothing of that is open any more."""
        self._run_end.cancel_linger()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        await cancel_all(tasks)

    async def _end_job(self, reason: str, stop_certain: Callable[[], None] = lambda: None) -> None:
        await self._backend.stop(self.job, reason, stop_certain=stop_certain)

    # ------------------------------------------------------------------------- what is heard

    async def _follow(self) -> None:
        fault: BaseException = lost_replicas.ended(self.job)
        try:
            events = self._backend.follow(self.job)
            try:
                async for event in events:
                    if isinstance(event, Status):
                        self._hear_status(event)
                    elif isinstance(event, Output):
                        self._hear_output(event)
                    elif self.run is not None:
                        self.run.show(event)
                    while self.run is not None and self.run.is_behind:
                        await asyncio.sleep(_BEHIND)
            finally:
                if isinstance(events, AsyncGenerator):
                    await events.aclose()
        except CiaoError as error:
            fault = error
        except Exception as error:
            _log.exception("following the warm job %s failed", self.job.name)
            fault = error
        finally:
            self._unfollowed = True
            run = self.run  # while its program runs, the job is left as any that cannot be followed
            idle = run is None or not run.sent or run.programs_over
            self._unseen = idle and not isinstance(fault, JobError | NoSuchJob)
            if self.run is not None and not self.run.over.is_set():
                self._lose_replicas(self.run, fault)
            self._release()
            for task in self._tasks - {asyncio.current_task()}:  # pings and commands
                task.cancel()
            with log.ignored(_log, "closing the inputs", Exception):
                await self._feeding.stop_feeding(self.job)

    def _lose_replicas(self, run: Run, fault: BaseException) -> None:
        """End a run whose replicas are gone; one that is over has lost its files at most."""
        if run.files is None or not run.programs_over:
            run.fail(fault)
            return
        self._run_end.lose_files(run)
        run.finish()

    def _lose_runs(self, why: str) -> None:
        """End the job, because replicas were started again: they lack the run, others wait."""
        run = self.run
        self._give_up(why)
        if run is None:
            return
        if run.state.over:
            self._run_end.lose_files(run)
            run.finish()
        else:
            run.fail(lost_replicas.replaced(self.job, why))

    def _give_up(self, why: str) -> None:
        """End the job; the replicas are not kept, so the next cell starts new ones at once."""
        self._release()
        self._lost = True
        self._states.ready.clear()
        self._start(self._end_lost_job(why))

    async def _end_lost_job(self, why: str) -> None:
        with log.ignored(_log, "ending warm replicas that take no run", Exception):
            await self._end_job(why)

    def _hear_status(self, status: Status) -> None:
        run, before, self._last = self.run, self._last, status
        if not status.state.over:
            ran = before is not None and before.state is State.RUNNING
            if run is not None and not run.sent:
                run.show(status)
            elif status.state is State.PENDING and (ran if run is None else run.is_cut):
                self._lose_runs(f"the replicas were ended ({status.reason or 'Pending'})")
            return
        if run is None:
            return
        if status.is_late:  # not by the %deadline of the cell, which is that of its run
            text = lost_replicas.too_old(self.job, self.key.settings.warm_most)
            status = replace(status, message=text)
        if not run.sent:
            for replica, noise in self._states.noise.items():
                run.output(replica, noise)
            run.show(status)
        elif not (status.settled or status.decided):
            return
        elif run.programs_over:  # the result of the run is known
            self._lose_replicas(run, lost_replicas.ended(self.job))
        elif status.state in (State.FAILED, State.STOPPED):
            run.end_with(status)
        else:  # the agents have ended by themselves: the result of the run is unknown
            run.fail(lost_replicas.ended(self.job))
        if run.sent or status.settled:
            run.over.set()
            self._release()

    def _hear_output(self, event: Output) -> None:
        replica = event.replica
        for part in self._states.parts(replica, event.data):
            if isinstance(part, dict):
                self._hear_marker(replica, part)
            else:
                self._hear_lines(replica, part)
        run = self.run
        if run is None or not self._states.is_inside(replica, run):
            return
        if event.tail and not event.tail.startswith(b"\x1e"):
            run.output(replica, b"", event.tail)

    def _hear_lines(self, replica: Replica, data: bytes) -> None:
        run = self.run
        if run is not None and self._states.is_inside(replica, run):
            run.output(replica, data)
        else:
            self._states.keep_noise(replica, data)

    def _hear_marker(self, replica: Replica, marker: dict[str, Any]) -> None:
        what, run = marker.get("ev"), self.run
        self._expiry.hear(marker)
        if self.over:
            return  # the job ends; no run is in it any more
        if what == "ready":
            if replica in self._states.ready:
                self._lose_runs(f"{replica} was started again")
                return
            self._states.ready[replica] = marker
            self._send_when_ready()
        elif what == "begin":
            self._states.begin(replica, marker)
            if run is not None and run.number == marker["id"]:
                run.begin(replica)
                if run.state.over:  # stopped before this replica had the command
                    self._run_end.stop(run, lambda: run.not_ended)
        elif what == "end":
            self._states.end(replica, marker)
            if run is not None and run.number == marker["id"]:
                keep_values(run.job, replica, marker)
                self._hear_end(run, replica, marker)
        elif run is not None and run.files is not None and run.number == marker.get("id"):
            if what == "files":
                run.files.take(replica, marker)
            elif what == "given":
                run.given(replica, marker)
                if run.complete:
                    self._run_end.end(run)

    def _hear_end(self, run: Run, replica: Replica, marker: dict[str, Any]) -> None:
        before = run.state
        if marker.get("cold") and not self._told:
            self._told = True
            text = "an import of the program starts a thread, opens a GPU or ends the process"
            run.show(Notice(f"each run here starts a fresh interpreter: {text}"))
        run.end(replica, marker)
        if not run.complete:
            if run.state.over and not before.over:
                self._run_end.end_others(run)
            return
        self._run_end.end(run)

    def _release(self) -> bool:
        """Forget the active run, which is over, and return whether the replicas stay."""
        self.run = None
        self._run_end.cancel_linger()
        return not (self.over or self._expiry.said)

    # --------------------------------------------------------------------------- what is sent

    def _send_when_ready(self) -> None:
        run = self.run
        if run is None or run.sent or not self._states.all_ready:
            return
        run.sent = True
        self._start(self._send_run(run))

    async def _send_run(self, run: Run) -> None:
        fault = await self._feeder.start(run, self._states.ready)
        if fault is None:
            return
        if isinstance(fault, BackendError):
            self._give_up("a run could not be started")
        run.fail(fault)

    async def _ping(self, pause: float) -> None:
        while True:
            await asyncio.sleep(pause)
            sent = self._clock()
            if await self._feeder.ping(list(self._states.ready)):
                self._expiry.reach(sent, running=self.run is not None)

    def _start(self, work: Any) -> asyncio.Task[Any]:
        """Start a task that neither a cell's end nor a shutdown waits for."""
        task: asyncio.Task[Any] = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
