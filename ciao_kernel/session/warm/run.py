"""One run in warm replicas: its events, and the decision about its end.

The rules are those of a cold job: a replica that fails fails the run, the deciding replica's
success is the run's, and a parameter server never ends by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from typing import Any

from ciao_kernel.delivery.warm.sending import Packed
from ciao_kernel.model import Event, Job, Output, Replica, ReplicaStatus, State, Status
from ciao_kernel.model.queries import count_lines
from ciao_kernel.plugins import Plan
from ciao_kernel.session.warm.files import RunFiles

_MOST_EVENTS = 64


class Run:
    """A run, from its submission to the end of its last process.

    Args:
        job: The job as its cell shows it.
        plan: The cell.
        packed: Its program.
        decider: The replica that decides; None: all of them do.
        endless: Roles that never end by themselves.
        files: Brings its files back; None if there are none, or they are here.
    """

    def __init__(
        self,
        job: Job,
        plan: Plan,
        packed: Packed,
        decider: Replica | None,
        endless: Collection[str],
        files: RunFiles | None = None,
    ) -> None:
        self.job, self.plan, self.packed, self.files = job, plan, packed, files
        self.sent = False
        self.over = asyncio.Event()
        self._decider, self._endless = decider, endless
        self._begun: set[Replica] = set()
        self._ended: dict[Replica, int] = {}
        self._giving: set[Replica] = set()
        self._given: set[Replica] = set()
        self._running_since = 0.0
        self.dropped = False
        """Whether the user has stopped it: its files do not come back."""
        self._cut = self._followed = False
        self._status = Status(
            State.PENDING, tuple(ReplicaStatus(one) for one in job.replicas), since=time.time()
        )
        self._events: asyncio.Queue[Event | BaseException] = asyncio.Queue()

    @property
    def number(self) -> int:
        """Number of the run in its replicas."""
        return self.job.warm_run

    @property
    def state(self) -> State:
        """Its state; it may be decided while some replicas still run."""
        return self._status.state

    @property
    def not_begun(self) -> list[Replica]:
        """Replicas that have not confirmed the command."""
        return [one for one in self.job.replicas if one not in self._begun]

    @property
    def not_ended(self) -> list[Replica]:
        """Replicas whose processes still run."""
        return [one for one in self.job.replicas if one not in self._ended]

    @property
    def active(self) -> list[Replica]:
        """Replicas whose processes still run, or which still write their files."""
        return [*self.not_ended, *sorted(self._giving)]

    @property
    def only_endless(self) -> list[Replica]:
        """Replicas that still run, and never end by themselves."""
        return [one for one in self.not_ended if one.role in self._endless]

    async def events(self) -> AsyncIterator[Event]:
        """Yield the events of the run; the last one is its settled status."""
        self._followed = True
        try:
            while True:
                event = await self._events.get()
                if isinstance(event, BaseException):
                    raise event
                yield event
                if isinstance(event, Status) and event.settled:
                    return
        finally:
            self._followed = False

    @property
    def is_cut(self) -> bool:
        """True if a replica was ended from outside during the run."""
        return self._cut

    @property
    def is_behind(self) -> bool:
        """True if many events wait for the cell that follows the run."""
        return self._followed and self._events.qsize() > _MOST_EVENTS

    def show(self, event: Event) -> None:
        """Pass an event on; before the run has begun, a status is that of the job."""
        if isinstance(event, Status):
            self.locate(event)
        self._events.put_nowait(event)

    def locate(self, status: Status) -> None:
        """Take the logs and the nodes of the replicas from a status of their job."""
        places = {one.replica: (one.log, one.node) for one in status.replicas}
        self._status = replace(
            self._status,
            replicas=tuple(
                replace(one, log=places[one.replica][0], node=places[one.replica][1])
                if one.replica in places
                else one
                for one in self._status.replicas
            ),
        )

    def fail(self, error: BaseException) -> None:
        """End the run with an error of its job."""
        self._events.put_nowait(error)
        self.over.set()

    def end_with(self, status: Status) -> None:
        """End the run with its job."""
        self._events.put_nowait(replace(status, settled=True))
        self.over.set()

    # ---------------------------------------------------------------------------- its replicas

    def begin(self, replica: Replica) -> None:
        """Note that a replica runs the program."""
        self._begun.add(replica)
        self._change(replica, State.RUNNING)
        if self._status.state is State.PENDING:
            self._running_since = time.time()
            self._status = replace(self._status, state=State.RUNNING, since=self._running_since)
        self._show_status()

    def output(self, replica: Replica, data: bytes, tail: bytes = b"") -> None:
        """Pass lines on."""
        lines = count_lines(data)
        self._events.put_nowait(Output(replica, data, lines, tail))

    def end(self, replica: Replica, marker: dict[str, Any]) -> None:
        """Note the end of the program in a replica, and decide about the run."""
        if replica in self._ended:
            return
        code = int(marker.get("code", 1))
        self._ended[replica] = code
        if marker.get("gives"):
            self._giving.add(replica)
        if marker.get("why") == "terminated":  # the replica itself ends, and so does its job
            self._cut = True
            self._change(replica, State.STOPPED, code)
            self._show_status()
            return
        stopped = self._status.state.over and marker.get("why") == "stopped"
        if stopped:
            self._change(replica, State.STOPPED, code)
        elif code == 0 and not marker.get("why"):
            self._change(replica, State.SUCCEEDED, 0)
        else:
            late = marker.get("why") == "deadline"
            reason = "OOMKilled" if marker.get("oom") else ""
            self._change(replica, State.FAILED, code, "DeadlineExceeded" if late else reason)
            seconds = self.plan.spec.deadline
            text = f"the run took longer than its deadline of {seconds} s." if late else ""
            text = text or (str(marker["why"]) if marker.get("why") else "")
            self.decide(
                State.FAILED, "DeadlineExceeded" if late else "ReplicaFailed", text, replica
            )
        if self._status.state is State.RUNNING:
            self._decide_success(replica)
        if not self.complete:
            self._show_status()

    def given(self, replica: Replica, marker: dict[str, Any]) -> None:
        """Note that a replica has written its files."""
        if self.files is not None and replica in self._giving:
            self._giving.discard(replica)
            self._given.add(replica)
            self.files.note_given(replica, marker)

    @property
    def brings(self) -> bool:
        """True if files of the run come back: as of any job, not if it was stopped."""
        return self.files is not None and not self.dropped

    async def bring(self) -> None:
        """Bring its files back; nothing of it runs any more."""
        if self.files is not None:
            await self.files.bring(sorted(self._given), self.show)

    def finish(self) -> None:
        """Yield the last status; nothing of the run follows."""
        self._status = replace(self._status, settled=True)
        self._show_status()
        self.over.set()

    @property
    def complete(self) -> bool:
        """True if all replicas have ended the program and written its files."""
        return self.programs_over and not self._giving

    @property
    def programs_over(self) -> bool:
        """True if the program has ended in all replicas, so that the state of the run is final."""
        return not self.not_ended and (not self._cut or self._status.state.over)

    def decide(
        self, state: State, reason: str = "", message: str = "", by: Replica | None = None
    ) -> None:
        """Decide about the run, unless it is decided."""
        if not self._status.state.over:
            self._status = replace(
                self._status,
                state=state,
                reason=reason,
                message=message,
                decided_by=by,
                since=time.time(),
            )

    def _decide_success(self, replica: Replica) -> None:
        if self._decider is not None:
            if replica == self._decider:
                self.decide(State.SUCCEEDED, by=replica)
            return
        if all(one.role in self._endless for one in self.not_ended):
            self.decide(State.SUCCEEDED)

    def _change(
        self, replica: Replica, state: State, code: int | None = None, reason: str = ""
    ) -> None:
        now = time.time()
        self._status = replace(
            self._status,
            replicas=tuple(
                replace(one, state=state, since=now, exit_code=code, reason=reason)
                if one.replica == replica
                else one
                for one in self._status.replicas
            ),
        )

    def _show_status(self) -> None:
        now = self._status
        if self.brings and now.state.over and not now.settled:
            # As a cold job, it is over when its files are here; until then it can be stopped.
            now = replace(
                now,
                state=State.RUNNING,
                since=self._running_since,
                reason="",
                message="",
                decided_by=None,
            )
        self._events.put_nowait(now)
