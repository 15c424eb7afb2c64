"""Opens the prompts of replicas that stand at breakpoint(), in the cell that follows their job.

One prompt is open at a time, later ones wait. The lines of the other replicas are shown meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

from ciao_kernel import log
from ciao_kernel.background import start_background
from ciao_kernel.delivery.inspection.breakpoints import Breakpoint
from ciao_kernel.errors import CiaoError
from ciao_kernel.model import Event, Job, Notice, Replica
from ciao_kernel.model.times import span
from ciao_kernel.plugins import Console, Debugging, Elsewhere, PromptClosed
from ciao_kernel.session.inspection.conversation import Conversation
from ciao_kernel.visible_text import visible_lines

_log = logging.getLogger(__name__)


class Prompts:
    """The prompts of a followed job.

    Args:
        job: The job.
        backend: The backend that runs it.
        console: The person, or where the person is told of a prompt.
        show: Receives notices.
        deadline: Seconds from the job's creation to its deadline; None: it has none.
    """

    def __init__(
        self,
        job: Job,
        backend: Debugging,
        console: Console | Elsewhere,
        show: Callable[[Event], None],
        deadline: float | None = None,
    ) -> None:
        self._job, self._backend, self._console = job, backend, console
        self._show, self._deadline = show, deadline
        self._turn = asyncio.Lock()
        self._waiting: dict[Replica, Breakpoint] = {}
        self._tasks: dict[Replica, asyncio.Task[None]] = {}
        self._closed: set[tuple[Replica, int]] = set()
        self._explained = False

    @property
    def active(self) -> bool:
        """Whether a process stands at a prompt, as far as is known."""
        return bool(self._closed) or any(not task.done() for task in self._tasks.values())

    def note(self, replica: Replica, found: Breakpoint) -> None:
        """Note that a process waits for a front end."""
        if found.asked or (found.again and (replica, found.pid) in self._closed):
            return  # another front end opens it, or the person has closed it
        self._closed.discard((replica, found.pid))
        if isinstance(self._console, Elsewhere):
            self._closed.add((replica, found.pid))
            name = f"{self._job.reference}/{replica}"
            text = f"{replica} stands at {visible_lines(found.at)}, and waits."
            text += f" `ciao debug {name}` in another terminal opens its prompt."
            self._show(Notice(text))
            return
        self._waiting[replica] = found
        if (task := self._tasks.get(replica)) is None or task.done():
            self._tasks[replica] = start_background(self._serve(replica, self._console))

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Open prompts during the body; a process that waits at its end waits on."""
        try:
            yield
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _serve(self, replica: Replica, console: Console) -> None:
        """Open the prompts of one replica, one after another."""
        while found := self._waiting.pop(replica, None):
            with log.ignored(_log, "a prompt"):  # the job goes on
                await self._open(replica, found, console)

    async def _open(self, replica: Replica, found: Breakpoint, person: Console) -> None:
        console = _Announced(person, lambda: self._announce(replica, found))
        text = f"{replica} stands at {visible_lines(found.at)} too; its prompt comes later."
        talk = Conversation(
            self._backend,
            self._job,
            replica,
            found.pid,
            console,
            self._turn,
            lambda: self._show(Notice(text)),
        )
        try:
            if end := await talk.run():
                self._show(Notice(f"{replica} {end}."))
        except PromptClosed:
            self._closed.add((replica, found.pid))
            self._show(
                Notice(
                    f"the prompt is closed, and {replica} waits. "
                    f"`ciao debug {self._job.reference}/{replica}` opens it again. "
                    "The stop button has its usual meaning now."
                )
            )
        except CiaoError as error:
            text = f"the prompt of {replica} cannot be opened: {error.message}"
            self._show(Notice(f"{text} {error.hint}".rstrip()))
        finally:
            await talk.close()

    def _announce(self, replica: Replica, found: Breakpoint) -> None:
        text = f"{replica} stands at {visible_lines(found.at)}."
        if not self._explained:
            self._explained = True
            text += " c continues, q fails it, h lists commands; the stop button closes the prompt."
            if len(self._job.replicas) > 1:
                text += (
                    " Replicas that wait for it in a collective operation fail after a while: "
                    "after 30 minutes with gloo, 10 with NCCL."
                )
            if self._deadline:
                text += f" %deadline={span(self._deadline)} goes on."
        self._show(Notice(text))


class _Announced:
    """A console that is told before its first use (:class:`ciao_kernel.plugins.Console`)."""

    def __init__(self, console: Console, announce: Callable[[], None]) -> None:
        self._console, self._announce = console, announce
        self._told = False

    def write(self, text: str) -> None:
        self._tell()
        self._console.write(text)

    async def ask(self, prompt: str) -> str:
        self._tell()
        return await self._console.ask(prompt)

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            self._announce()
