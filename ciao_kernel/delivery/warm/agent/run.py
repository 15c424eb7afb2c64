"""One run of a program in the replica: its processes, and how it ended."""

from __future__ import annotations

import signal
import time
from typing import Any

from ciao_kernel.delivery.warm.agent.interpreter_variables import interpreter_variables
from ciao_kernel.delivery.warm.agent.processes import memory_kills


class Run:
    """A run, from its command to its end, and until its files are given.

    Args:
        ask: The command.
    """

    def __init__(self, ask: dict[str, Any]) -> None:
        self.id: int = ask["id"]
        self.ask = ask
        self.pids: dict[int, int] = {}
        """The rank of each process that runs."""
        self.codes: dict[int, int] = {}
        """The exit code of each rank that has ended."""
        self.early: dict[int, int] = {}
        """The exit code of each process that has ended before its start was heard of."""
        self.wanted = len(ask["processes"])
        self.pending = True
        """Whether nothing of it has been started."""
        self.begun = time.monotonic()
        self.kill_at: float | None = None
        self.why = ""
        """Why it ends, if not by itself."""
        self.giver: int | None = None
        """The process that gives its files."""
        self.last = ""
        """Why the replica ends with it; "" if it waits for another one."""
        self._memory_kills = memory_kills()
        deadline = ask.get("deadline")
        self.deadline_at = self.begun + deadline if deadline else None

    @property
    def environment(self) -> dict[str, str]:
        """The variables of an interpreter for it."""
        return interpreter_variables(self.ask["environment"], self.ask.get("defaults", {}))

    @property
    def code(self) -> int:
        """The exit code of the first process that failed by itself; 0 if none did."""
        codes = [code for _, code in sorted(self.codes.items())]
        code = next((one for one in codes if one and one != -signal.SIGTERM), None)
        return next((one for one in codes if one), 0) if code is None else code

    @property
    def gives(self) -> bool:
        """True if its files are given: as of any job, not if it was stopped."""
        return bool(self.ask.get("files")) and self.why in ("", "deadline") and "folder" in self.ask

    @property
    def ran_out_of_memory(self) -> bool:
        """True if a process of it was killed for the memory limit of the container."""
        return -signal.SIGKILL in self.codes.values() and memory_kills() > self._memory_kills
