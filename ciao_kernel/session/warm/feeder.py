"""Sends commands to the replicas of a warm job, again until their logs confirm them."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ciao_kernel.errors import BackendError
from ciao_kernel.model import Address, Job, Notice, Replica
from ciao_kernel.plugins import Feeding
from ciao_kernel.session.warm.command import command
from ciao_kernel.session.warm.run import Run

_log = logging.getLogger(__name__)

_REPEAT = 2.0
"""Seconds after which a command is sent again to a replica that has not confirmed it."""
_TRIES = 15


class Feeder:
    """Sends the commands of one job.

    Args:
        job: The job.
        feeding: Delivers them.
        grace: Seconds from SIGTERM to SIGKILL.
    """

    def __init__(self, job: Job, feeding: Feeding, grace: float) -> None:
        self._job, self._feeding, self._grace = job, feeding, grace

    async def start(self, run: Run, ready: Mapping[Replica, Any]) -> BaseException | None:
        """Send a run to all replicas, again and again until each has confirmed it.

        Args:
            run: The run.
            ready: What each agent has said: its host and a free port.

        Returns:
            Why it cannot be sent, BackendError if replicas do not confirm it; None if it has begun.
        """
        addresses = {
            one: Address(ready[one]["host"], ready[one]["port"]) for one in self._job.replicas
        }
        made = functools.partial(
            command, run, addresses, self._job.workdir, here=self._feeding.keeps_runs
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
                return others[0]
            if await _is_over(run) or not run.not_begun:
                return None
        names = ", ".join(map(str, run.not_begun))
        why = fault.message if fault else "they do not answer."
        text = f"the run could not be started in {names}: {why}"
        return BackendError(text, "The replicas are ended; run the cell again.")

    async def stop(
        self, run: Run, replicas: Callable[[], list[Replica]], sent: Callable[[], None]
    ) -> None:
        """Stop a run in some replicas, again until it has ended there.

        Args:
            run: The run.
            replicas: Returns those in which it has not.
            sent: Called each time when all could be told so.
        """
        stop = {"op": "stop", "id": run.number, "grace": self._grace, "drop": run.dropped}
        for _ in range(_TRIES):
            if not (left := replicas()):
                return
            stops = (self._send(one, stop) for one in left)
            answers = await asyncio.gather(*stops, return_exceptions=True)
            if not any(isinstance(one, BaseException) for one in answers):
                sent()
            if await _is_over(run):
                return

    async def send_bye(self) -> None:
        """End the replicas, as far as they can be reached."""
        every = (self._send(one, {"op": "bye"}) for one in self._job.replicas)
        await asyncio.gather(*every, return_exceptions=True)

    async def ping(self, replicas: Sequence[Replica], *, busy: bool = False) -> bool:
        """Say that the kernel is there; return whether all could be told so.

        Args:
            replicas: The replicas.
            busy: It still fetches the files of the last run, so no idle time passes.
        """
        what = {"op": "ping", "busy": True} if busy else {"op": "ping"}
        pings = (self._send(one, what) for one in replicas)
        results = await asyncio.gather(*pings, return_exceptions=True)
        faults = [one for one in results if isinstance(one, BaseException)]
        for fault in faults:
            _log.debug("a ping of %s failed: %r", self._job.name, fault)
        return not faults

    async def _send(self, replica: Replica, what: dict[str, Any]) -> None:
        # A line feed first: an earlier connection may have ended within a command.
        data = b"\n" + json.dumps(what, separators=(",", ":")).encode() + b"\n"
        await self._feeding.send(self._job, replica, data)


async def _is_over(run: Run) -> bool:
    """Wait until a command may have to be sent again; return whether the run has ended."""
    try:
        async with asyncio.timeout(_REPEAT):
            await run.over.wait()
    except TimeoutError:
        return False
    return True
