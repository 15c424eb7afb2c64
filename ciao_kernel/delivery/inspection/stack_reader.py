"""Asks the processes of a job, on the machine or in the pod of this process, where they stand.

:mod:`.stack_handler` explains the signals. A process is first asked in Python, which is safe at any
time and gives all threads. One that does not answer is in a library in C, and dumps the stack of
its main thread. A signal is sent only to a process that has the handler: by default it ends a
process.

A pod runs this file and its parts as one text (:mod:`.program_texts`): standard library, from
Python 3.8 on.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Sequence
from typing import Any

from ciao_kernel.delivery.inspection.handler_access import ASK, DUMP, WAKE, find, is_in_c, open_file
from ciao_kernel.delivery.inspection.process_state import (
    catches,
    command,
    on_processor,
    processes,
    rank_in,
    stat,
    to_ask,
)
from ciao_kernel.delivery.inspection.program_lines import folders, with_text
from ciao_kernel.delivery.inspection.stack_texts import answered, dumped

_HALT, _HALTED = b"halt", "halt:"
_PAUSE = 0.005
_LARGEST = 4 * 1024 * 1024


def look(mark: str, own: str, patience: float) -> list[dict[str, Any]]:
    """Return what each process of a job does.

    Args:
        mark: Variable with its value, such as ``CIAO_JOB=mnist``, of all processes of the job.
        own: Folder of the program; the lines of its files are read.
        patience: Seconds for the answers in Python, and the same again for those in C.
    """
    asked = [_Process(pid, variables) for pid, variables in to_ask(mark)]
    try:
        for one in asked:
            one.ask()
        began = time.monotonic()
        _wait([one for one in asked if one.waits], began + patience / 2)
        for one in asked:
            one.wake()
        _wait([one for one in asked if one.waits], began + patience)
        _wait([one for one in asked if one.waits], time.monotonic() + patience, dumps=True)
        own_folders = folders(own, [one.variables for one in asked])
        return [one.record(own_folders) for one in asked]
    finally:
        for one in asked:
            one.close()


def halt(mark: str, replica: str, patience: float, rank: str = "") -> str:
    """Let the process that runs the program of a replica stop for its debugger.

    Its other processes, such as torchrun or data loaders, are passed over.

    Args:
        mark: Variable with its value of all processes of the job.
        replica: The replica; "" in a pod, which has only one.
        patience: Seconds for the answer, which a process in a library in C gives later.
        rank: Number of the process in its replica; "" means the first one that stops.

    Returns:
        How the process answered, see :mod:`.debugger`; ``silent`` if it did not, "" if there is
        none.
    """
    answer = ""
    for pid, variables in processes(mark):
        own = rank in ("", rank_in(pid, variables))
        if own and replica in ("", variables.get("CIAO_REPLICA", "")):
            one = _Process(pid, variables)
            try:
                one.ask(_HALT)
                _wait([one], time.monotonic() + patience)
            finally:
                one.close()
            answer = one.halted or ("silent" if one.waits else answer or "none")
            if answer in ("stops", "open", "silent"):
                break
    return answer


class _Process:
    """One process of a job.

    Args:
        pid: Its number.
        variables: Its environment.
    """

    def __init__(self, pid: int, variables: dict[str, str]) -> None:
        self.pid = pid
        self.how = "none"  # it has no handler
        self.waits = False
        self.halted = ""
        self.variables = variables
        self._size = 0
        self._ran = 0
        self._threads: list[Any] = []
        self._path = find(pid)
        self._file = open_file(self._path, pid) if self._path else None

    def ask(self, question: bytes = b"ask") -> None:
        """Ask it in Python."""
        if self._file is None or not catches(self.pid, ASK):
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.how = "asked"  # by somebody else
            return
        self.how, self.waits = "silent", True
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, b"%s %d\n" % (question, os.getpid()), 0)
        self._ran = on_processor(self.pid)
        self._send(WAKE if self._is_at_lock() else ASK)

    def wake(self) -> None:
        """Interrupt its wait for a lock, in which it does not answer."""
        if self.waits and self._is_at_lock():
            self._send(WAKE)

    def dump(self) -> None:
        """Let the main thread write its stack if it is in C; the question is taken back."""
        if self.how == "silent" and self._file is not None and is_in_c(self.pid, self._ran):
            os.ftruncate(self._file, 0)
            if self._path != find(self.pid):  # else the stack would be in another file
                self.waits, self.how = False, "none"
                return
            self.how = "c"
            self._send(DUMP)

    def poll(self) -> None:
        """Look for its answer."""
        if self._file is None:
            return
        text = os.pread(self._file, _LARGEST, 0).decode("utf-8", "replace")
        complete, self._size = len(text) == self._size, len(text)  # faulthandler writes in pieces
        if self.how == "c" and complete and (frames := dumped(text)):
            self._threads, self.waits = [["", True, frames]], False
        for line in text.split("\n")[:-1]:
            if line.startswith(_HALTED):
                self.halted, self.waits = line[len(_HALTED) :], False
            if line.startswith("[") and (threads := answered(line)):
                self._threads, self.waits, self.how = threads, False, "python"

    def record(self, own: Sequence[str]) -> dict[str, Any]:
        """Return what is known, for JSON; ``own`` are the folders of the program."""
        state, parent = stat(self.pid)
        return {
            "pid": self.pid,
            "parent": parent,
            "state": state,
            "how": "silent" if self.waits else self.how,
            "command": command(self.pid),
            "replica": self.variables.get("CIAO_REPLICA", ""),
            "rank": rank_in(self.pid, self.variables),
            "threads": [
                [name, main, [with_text(frame, own) for frame in frames]]
                for name, main, frames in self._threads
            ],
        }

    def close(self) -> None:
        """Take the question back, and forget the answer."""
        if self._file is not None:
            if self.how != "asked":
                os.ftruncate(self._file, 0)
            os.close(self._file)

    def _is_at_lock(self) -> bool:
        try:
            with open(f"/proc/{self.pid}/wchan") as file:
                return file.read().startswith("futex")
        except OSError:
            return False

    def _send(self, number: int) -> None:
        if catches(self.pid, number):
            try:
                os.kill(self.pid, number)
            except OSError:
                self.waits = False


def _wait(asked: list[_Process], until: float, *, dumps: bool = False) -> None:
    while asked and time.monotonic() < until:
        if dumps:
            for one in asked:
                one.dump()
        time.sleep(_PAUSE)
        for one in asked:
            one.poll()
        asked = [one for one in asked if one.waits]
