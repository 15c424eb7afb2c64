"""The zygote of the replica and its heir: started, heard, replaced and ended."""

from __future__ import annotations

import functools
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from typing import Protocol

from ciao_kernel.delivery.warm.agent.processes import kill, memory_of
from ciao_kernel.delivery.warm.agent.zygote_channel import ZygoteChannel

ZYGOTE = "ciao_warm_zygote.py"
"""The zygote's file, beside the agent's."""


class ZygoteEvents(Protocol):
    """Receiver of what the zygotes tell about themselves and their forks."""

    def note_fork(self, pid: int, rank: int) -> None:
        """Note a process of the run."""

    def note_exit(self, pid: int, code: int, run_id: int = 0, rank: int = 0) -> None:
        """Note the end of a process; that of a fork with the run and the rank that it had."""

    def begin_pending(self) -> None:
        """Start the run that waits: a zygote is ready, or there will be none."""

    def replace_lost(self, zygote: ZygoteChannel) -> None:
        """Go on without a zygote that has ended; what it forked is the agent's own child now."""

    def is_idle(self) -> bool:
        """Return whether no run is active."""


class Zygotes:
    """The zygote that is forked for the runs, and the one that takes its place.

    Args:
        here: Folder of the agent.
        own: Folder of the agent's own files.
        preload: Modules that they import.
        picker: Waits for what they say.
        events: Is told of it.
    """

    def __init__(
        self,
        here: str,
        own: str,
        preload: list[str],
        picker: selectors.BaseSelector,
        events: ZygoteEvents,
    ) -> None:
        self.script = os.path.join(here, ZYGOTE)
        self.learned = os.path.join(own, f"learned-{os.getpid()}")
        """File for the names of what a program imports."""
        self.learns = True
        self.cold = False
        """Whether each run needs a fresh interpreter."""
        self._preload, self._picker, self._events = preload, picker, events
        self._zygote: ZygoteChannel | None = None
        self._heir: ZygoteChannel | None = None

    @property
    def ready(self) -> ZygoteChannel | None:
        """The zygote, if it can be forked."""
        return self._zygote if self._zygote is not None and self._zygote.ready else None

    @property
    def pids(self) -> set[int]:
        """Their processes."""
        return {one.pid for one in (self._zygote, self._heir) if one is not None}

    @property
    def memory(self) -> int:
        """Megabytes of the zygote; 0 without one."""
        return memory_of(self._zygote.pid) if self._zygote else 0

    def warm_up(self, environment: dict[str, str]) -> None:
        """Start a zygote, unless there is one with these variables.

        Args:
            environment: All its variables.
        """
        if self.cold or (self._zygote and self._zygote.environment == environment):
            return
        self.cool()
        ours, theirs = socket.socketpair()
        process = subprocess.Popen(
            [
                sys.executable,
                "-u",
                self.script,
                "--zygote",
                str(theirs.fileno()),
                *self._preload,
            ],
            stdin=subprocess.DEVNULL,
            # One pipe: a container's two are copied by two threads, and a traceback could come
            # behind the end of its run.
            stderr=1,
            pass_fds=[theirs.fileno()],
            env=environment,
        )
        process.returncode = 0  # reaped by the agent
        theirs.close()
        self._zygote = zygote = ZygoteChannel(process.pid, ours, environment)
        self._register(zygote)

    def cool(self) -> None:
        """End them."""
        for one in (self._zygote, self._heir):
            if one is not None:
                self._drop(one)
                kill(one.pid, signal.SIGKILL)
        self._zygote = self._heir = None

    def rest(self) -> None:
        """Prepare for the next run, between two of them."""
        if self._heir is not None and self._heir.ready:
            self._take_over()
        self._learn()

    def _register(self, zygote: ZygoteChannel) -> None:
        heard = functools.partial(self._hear, zygote)
        self._picker.register(zygote.channel, selectors.EVENT_READ, heard)

    def _drop(self, zygote: ZygoteChannel) -> None:
        self._picker.unregister(zygote.channel)
        zygote.channel.close()

    def _hear(self, zygote: ZygoteChannel) -> None:
        if zygote not in (self._zygote, self._heir):
            return  # replaced in this turn of the loop
        messages, descriptor = zygote.receive()
        for message in messages:
            if "forked" in message:
                self._events.note_fork(message["forked"], message["rank"])
            elif "exit" in message:
                told = [message[name] for name in ("exit", "code", "run", "rank")]
                self._events.note_exit(*told)
            elif "heir" in message and descriptor is not None:
                channel = socket.socket(fileno=descriptor)
                self._heir = ZygoteChannel(message["heir"], channel, zygote.environment)
                self._register(self._heir)
            elif message.get("ready"):
                self._judge(zygote, safe=message["safe"])
            elif message.get("gone"):
                self._lose(zygote)

    def _judge(self, zygote: ZygoteChannel, *, safe: bool) -> None:
        """Accept a zygote whose imports are done, unless a fork of it would not be safe."""
        if zygote is self._heir and not safe:
            self._disinherit()
            return
        zygote.ready = True
        if zygote is self._heir:
            if self._events.is_idle():
                self._take_over()
            return
        if not safe:
            self.cold = True
            self.cool()
        self._events.begin_pending()

    def _lose(self, zygote: ZygoteChannel) -> None:
        if zygote is self._heir:
            self._disinherit()
            return
        self.cool()
        self._events.replace_lost(zygote)

    def _disinherit(self) -> None:
        """End the heir, and make no other one."""
        self.learns = False
        heir, self._heir = self._heir, None
        if heir is not None:
            self._drop(heir)
            kill(heir.pid, signal.SIGKILL)

    def _take_over(self) -> None:
        """Let the heir be the zygote from now on; the old one ends as its channel does."""
        old, self._zygote, self._heir = self._zygote, self._heir, None
        if old is not None:
            self._drop(old)

    def _learn(self) -> None:
        """Let an heir import what the last program imported; nobody waits for it."""
        try:
            with open(self.learned, encoding="utf-8") as file:
                names = json.load(file)
            os.unlink(self.learned)
        except (OSError, ValueError):
            return
        if names and self.learns and self.ready and not self._heir:
            self.ready.send(bring=names)
