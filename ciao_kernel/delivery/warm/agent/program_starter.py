"""Starts the processes of a run: as forks of the zygote, or in fresh interpreters."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import Any

from ciao_kernel.delivery.warm.agent.run import Run
from ciao_kernel.delivery.warm.agent.run_values import RunValues
from ciao_kernel.delivery.warm.agent.zygotes import Zygotes


class ProgramStarter:
    """Starts programs.

    Args:
        zygotes: Are forked.
        values: Where the values of runs go.
        oom: Whether a program is killed before the agent, out of memory.
    """

    def __init__(self, zygotes: Zygotes, values: RunValues, *, oom: bool) -> None:
        self._zygotes, self._values, self._oom = zygotes, values, oom

    def begin(self, run: Run) -> None:
        """Fork the zygote for a run that waits for it, as soon as that can be done."""
        if not run.pending or run.kill_at is not None:
            return
        if self._zygotes.cold:
            self.spawn(run)
        elif (zygote := self._zygotes.ready) is not None:
            run.pending = False
            for rank in range(run.wanted):
                zygote.send(**self._asked(run, rank))

    def spawn(self, run: Run) -> None:
        """Start the program in a fresh interpreter, which imports everything again."""
        run.pending = False
        for rank in range(run.wanted):
            ask = self._asked(run, rank)
            environment = {**run.environment, **ask["variables"]}
            process = subprocess.Popen(
                [sys.executable, "-u", self._zygotes.script, "--program"],
                stdin=subprocess.PIPE,
                stderr=1,
                env=environment,
            )
            process.returncode = 0  # reaped by the agent
            run.pids[process.pid] = rank
            with contextlib.suppress(OSError):
                process.stdin.write(json.dumps(ask).encode())  # type: ignore[union-attr]
                process.stdin.close()  # type: ignore[union-attr]

    def _asked(self, run: Run, rank: int) -> dict[str, Any]:
        """Return what a process of a run needs to know."""
        ask = run.ask
        return {
            "run": run.id,
            "rank": rank,
            "marked": run.wanted > 1,
            "variables": ask["processes"][rank],
            "folder": ask["folder"],
            "program": ask["program"],
            "arguments": ask["arguments"],
            "learned": self._zygotes.learned if self._zygotes.learns and ask["learn"] else "",
            "oom": self._oom,
            # Of several processes of a replica the first one gives the values.
            "results": self._values.variables(run) if rank == 0 else {},
        }
