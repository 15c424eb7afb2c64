"""Opens the prompts of replicas that stand at breakpoint(), in the cell that follows their job.

One prompt is open at a time, later ones wait. The lines of the other replicas are shown meanwhile.
A replica may have several processes, and each has a prompt of its own. Of the processes that have
failed only the first one has one (:mod:`.failures`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ciao_kernel import log
from ciao_kernel.background import cancel_all, start_background
from ciao_kernel.delivery.inspection import process_state
from ciao_kernel.delivery.inspection.breakpoints import Breakpoint
from ciao_kernel.errors import BackendError, CiaoError
from ciao_kernel.magics.directives import on_error
from ciao_kernel.model import Event, Job, Notice, Replica, State, Status
from ciao_kernel.model.stacks import ReplicaStacks
from ciao_kernel.model.times import span
from ciao_kernel.plugins import Console, Debugging, Elsewhere, PromptClosed
from ciao_kernel.session.inspection.conversation import PAUSES, Announced, Conversation
from ciao_kernel.session.inspection.failures import Failures
from ciao_kernel.visible_text import counted, visible_lines

_log = logging.getLogger(__name__)

_TAKEN = 10.0
"""Seconds in which whoever has asked for a stop opens its prompt."""
_MOST = 64
"""Processes of a replica whose prompts are opened; what a program writes is foreign input."""
_NAMED = 5
"""Replicas that a notice names."""

_Process = tuple[Replica, int]


class _Life(NamedTuple):
    """What tells one start of a replica from another."""

    tries: int
    restarts: int
    runs: bool


class Prompts:
    """The prompts of a followed job.

    Args:
        job: The job.
        backend: The backend that runs it.
        console: The person, or where the person is told of a prompt.
        show: Receives notices.
        deadline: Seconds from the job's creation to its deadline; None: it has none.
        sleep: Waits some seconds.
        gpus: GPUs of a replica, by role.
    """

    def __init__(
        self,
        job: Job,
        backend: Debugging,
        console: Console | Elsewhere,
        show: Callable[[Event], None],
        deadline: float | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        gpus: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._job, self._backend, self._console = job, backend, console
        self._show, self._deadline, self._sleep = show, deadline, sleep
        self._gpus = gpus
        self._failures = Failures(job, backend, show, sleep)
        self._turn = asyncio.Lock()
        self._standing: dict[_Process, Breakpoint] = {}
        """What each process has said last, unless it goes on."""
        self._tasks: dict[_Process, asyncio.Task[None]] = {}
        self._talks: dict[_Process, Conversation] = {}
        self._closed: set[_Process] = set()
        self._lives: dict[Replica, _Life] = {}
        self._ends: Counter[Replica] = Counter()
        """How often the processes of a replica have ended, or may have."""
        self._explained = False

    @property
    def active(self) -> bool:
        """Whether a process stands at a prompt, as far as is known."""
        return bool(self._standing)

    def note(self, replica: Replica, found: Breakpoint) -> None:
        """Note that a process waits for a front end, or goes on."""
        process = (replica, found.pid)
        if found.over:
            self._forget(process)
            self._failures.over(process)
            return
        if found.again and (found.asked or process in self._closed):
            return  # another front end opens it, or the person has closed it
        if sum(one == replica for one, _ in self._standing) >= _MOST:
            return
        if found.failed and not self._failures.has_prompt(process, found):
            return
        self._standing[process] = found
        self._closed.discard(process)
        if isinstance(self._console, Elsewhere):
            if not found.asked:
                self._closed.add(process)
                self._show(Notice(self._waits(process, found)))
        elif (task := self._tasks.get(process)) is None or task.done():
            self._tasks[process] = start_background(self._serve(process, self._console))

    def note_status(self, status: Status) -> None:
        """Forget closed prompts of replicas that have ended, and failures of those that run anew.

        A process that is killed at its prompt cannot say that it waits no longer. One whose prompt
        is open, or is being opened, is known by its connection.
        """
        for one in status.replicas:
            life = _Life(status.tries, one.restarts, one.state is State.RUNNING)
            old = self._lives.get(one.replica, life)
            self._lives[one.replica] = life
            again = (old.tries, old.restarts) != (life.tries, life.restarts)
            if again or status.state is State.PENDING:  # suspended: all pods go
                self._failures.forget(one.replica)
            if one.state.over or again or (old.runs and not life.runs):
                self._ends[one.replica] += 1
                for process in [it for it in self._closed if it[0] == one.replica]:
                    self._forget(process)

    async def forget_killed(self, ask: Callable[[], Awaitable[Sequence[ReplicaStacks]]]) -> None:
        """Forget closed prompts of processes that are gone although their replica runs on.

        A child of torchrun that is killed at its prompt is such a process.

        Args:
            ask: Returns the processes of the job.
        """
        closed = set(self._closed)
        found = await ask() if closed else ()
        for one in found:
            if len(one.processes) >= process_state.MOST:
                continue  # there may be more of them
            there = {(one.replica, process.pid) for process in one.processes}
            for process in closed & self._closed:
                if there and process[0] == one.replica and process not in there:
                    self._forget(process)

    def _forget(self, process: _Process) -> None:
        self._standing.pop(process, None)
        self._closed.discard(process)

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Open prompts during the body; a process that waits at its end waits on."""
        try:
            yield
        finally:
            tasks = list(self._tasks.values())
            await cancel_all(tasks)
            await self._failures.close()

    async def _serve(self, process: _Process, console: Console) -> None:
        """Open the prompts of one process, one after another."""
        try:
            served = None
            while (found := self._standing.get(process)) is not None and found is not served:
                served = found
                with log.ignored(_log, "a prompt"):  # the job goes on
                    await self._reach(process, found, console)
        finally:
            self._tasks.pop(process, None)

    async def _reach(self, process: _Process, found: Breakpoint, console: Console) -> None:
        """Open a prompt; try again for a while if nobody is there."""
        if found.asked:
            await self._sleep(_TAKEN)
        fault, ends = "", self._ends[process[0]]
        for pause in (*PAUSES, None):
            if self._standing.get(process) is not found:
                return  # it goes on, or its newer marker is served next
            try:
                if await self._open(process, found, console):
                    return
                fault = ""
            except CiaoError as error:
                fault = f": {error.message} {error.hint}".rstrip()
                if not isinstance(error, BackendError):
                    break
            if pause is not None:
                await self._sleep(pause)
        if self._standing.get(process) is found:
            if ends != self._ends[process[0]]:
                self._forget(process)
                return
            self._closed.add(process)
            text = f"the prompt of {found.name(process[0])} cannot be opened{fault or '.'}"
            self._show(Notice(f"{text} {self._waits(process, found)}"))

    async def _open(self, process: _Process, found: Breakpoint, person: Console) -> bool:
        """Open a prompt; return False if nobody is there.

        Raises:
            BackendError: There is no connection.
        """
        replica, pid = process
        name = found.name(replica)
        console = Announced(person, lambda: self._announce(replica, found))
        text = f"{name} stands at {visible_lines(found.at)} too; its prompt comes later."
        talk = Conversation(
            self._backend,
            self._job,
            replica,
            pid,
            console,
            self._turn,
            lambda: self._show(Notice(text)),
        )
        self._talks[process] = talk
        try:
            end = await talk.run()
            if end and not (talk.is_elsewhere and found.asked):  # whoever asked for the stop has it
                self._show(Notice(f"{name} {end}."))
            if end and not talk.is_elsewhere and self._standing.get(process) is found:
                del self._standing[process]  # if the connection was cut, the process says so
            return bool(end)
        except PromptClosed:
            del self._talks[process]
            # Else the next press would close the next prompt, and not stop the job.
            closed = [process, *(one for one, other in self._talks.items() if other.queued)]
            self._closed.update(closed)
            for one in closed[1:]:
                self._tasks[one].cancel()
            self._tell_closed(closed)
            return True
        finally:
            self._talks.pop(process, None)
            await talk.close()

    def _tell_closed(self, processes: Sequence[_Process]) -> None:
        replicas = sorted({replica for replica, _ in processes})
        first = self._name(processes[0])
        name = f"{self._job.reference}/{first}"
        if len(processes) == 1:
            text = f"the prompt is closed, and {first} waits."
            text += f" `ciao debug {name}` opens it again."
        else:
            names = ", ".join(map(str, replicas[:_NAMED]))
            if more := len(replicas[_NAMED:]):
                names += f" and {more} more"
            text = f"the prompt is closed, and {len(processes)} processes wait, of {names}."
            text += f" `ciao debug {name}` opens one again."
        self._show(Notice(f"{text} The stop button has its usual meaning now."))

    def _name(self, process: _Process) -> str:
        """Return the name of a process, as far as it has told it."""
        found = self._standing.get(process)
        return found.name(process[0]) if found else str(process[0])

    def _waits(self, process: _Process, found: Breakpoint) -> str:
        replica, _ = process
        name = f"{self._job.reference}/{found.name(replica)}"
        text = f"{_stands(replica, found).removesuffix('.')}, and waits."
        return f"{text} `ciao debug {name}` in another terminal opens its prompt."

    def _announce(self, replica: Replica, found: Breakpoint) -> None:
        text = _stands(replica, found)
        if found.failed:
            kept = on_error.kept_for(self._job.header) or on_error.DEFAULT_SECONDS
            text += f" It is kept there for {span(kept)} at most."
        if gpus := self._gpus.get(replica.role):
            text += f" It holds {counted(gpus, 'GPU')} meanwhile."
        if not self._explained:
            self._explained = True
            does = (
                "c ends it, u and d change the frame" if found.failed else "c continues, q fails it"
            )
            text += f" {does}, h lists commands; the stop button closes the prompt."
            if len(self._job.replicas) > 1:
                text += (
                    " Replicas that wait for it in a collective operation fail after a while: "
                    "after 30 minutes with gloo, 10 with NCCL."
                )
            if self._deadline:
                text += f" %deadline={span(self._deadline)} goes on."
        self._show(Notice(text))


def _stands(replica: Replica, found: Breakpoint) -> str:
    at, name = visible_lines(found.at), found.name(replica)
    if not found.failed:
        return f"{name} stands at {at}."
    return f"{name} has failed at {at}: {visible_lines(found.failed).rstrip('.')}."
