"""The loop of the agent, and the course of each run."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import selectors
import signal
import socket
import sys
import tarfile
import time
from typing import Any

from ciao_kernel.delivery.warm.agent.addresses import address, free_port, port_of
from ciao_kernel.delivery.warm.agent.command_reader import CommandReader
from ciao_kernel.delivery.warm.agent.file_giver import FileGiver
from ciao_kernel.delivery.warm.agent.interpreter_variables import interpreter_variables
from ciao_kernel.delivery.warm.agent.marker_writer import MarkerWriter
from ciao_kernel.delivery.warm.agent.need import Need
from ciao_kernel.delivery.warm.agent.processes import kill, kill_all, reaped, signal_all
from ciao_kernel.delivery.warm.agent.program_starter import ProgramStarter
from ciao_kernel.delivery.warm.agent.run import Run
from ciao_kernel.delivery.warm.agent.run_folder import RunFolders
from ciao_kernel.delivery.warm.agent.run_values import RunValues
from ciao_kernel.delivery.warm.agent.zygote_channel import ZygoteChannel
from ciao_kernel.delivery.warm.agent.zygotes import Zygotes

_TICK = 0.25
_GRACE_OF_PEERS = 2.0
"""Seconds from SIGTERM to SIGKILL for the other processes of a replica in which one failed."""
_SUBREAPER = 36


class Agent:
    """Runs programs until nobody needs it any more.

    Args:
        settings: From the variable ``CIAO_WARM``.
        here: Folder of its program.
    """

    def __init__(self, settings: dict[str, Any], here: str) -> None:
        self._grace: float = settings["grace"]
        self._host: str = settings["host"]
        self._environment: dict[str, str] = settings["environment"]
        self._out = MarkerWriter(settings["nonce"])
        self._folders = RunFolders(settings["root"] or os.getcwd(), keeps=settings["keep"])
        self._picker = selectors.DefaultSelector()
        self._values = RunValues(self._folders.own)
        self._giver = FileGiver(self._out.mark, self._folders.own, here)
        self._zygotes = Zygotes(
            here, self._folders.own, settings["preload"], self._picker, events=self
        )
        self._starter = ProgramStarter(self._zygotes, self._values, oom=settings["oom"])
        self._run: Run | None = None
        self._last = 0
        self._unheard: int | None = None
        """Exit code of the last run, as long as the kernel has said nothing since its end."""
        self._code: int | None = None
        self._terminated = False
        self._listener = free_port()
        self._need = Need(settings)

    # ------------------------------------------------------------------------------- the loop

    def loop(self) -> int:
        """Serve commands; return the exit code of the replica."""
        self._folders.make()
        commands = CommandReader(self._folders.open_input())
        wake, writer = socket.socketpair()
        wake.setblocking(False)
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._terminate)
        # Children of processes that have ended become children of the agent: none gets lost.
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
        heard = functools.partial(self._read_commands, commands)
        self._picker.register(commands.source, selectors.EVENT_READ, heard)
        self._picker.register(wake, selectors.EVENT_READ, lambda: _drain(wake))
        port, host = port_of(self._listener), self._host or address()
        self._out.emit(ev="ready", port=port, host=host, root=self._folders.root)
        self._zygotes.warm_up(interpreter_variables(self._environment, {}))
        while self._code is None:
            for key, _ in self._picker.select(timeout=_TICK):
                key.data()
            for pid, code in reaped():
                self.note_exit(pid, code)
            self._keep_time(time.monotonic())
        self._zygotes.cool()
        kill_all(set())
        return self._code

    def _terminate(self, *_: object) -> None:
        self._terminated = True

    def _keep_time(self, now: float) -> None:
        """Do what is due at a time: kills, the deadline of a run, the end of the agent."""
        run = self._run
        if self._terminated:
            if run is None:
                self._code = 128 + signal.SIGTERM
                return
            if run.kill_at is None:
                self._stop(run, self._grace, "terminated")
        if run is not None:
            if run.deadline_at and now >= run.deadline_at and run.kill_at is None:
                self._stop(run, self._grace, "deadline")
            elif run.kill_at is not None and now >= run.kill_at:
                signal_all(signal.SIGKILL, self._zygotes.pids)
                if run.pending:
                    self._finish(run)
        elif (why := self._need.over(now)) and not self._picker.select(timeout=0):
            # Who was asleep first reads what has come meanwhile.
            self._end(why, self._unheard or 0)

    def _end(self, why: str, code: int) -> None:
        self._out.emit(ev="bye", why=why, code=code)
        self._code = code if code >= 0 else 128 - code

    # ------------------------------------------------------------------------------- commands

    def _read_commands(self, commands: CommandReader) -> None:
        for ask in commands.read():
            self._need.hear(ask)
            self._unheard = None
            self._obey(ask)
        if commands.ended:  # nothing can be asked of this replica any more
            self._picker.unregister(commands.source)
            self._need.lose_input()

    def _obey(self, ask: dict[str, Any]) -> None:
        name, run = ask["op"], self._run
        if name == "run":
            self._start(ask)
        elif name == "stop" and run is not None and ask["id"] == run.id:
            if run.giver is not None:
                if ask.get("drop"):
                    kill(run.giver, signal.SIGKILL)
            elif run.kill_at is None:
                self._stop(run, ask.get("grace", self._grace), "stopped")
        elif name == "bye" and run is None:
            self._end("asked", 0)

    # ------------------------------------------------------------------------------- one run

    def _start(self, ask: dict[str, Any]) -> None:
        if ask["id"] <= self._last:
            return  # sent again
        if self._run is not None:
            self._out.emit(ev="refused", id=ask["id"], why=f"run {self._run.id} is active")
            return
        self._last = ask["id"]
        self._out.emit(ev="begin", id=ask["id"])  # before any line of the run
        self._run = run = Run(ask)
        self._listener.close()
        try:
            folder = self._folders.unpack(ask)
        except (OSError, ValueError, tarfile.TarError) as error:
            run.why = f"the files of the run cannot be written: {error}"
            run.codes[0] = 1
            self._finish(run)
            return
        run.ask["folder"] = folder
        if self._zygotes.cold or ask.get("cold"):
            self._starter.spawn(run)
            return
        self._zygotes.warm_up(run.environment)
        self._starter.begin(run)

    def _stop(self, run: Run, grace: float, why: str) -> None:
        run.why = run.why or why
        run.kill_at = time.monotonic() + grace
        if run.pending:  # nothing has been started
            run.codes = dict.fromkeys(range(run.wanted), -signal.SIGTERM)
            self._finish(run)
            return
        signal_all(signal.SIGTERM, self._zygotes.pids)

    def _finish(self, run: Run, why: str = "") -> None:
        """End what the run left, then write its end: no line of it can come behind."""
        # The stop of a job reaches all processes of a replica, and theirs may be seen to end first.
        run.why = run.why or ("terminated" if self._terminated else why)
        left = kill_all(self._zygotes.pids)
        run.last = self._need.over_with_run()
        gives = run.gives
        self._run = run if gives else None
        run.pending = False
        run.deadline_at = run.kill_at = None
        self._listener = free_port()
        self._out.emit(
            ev="end",
            id=run.id,
            code=run.code,
            why=run.why,
            left=left,
            cold=self._zygotes.cold,
            port=port_of(self._listener),
            took=round(time.monotonic() - run.begun, 3),
            memory=self._zygotes.memory,
            **({"gives": True, "words": run.ask["files"]["words"]} if gives else {}),
            **({"oom": True} if run.ran_out_of_memory else {}),
            **({"last": run.last} if run.last else {}),
            **self._values.take(run),
        )
        self._unheard = run.code  # the replica ends with it, unless the kernel is still there
        self._need.rest()
        fault = self._giver.start(run) if gives else ""
        if fault:
            self._note_given(run, fault)
        elif not gives:
            self._rest(run)

    def _note_given(self, run: Run, fault: str) -> None:
        """Say that the files of a run are written, or why they are not."""
        run.giver = self._run = None
        self._out.emit(ev="given", id=run.id, fault=fault)
        self._need.rest()
        self._rest(run)

    def _rest(self, run: Run) -> None:
        """Wait for the next run, or end with this one, as its program did."""
        if run.last:
            self._end(run.last, run.code)
        else:
            self._zygotes.rest()

    # ------------------------------------------------------- what the zygotes tell (ZygoteEvents)

    def is_idle(self) -> bool:
        """Return whether no run is active."""
        return self._run is None

    def begin_pending(self) -> None:
        """Start the run that waits: a zygote is ready, or there will be none."""
        if self._run is not None:
            self._starter.begin(self._run)

    def note_fork(self, pid: int, rank: int) -> None:
        """Note a process of the run; it may have to end already."""
        if self._run is not None:
            self._run.pids[pid] = rank
            if self._run.kill_at is not None:
                signal_all(signal.SIGTERM, self._zygotes.pids)
            if (code := self._run.early.pop(pid, None)) is not None:
                self.note_exit(pid, code)

    def note_exit(self, pid: int, code: int, run_id: int = 0, rank: int = 0) -> None:
        """Note the end of a process; the last one of a run ends it."""
        run = self._run
        if run is None:
            return
        if pid == run.giver:
            self._note_given(run, self._giver.fault(run, code))
            return
        if pid in run.pids:
            rank = run.pids.pop(pid)
        elif not run_id:
            # The zygote has ended after the fork, whose word is still to be read.
            run.early[pid] = code
            return
        elif run_id != run.id or rank in run.codes:
            return
        # Else it was killed before it could say that it is there, as peers of a failed one are.
        run.codes[rank] = code
        if len(run.codes) >= run.wanted:
            self._finish(run)
        elif code and run.kill_at is None:
            # As torchrun does: the others would wait for this one for ever.
            run.kill_at = time.monotonic() + _GRACE_OF_PEERS
            signal_all(signal.SIGTERM, self._zygotes.pids)

    def replace_lost(self, zygote: ZygoteChannel) -> None:
        """Go on without a zygote that has ended; what it forked is the agent's own child now."""
        run = self._run
        if run is not None and run.pending:
            if self._terminated:
                return  # by the same signal: the program is not started any more
            self._zygotes.cold = True  # an import ends the process: let the program show it
            self._starter.spawn(run)
            return
        if run is None:
            self._zygotes.cold = self._zygotes.cold or not zygote.ready  # likewise
        elif len(run.pids) + len(run.codes) < run.wanted:
            for rank in range(run.wanted):
                run.codes.setdefault(rank, 1)
            self._finish(run, "the process that forks the program was killed")
        else:
            for pid in list(run.pids):  # reaped by the zygote, which could not report it
                if not os.path.exists(f"/proc/{pid}"):
                    self.note_exit(pid, 1)
        self._zygotes.warm_up(zygote.environment)


def _drain(wake: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        wake.recv(4096)


def main() -> int:
    """Be the agent; return the exit code of the replica."""
    here = os.path.dirname(os.path.abspath(sys.argv[0]))
    return Agent(json.loads(os.environ["CIAO_WARM"]), here).loop()


if __name__ == "__main__":
    sys.exit(main())
