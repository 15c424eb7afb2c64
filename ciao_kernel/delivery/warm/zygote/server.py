"""The requests of the agent, and their answers."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
from typing import Any

from ciao_kernel.delivery.warm.zygote.forking import fork, is_safe
from ciao_kernel.delivery.warm.zygote.process_name import call_process

NAME = "ciao-zygote"
"""Name of the process, by which readers of stacks know it: it may stand deep in an import."""


class Zygote:
    """Answers the requests of the agent.

    Args:
        channel: The socket to the agent.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        with open("/proc/self/comm", "rb") as file:
            self._name = file.read().rstrip(b"\n")
        call_process(NAME.encode())
        self._listen()

    def _listen(self) -> None:
        """Make what waits for requests and for the ends of forks; an heir needs its own."""
        self._text = b""
        self._forks: dict[int, tuple[int, int]] = {}
        """The run and the rank of each process."""
        self._wake, writer = socket.socketpair()
        self._wake.setblocking(False)
        writer.setblocking(False)
        self._writer = writer
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._picker = selectors.DefaultSelector()
        self._picker.register(self._channel, selectors.EVENT_READ)
        self._picker.register(self._wake, selectors.EVENT_READ)

    def serve(self, modules: list[str]) -> dict[str, Any]:
        """Import modules and serve requests; return in each fork, with what it is to run."""
        self._bring(modules)
        while True:
            found = [key.fileobj for key, _ in self._picker.select()]
            if self._wake in found:
                with contextlib.suppress(BlockingIOError):
                    self._wake.recv(4096)
                self._report_ends()
            if self._channel in found:
                data = self._channel.recv(1 << 16)
                if not data:
                    os._exit(0)  # the agent has ended, or has another zygote
                *lines, self._text = (self._text + data).split(b"\n")
                for line in lines:
                    ask: dict[str, Any] = json.loads(line)
                    if "bring" in ask:
                        if self._fork_heir(ask["bring"]):
                            break  # the other requests are those of the process that was forked
                    elif self._fork(ask["run"], ask["rank"]):
                        return ask

    def _say(self, **what: Any) -> None:
        self._channel.sendall(json.dumps(what).encode() + b"\n")

    def _report_ends(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            run, rank = self._forks.pop(pid, (0, 0))
            self._say(exit=pid, code=os.waitstatus_to_exitcode(status), run=run, rank=rank)

    def _bring(self, modules: list[str]) -> None:
        for name in modules:
            try:
                importlib.import_module(name)
            except Exception:  # the program's own import shows it
                continue
        gc.collect()
        gc.freeze()  # so that a collection in a fork copies no pages
        self._say(ready=True, safe=is_safe())

    def _fork(self, run: int, rank: int) -> bool:
        """Return True in the fork."""
        if pid := fork():
            # It may be killed before it has said that it is there.
            self._forks[pid] = run, rank
            return False
        # Not by the other process: the program may kill that one before it says so.
        self._say(forked=os.getpid(), rank=rank)
        call_process(self._name)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._picker.close()
        for one in (self._channel, self._wake, self._writer):
            one.close()
        return True

    def _fork_heir(self, modules: list[str]) -> bool:
        """Fork a zygote that imports more, and takes over between two runs; True in that one."""
        ours, theirs = socket.socketpair()
        pid = fork()
        if pid:
            socket.send_fds(
                self._channel, [json.dumps({"heir": pid}).encode() + b"\n"], [ours.fileno()]
            )
            ours.close()
            theirs.close()
            return False
        old = (self._channel, self._wake, self._writer, ours)
        self._picker.close()
        for one in old:
            one.close()
        self._channel = theirs
        self._listen()
        self._bring(modules)
        return True
