"""The processes of a job that have failed and are kept at their error (``%onError=debug``).

The first one has the prompt. Its end would make the others fail, and theirs would end the job and
with it the prompt: so those that fail meanwhile wait for its end. Then all of them end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ciao_kernel import log
from ciao_kernel.background import cancel_all, start_background
from ciao_kernel.delivery.inspection.breakpoints import Breakpoint
from ciao_kernel.model import Event, Job, Notice, Replica
from ciao_kernel.plugins import Debugging
from ciao_kernel.session.inspection.conversation import PAUSES, Conversation
from ciao_kernel.visible_text import visible_lines

_log = logging.getLogger(__name__)

_TOLD = 5
"""Processes that wait and are named."""
_AT_ONCE = 8
"""Connections at once: on a cluster each is a program in a pod."""

_MOST = 4096
"""Processes that are known; what a program writes is foreign input."""

_Process = tuple[Replica, int]


class Failures:
    """The failed processes of a followed job.

    Args:
        job: The job.
        backend: The backend that runs it.
        show: Receives notices.
        sleep: Waits some seconds.
    """

    def __init__(
        self,
        job: Job,
        backend: Debugging,
        show: Callable[[Event], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._job, self._backend, self._show, self._sleep = job, backend, show, sleep
        self._first: _Process | None = None
        self._name_of_first = ""
        self._is_over = False
        self._waiting: set[_Process] = set()
        self._ending: dict[_Process, asyncio.Task[None]] = {}
        self._told = 0
        self._room = asyncio.Semaphore(_AT_ONCE)

    def has_prompt(self, process: _Process, found: Breakpoint) -> bool:
        """Return whether a failed process has the prompt; another one waits, or is ended.

        Args:
            process: The process.
            found: What it has said.
        """
        if self._first is None and process not in self._waiting:
            self._first, self._name_of_first = process, found.name(process[0])
        if process == self._first:
            return True
        if len(self._waiting) >= _MOST:
            return False
        self._waiting.add(process)
        if self._is_over or self._first is None:
            self._end(process)
        elif not found.again and self._told <= _TOLD:
            self._told += 1
            self._show(Notice(self._waits(process[0], found)))
        return False

    def over(self, process: _Process) -> None:
        """Note that a process waits no longer; the end of the first one ends the others."""
        self._waiting.discard(process)
        if process == self._first:
            self._is_over = True
            for one in self._waiting:
                self._end(one)

    def forget(self, replica: Replica) -> None:
        """Forget the processes of a replica that is started again: they cannot say that they end.

        The next process that fails has the prompt if the first one was among them.
        """
        for one in [one for one in self._waiting if one[0] == replica]:
            self._waiting.discard(one)
            if task := self._ending.pop(one, None):
                task.cancel()
        if self._first and self._first[0] == replica:
            self.over(self._first)
            self._first, self._is_over, self._told = None, False, 0

    async def close(self) -> None:
        """End no further processes: the job is not followed any more."""
        tasks = list(self._ending.values())
        await cancel_all(tasks)

    def _waits(self, replica: Replica, found: Breakpoint) -> str:
        if self._told > _TOLD:
            return "more replicas have failed, and wait too."
        error = visible_lines(found.failed).rstrip(".")
        text = f"{found.name(replica)} has failed too, at {visible_lines(found.at)}: {error}."
        return f"{text} It ends after {self._name_of_first}."

    def _end(self, process: _Process) -> None:
        if process not in self._ending:
            self._ending[process] = start_background(self._answer(process))

    async def _answer(self, process: _Process) -> None:
        """End a process, with further tries if nobody is there; its job may end first."""
        try:
            for pause in (*PAUSES, None):
                with log.ignored(_log, "the prompt of a failed process"):
                    if await self._talk(*process):
                        return
                if pause is None:
                    return
                await self._sleep(pause)
                if process not in self._waiting:
                    return  # it has ended meanwhile
        finally:
            if self._ending.get(process) is asyncio.current_task():
                del self._ending[process]

    async def _talk(self, replica: Replica, pid: int) -> str:
        """Answer the prompt of a process; return how that ended, "" if nobody was there.

        Raises:
            BackendError: There is no connection.
        """
        async with self._room:
            turn = asyncio.Lock()
            talk = Conversation(self._backend, self._job, replica, pid, _Nobody(), turn)
            try:
                return await talk.run()
            finally:
                await talk.close()


class _Nobody:
    """Ends each prompt (:class:`ciao_kernel.plugins.Console`)."""

    def write(self, text: str) -> None:
        """Show nothing."""

    async def ask(self, prompt: str) -> str:
        """Return the command that ends the prompt."""
        return "q"
