"""``ciao debug NAME/worker-1``: open the prompt of a replica that waits, or stop one that runs.

A replica may have several processes, by torchrun or mpirun: ``worker-1.0`` names one of them.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable

from ciao_kernel.commands import Caller, completion
from ciao_kernel.commands.shared_arguments import add_job, check_runs, named_replica, where
from ciao_kernel.commands.terminal_line import read_line
from ciao_kernel.errors import BackendError, NoSuchJob, UsageError
from ciao_kernel.model import Job, Replica
from ciao_kernel.model.times import span
from ciao_kernel.plugins import Console, Debugging, PromptClosed
from ciao_kernel.visible_text import short, visible

_PAUSE, _LONGEST_PAUSE = 0.3, 5.0
"""Seconds between two looks whether a process has come to its next line: each look costs a cluster
one exec, and the process may be in a long call, so each pause is twice the one before."""


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the replica."""
    verb.epilog = (
        "A replica that waits at breakpoint() gets its prompt here. One that runs stops at the "
        "next line of the program, so in a long call of a library after this call. c lets it go "
        "on, h lists the commands of pdb; Ctrl-D (in a notebook the stop button) closes the prompt "
        "and lets the replica wait. The other replicas go on, and may fail if they wait for it too "
        "long. NAME/worker-0.1 is process 1 of worker-0, if torchrun or mpirun runs several there. "
        "On a cluster the command requires the right to get and create pods/exec."
    )
    text = "the replica, or one of its processes; NAME alone if the job has only one replica"
    add_job(verb, completion.processes, metavar="NAME/REPLICA", help=text)


async def run(
    args: argparse.Namespace,
    caller: Caller,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Talk with the debugger until the program goes on."""
    asked = _Asked(caller)
    try:
        await _run(args, caller, asked, sleep)
    except (asyncio.CancelledError, BackendError) as error:
        if not isinstance(error, NoSuchJob):
            asked.tell()
        raise


async def _run(
    args: argparse.Namespace,
    caller: Caller,
    console: _Asked,
    sleep: Callable[[float], Awaitable[object]],
) -> None:
    if not console.is_there:
        raise UsageError(
            "a prompt needs a front end with input, and this one has none.",
            "Run `ciao debug` in a terminal.",
        )
    name, slash, member = args.name.partition("/")
    backend, job, status = await caller.session.find(name, where(args))
    member, dot, rank = member.partition(".")
    if dot and not (rank.isascii() and rank.isdigit()):
        raise UsageError(
            f"{short(visible(rank))!r} is no number of a process.",
            f"Name a replica or a process: {job.reference}/worker-0.1",
        )
    replica = named_replica(job, member, slash)
    named = f"{replica}{dot}{rank}"
    check_runs(job, status)
    if not isinstance(backend, Debugging):
        raise UsageError(f"the backend {backend.name} has no debugger.", "Use %ciao logs.")
    end = await _talk(backend, job, replica, rank, console, caller)
    if not end:
        _check(await backend.halt(job, replica, rank), job, named)
        console.stops = f"{job.reference}/{named}"
        caller.write(f"{named} stops at its next line of the program …\n")
    pause = _PAUSE
    while not end:
        await sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
        end = await _talk(backend, job, replica, rank, console, caller)
        if not end and (await caller.session.find(name, where(args)))[2].over:
            end = "has ended"
    caller.write(f"{named} {end}.\n")


async def _talk(
    backend: Debugging, job: Job, replica: Replica, rank: str, console: Console, caller: Caller
) -> str:
    """Open the prompt if the replica waits; return how that ended, "" if it does not wait."""
    from ciao_kernel.session.inspection.conversation import Conversation

    talk = Conversation(backend, job, replica, 0, console, asyncio.Lock(), rank=rank)
    named = f"{replica}.{rank}" if rank else str(replica)

    def waits() -> str:
        time = f" for {span(talk.alone)}" if talk.alone else ""
        return f"waits{time}. `ciao debug {job.reference}/{named}` opens its prompt again"

    try:
        return await talk.run()
    except PromptClosed:
        return waits()
    except asyncio.CancelledError:
        if talk.prompted:
            caller.write(f"\n{named} {waits()}.\n")
        raise
    finally:
        await talk.close()


def _check(answer: str, job: Job, named: str) -> None:
    """Raise UsageError if a process does not stop."""
    if answer == "stops":
        return
    if answer in ("silent", "elsewhere", "open"):
        raise UsageError(
            f"{named} runs no line of the program now.",
            f"`%ciao stacks {job.reference}` shows where it stands; try again.",
        )
    if answer == "none":
        raise UsageError(
            f"{named} has no debugger.",
            "Python 3.8 or newer must run in it, and its job must be made without %inspect=off and "
            "%warm. Python or the C library must be able to make a file in memory (memfd_create).",
        )
    raise UsageError(
        f"there is no process {named}.", f"`%ciao describe {job.reference}` shows its status."
    )


class _Asked:
    """The person, who may go before a replica stops that was asked to."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._console = caller.console or (_Terminal(caller) if caller.ask else None)
        self._prompted = False
        self.stops = ""
        """The replica that was asked to stop."""

    @property
    def is_there(self) -> bool:
        """Whether somebody can answer."""
        return self._console is not None

    def write(self, text: str) -> None:
        """Show text at once."""
        assert self._console
        self._console.write(text)

    async def ask(self, prompt: str) -> str:
        """Return the line that the person types."""
        assert self._console
        self._prompted = True
        return await self._console.ask(prompt)

    def tell(self) -> None:
        """Say what becomes of a replica that was asked to stop, and has not yet."""
        if self.stops and not self._prompted:
            text = "nevertheless stops at its next line of the program, and waits"
            name = self.stops.rpartition("/")[2]
            self._caller.write(f"\n{name} {text}. `ciao debug {self.stops}` opens its prompt.\n")


class _Terminal:
    """The terminal of this process (:class:`ciao_kernel.plugins.Console`)."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def write(self, text: str) -> None:
        """Show text at once."""
        self._caller.write(text)

    async def ask(self, prompt: str) -> str:
        """Return the line that the person types.

        Raises:
            PromptClosed: The person has pressed Ctrl-D.
        """
        self._caller.write(prompt)
        line = await read_line()
        if not line:
            self._caller.write("\n")
            raise PromptClosed
        return line.removesuffix("\n")
