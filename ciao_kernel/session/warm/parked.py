"""A job whose replicas are kept: hears what they say, and runs one program after the other in them.

It follows its job as a cell would, as long as the job lives: so it hears of a deleted pod between
two runs, and of each line exactly once.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

from ciao_kernel import log
from ciao_kernel.delivery.warm.marks import MarkReader
from ciao_kernel.errors import BackendError, CiaoError, JobLost
from ciao_kernel.model import Address, Job, Notice, Output, Replica, State, Status
from ciao_kernel.plugins import Backend, Feeding
from ciao_kernel.session.warm.command import command
from ciao_kernel.session.warm.key import Key
from ciao_kernel.session.warm.logs import keep_values
from ciao_kernel.session.warm.run import Run

_log = logging.getLogger(__name__)

_PING = 20.0
_REPEAT = 2.0
"""Seconds after which a command is sent again to a replica that has not confirmed it."""
_TRIES = 15
_ENDING = 15.0
"""Seconds after the grace period in which a stopped run must have ended."""
_BEHIND = 0.01
"""Seconds between two looks whether a cell has taken its events: a flood fills no memory."""
_NOISE = 1 << 16
"""Bytes kept of what a replica writes outside of runs: the reason if it cannot start."""


class Parked:
    """The replicas of one job.

    Args:
        job: The job.
        backend: Runs it, and delivers commands (:class:`Feeding`).
        key: What a cell must have in common with it.
        nonce: Distinguishes its markers.
        grace: Seconds from SIGTERM to SIGKILL.
        linger: Seconds for other workers after the deciding one has succeeded.
    """

    def __init__(
        self, job: Job, backend: Backend, key: Key, nonce: str, *, grace: float, linger: float
    ) -> None:
        assert isinstance(backend, Feeding)
        self.job, self.key = job, key
        self.loop = asyncio.get_running_loop()
        self.runs = 0
        self.idle_since = time.time()
        self.seconds = 0
        self.over = False
        self._told = False
        self.run: Run | None = None
        self._last: Status | None = None
        """The last status of the job."""
        self._backend: Backend = backend
        self._feeding: Feeding = backend
        self._grace, self._linger = grace, linger
        self._readers = {one: MarkReader(nonce) for one in job.replicas}
        self._ready: dict[Replica, dict[str, Any]] = {}
        self._noise: dict[Replica, bytes] = {}
        self._memory: dict[Replica, int] = {}
        self._inside: dict[Replica, int] = {}
        self._bringing: asyncio.Task[None] | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._start(self._follow())
        self._start(self._ping())

    @property
    def grace(self) -> float:
        """Seconds from SIGTERM to SIGKILL."""
        return self._grace

    @property
    def expires(self) -> float:
        """Time at which the replicas end by themselves if no run begins."""
        return self.idle_since + self.seconds

    @property
    def memory(self) -> int:
        """Megabytes that all zygotes hold, after the first run."""
        return sum(self._memory.values())

    @property
    def root(self) -> str:
        """Folder of the runs in the replicas; "" until they are ready."""
        return next((str(one["root"]) for one in self._ready.values()), "")

    def begin(self, run: Run) -> None:
        """Start a run as soon as all replicas are ready."""
        self.run, self.runs, self.seconds = run, run.number, run.plan.spec.warm or 0
        if self._last is not None:
            run.locate(self._last)
        self._send_when_ready()

    async def stop(self, reason: str) -> None:
        """End the processes of the active run, and wait for their end; the replicas stay.

        A run that was not sent yet, and one that does not end, are ended with their job.
        """
        run = self.run
        if run is None:
            return
        run.dropped = True
        run.decide(State.STOPPED, "StoppedByUser", reason)
        if not run.sent:
            await self._end_job(reason)
            return
        if self._bringing is not None:
            self._bringing.cancel()
        self._start(self._stop_replicas(run, lambda: run.active))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._grace + _ENDING):
                await run.over.wait()
                return
        await self._end_job(reason)

    async def end(self) -> None:
        """End the replicas; an active run is left as an ordinary job."""
        if self.over or self.run is not None:
            return
        await asyncio.gather(
            *(self._send(one, {"op": "bye"}) for one in self.job.replicas), return_exceptions=True
        )

    async def close(self) -> None:
        """Stop following the job, and wait until nothing of that is open any more."""
        self._cancel_linger()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _end_job(self, reason: str) -> None:
        await self._backend.stop(self.job, reason)

    # ------------------------------------------------------------------------- what is heard

    async def _follow(self) -> None:
        fault: BaseException = self._gone()
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
            self.over = True
            if self.run is not None and not self.run.over.is_set():
                self._lose_replicas(self.run, fault)
            self._release()
            for task in self._tasks - {asyncio.current_task()}:  # pings and commands
                task.cancel()
            with log.ignored(_log, "closing the inputs", Exception):
                await self._feeding.stop_feeding(self.job)

    def _gone(self) -> JobLost:
        return JobLost(
            f"the warm replicas of {self.job.name} have ended.",
            "Run the cell again: it starts new ones.",
        )

    def _lose_replicas(self, run: Run, fault: BaseException) -> None:
        """End a run whose replicas are gone; one that is over has lost its files at most."""
        if run.files is None or not run.programs_over:
            run.fail(fault)
            return
        self._lose_files(run)
        run.finish()

    def _lose_files(self, run: Run) -> None:
        if self._bringing is not None:
            self._bringing.cancel()
        if run.files is not None:
            run.files.give_up("its pod has ended")

    def _lose_runs(self, why: str) -> None:
        """End the job, because replicas were started again: they lack the run, others wait in it.

        The replicas are kept no longer, so the next cell starts new ones at once.
        """
        run = self.run
        self._release()
        self.over = True
        self._ready.clear()
        self._start(self._end_lost_job(why))
        if run is None:
            return
        if run.state.over:
            self._lose_files(run)
            run.finish()
        else:
            text = f"the run was lost, because {why} in {self.job.name}."
            run.fail(JobLost(text, "Run the cell again: it starts new replicas."))

    async def _end_lost_job(self, why: str) -> None:
        with log.ignored(_log, "ending warm replicas that were started again", Exception):
            await self._end_job(why)

    def _hear_status(self, status: Status) -> None:
        run, self._last = self.run, status
        if not status.state.over:
            if run is not None and not run.sent:
                run.show(status)
            elif run is not None and run.is_cut and status.state is State.PENDING:
                self._lose_runs(f"the replicas were ended ({status.reason or 'Pending'})")
            return
        if run is None:
            return
        if not run.sent:
            for replica, noise in self._noise.items():
                run.output(replica, noise)
            run.show(status)
        elif not (status.settled or status.decided):
            return
        elif run.programs_over:  # the result of the run is known
            self._lose_replicas(run, self._gone())
        elif status.state in (State.FAILED, State.STOPPED):
            run.end_with(status)
        else:  # the agents have ended by themselves: the result of the run is unknown
            run.fail(self._gone())
        if run.sent or status.settled:
            run.over.set()
            self._release()

    def _hear_output(self, event: Output) -> None:
        replica = event.replica
        for part in self._readers[replica].read(event.data):
            if isinstance(part, dict):
                self._hear_marker(replica, part)
            else:
                self._hear_lines(replica, part)
        run = self.run
        inside = run is not None and self._inside.get(replica) == run.number
        if run is not None and inside and event.tail and not event.tail.startswith(b"\x1e"):
            run.output(replica, b"", event.tail)

    def _hear_lines(self, replica: Replica, data: bytes) -> None:
        run = self.run
        if run is not None and self._inside.get(replica) == run.number:
            run.output(replica, data)
        else:
            self._noise[replica] = (self._noise.get(replica, b"") + data)[-_NOISE:]

    def _hear_marker(self, replica: Replica, marker: dict[str, Any]) -> None:
        what, run = marker.get("ev"), self.run
        if self.over:
            return  # the job ends; no run is in it any more
        if what == "ready":
            if replica in self._ready:
                self._lose_runs(f"{replica} was started again")
                return
            self._ready[replica] = marker
            self._send_when_ready()
        elif what == "begin":
            self._inside[replica] = marker["id"]
            if run is not None and run.number == marker["id"]:
                run.begin(replica)
                if run.state.over:  # stopped before this replica had the command
                    self._start(self._stop_replicas(run, lambda: run.not_ended))
        elif what == "end":
            self._inside.pop(replica, None)
            self._memory[replica] = int(marker.get("memory", 0))
            self._ready[replica]["port"] = marker["port"]
            if run is not None and run.number == marker["id"]:
                keep_values(run.job, replica, marker)
                self._hear_end(run, replica, marker)
        elif run is not None and run.files is not None and run.number == marker.get("id"):
            if what == "files":
                run.files.take(replica, marker)
            elif what == "given":
                run.given(replica, marker)
                if run.complete:
                    self._end_run(run)

    def _hear_end(self, run: Run, replica: Replica, marker: dict[str, Any]) -> None:
        before = run.state
        if marker.get("cold") and not self._told:
            self._told = True
            text = "an import of the program starts a thread, opens a GPU or ends the process"
            run.show(Notice(f"each run here starts a fresh interpreter: {text}"))
        run.end(replica, marker)
        if not run.complete:
            if run.state.over and not before.over:
                self._end_others(run)
            return
        self._end_run(run)

    def _end_run(self, run: Run) -> None:
        """End a run that is over in all replicas, when its files are here."""
        if self._bringing is not None:
            return
        if run.brings:
            self._bringing = self._start(run.bring())
            self._bringing.add_done_callback(lambda _: self._finish_run(run))
        else:
            self._finish_run(run)

    def _finish_run(self, run: Run) -> None:
        self._bringing = None
        if run.over.is_set():
            return  # with its replicas
        self.idle_since = time.time()
        if run.number == 1 and run.state is not State.STOPPED:
            run.show(
                Notice(
                    f"the replicas of {self.job.name} stay warm: the next run with this header "
                    f"starts in them at once (`%ciao delete {self.job.reference}` ends them)"
                )
            )
        self._release()
        run.finish()

    def _release(self) -> None:
        """Forget the active run, which is over: nothing is sent for it any more."""
        self.run = None
        self._cancel_linger()

    def _cancel_linger(self) -> None:
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None

    def _end_others(self, run: Run) -> None:
        """End the other replicas of a run that is decided."""
        if run.state is State.SUCCEEDED:
            self._start(self._stop_replicas(run, lambda: run.only_endless))
            self._linger_timer = self.loop.call_later(
                self._linger, lambda: self._start(self._stop_replicas(run, lambda: run.not_ended))
            )
        else:
            self._start(self._stop_replicas(run, lambda: run.not_ended))

    # --------------------------------------------------------------------------- what is sent

    def _send_when_ready(self) -> None:
        run = self.run
        if run is None or run.sent or len(self._ready) < len(self.job.replicas):
            return
        run.sent = True
        self._start(self._send_run(run))

    async def _send_run(self, run: Run) -> None:
        """Send a run to all replicas, again and again until each has confirmed it."""
        addresses = {
            one: Address(self._ready[one]["host"], self._ready[one]["port"])
            for one in self.job.replicas
        }
        made = functools.partial(
            command, run, addresses, self.job.workdir, here=self._feeding.keeps_runs
        )
        if doubt := run.packed.doubt:
            run.show(Notice(f"this run starts a fresh interpreter: {doubt}"))
        fault: BackendError | None = None
        for _ in range(_TRIES):
            waiting = run.not_begun
            answers = await asyncio.gather(
                *(self._send(one, made(one)) for one in waiting), return_exceptions=True
            )
            faults = [one for one in answers if isinstance(one, BackendError)]
            others = [one for one in answers if isinstance(one, BaseException)]
            fault = faults[0] if faults else None
            if others and not faults:
                run.fail(others[0])
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REPEAT):
                    await run.over.wait()
                    return
            if not run.not_begun:
                return
        names = ", ".join(map(str, run.not_begun))
        why = fault.message if fault else "they do not answer."
        text = f"the run could not be started in {names}: {why}"
        run.fail(BackendError(text, "The replicas are ended; run the cell again."))
        await self._end_job("a run could not be started")

    async def _stop_replicas(self, run: Run, replicas: Callable[[], list[Replica]]) -> None:
        """Stop a run in some replicas, again until it has ended there."""
        stop = {"op": "stop", "id": run.number, "grace": self._grace, "drop": run.dropped}
        for _ in range(_TRIES):
            if not (left := replicas()):
                return
            await asyncio.gather(*(self._send(one, stop) for one in left), return_exceptions=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REPEAT):
                    await run.over.wait()
                    return

    async def _send(self, replica: Replica, what: dict[str, Any]) -> None:
        # A line feed first: an earlier connection may have ended within a command.
        data = b"\n" + json.dumps(what, separators=(",", ":")).encode() + b"\n"
        await self._feeding.send(self.job, replica, data)

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(_PING)
            pings = (self._send(one, {"op": "ping"}) for one in list(self._ready))
            for result in await asyncio.gather(*pings, return_exceptions=True):
                if isinstance(result, Exception):
                    _log.debug("a ping of %s failed: %r", self.job.name, result)

    def _start(self, work: Any) -> asyncio.Task[Any]:
        """Start a task that neither a cell's end nor a shutdown waits for."""
        task: asyncio.Task[Any] = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
