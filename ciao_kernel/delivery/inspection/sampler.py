"""Counts where the processes of a job, on the machine or in the pod of this process, spend time.

As for :mod:`.stack_reader`, a signal lets a handler in Python answer with the stack of the main
thread; here it is sent many times a second. A process that has not answered until the next time is
in a library in C, and another signal lets faulthandler write its stack. One that runs Python must
not get that: faulthandler reads a stack while it changes, and the process ends with a segmentation
fault (in Python 3.11 to 3.13.0 after a hundred signals, if a library calls Python often). No stack
is read in part: proc(5) tells when faulthandler has ended. Deep stacks, and many processes, are
asked less often, so that neither the program nor this process takes much time.

This file and its parts are the text of one program (:mod:`.program_texts`), which ends before its
time when its standard input does. Standard library, from Python 3.8 on.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import time
from collections.abc import Callable, Sequence
from typing import Any

from ciao_kernel.delivery.inspection.handler_access import (
    ASK,
    DUMP,
    find,
    is_file,
    is_in_c,
    open_file,
)
from ciao_kernel.delivery.inspection.process_state import (
    catches,
    command,
    on_processor,
    rank_in,
    signals,
    stat,
    to_ask,
)
from ciao_kernel.delivery.inspection.program_lines import folders, is_own, with_text
from ciao_kernel.delivery.inspection.stack_texts import dumped

START = "exec(eval(input()))"
"""Runs the text of a program that comes as one line: the end of standard input comes later."""
_RATE = 45.0
"""Samples a second of a process; not a divisor of usual periods."""
_PER_FRAME = 6e-4
"""Seconds between two samples for each frame: a process writes one in 6 microseconds."""
_PER_PROCESS = 4e-3
"""Seconds between two samples for each process: this one needs 200 microseconds for a stack."""
_LAST = 0.2
"""Seconds in which the last stacks may come."""
_HEAD = b"Stack (most recent call first):\n"
"""As :mod:`.stack_handler` and faulthandler write it."""
_DEEPEST = 100
"""Frames that faulthandler writes; the outer ones are left out."""
_END = b"answered\n"
_QUESTION = b"main %d\n"
"""As :mod:`.stack_handler` reads it and ends its answer."""
_LARGEST = 1 << 20
"""Bytes of stacks after which a question is asked anew, and they are forgotten."""
_STACKS = 3000
_NUMBERS = 240_000
"""Frames of all stacks that are returned; the rarest stacks are only counted."""


def sample(
    mark: str, own: str, seconds: float, goes_on: Callable[[float], bool]
) -> list[dict[str, Any]]:
    """Return how often each process of a job stood where.

    Args:
        mark: Variable with its value, such as ``CIAO_JOB=mnist``, of all processes of the job.
        own: Folder of the program.
        seconds: How long.
        goes_on: Waits so many seconds; returns False if nobody needs the result any more.
    """
    found = [_Process(pid, variables) for pid, variables in to_ask(mark)]
    own_folders = folders(own, [one.variables for one in found])
    sampled = [one for one in found if one.begin(lambda path: is_own(path, own_folders))]
    began, turn = time.monotonic(), 0
    try:
        while True:
            for one in sampled:
                one.tick()
            depth = max((one.depth for one in sampled), default=0)
            pause = max(1 / _RATE, depth * _PER_FRAME, len(sampled) * _PER_PROCESS)
            turn += 1
            pause *= 0.75 + 0.5 * (turn * 0.618034 % 1)  # else a periodic program is seen askew
            left = began + seconds - time.monotonic()
            if left <= 0 or not sampled or not goes_on(min(pause, left)):
                break
        until = time.monotonic() + _LAST
        while any(one.waits() for one in sampled) and time.monotonic() < until:
            time.sleep(0.005)
        for one in sampled:
            one.take(last=True)
        room = _NUMBERS // max(1, len(sampled))
        return [one.record(own_folders, room) for one in found]
    finally:
        for one in found:
            one.close()


def is_read(pause: float) -> bool:
    """Wait; return whether standard input is still open."""
    return not select.select([0], [], [], pause)[0]


class _Process:
    """One process of a job.

    Args:
        pid: Its number.
        variables: Its environment.
    """

    def __init__(self, pid: int, variables: dict[str, str]) -> None:
        self.pid = pid
        self.variables = variables
        self.depth = 0
        """Frames of its deepest stack."""
        self._how = "none"
        self._held = False
        self._path = find(pid)
        self._file = open_file(self._path, pid) if self._path else None
        self._is_own: Callable[[str], bool] = lambda path: False
        self._owned: dict[str, bool] = {}
        self._frames: dict[tuple[str, int, str], int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._rest = 0
        self._asked = False
        """Whether a question is open."""
        self._dumped = False
        """Whether faulthandler has written a stack since the question."""
        self._read = 0
        """Bytes of the file that were read."""
        self._open = b""
        """The last stack that was read: perhaps the rest of an answer is still to come."""
        self._ran = 0
        """For how long the main thread had run before the question."""

    def begin(self, is_own: Callable[[str], bool]) -> bool:
        """Return whether it can be sampled."""
        self._is_own = is_own
        wanted = (ASK, DUMP)
        if self._file is None or not all(signals(self.pid, one)[0] for one in wanted):
            return False
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._how = "asked"  # by somebody else
            return False
        self._how, self._held = "silent", True
        os.ftruncate(self._file, 0)
        return True

    def waits(self) -> bool:
        """Return whether a stack is still to come."""
        return bool(signals(self.pid, DUMP)[1])

    def tick(self) -> None:
        """Count the stacks that have come, and ask for the next one."""
        caught, waits = signals(self.pid, DUMP)
        if waits:
            return
        self.take()
        # It may have become another program, without the handler.
        if not caught or not is_file(self._path, self.pid):
            return
        with contextlib.suppress(OSError):
            assert self._file is not None
            if self._asked and self._read < _LARGEST:
                in_c = is_in_c(self.pid, self._ran)
                # An answer that came meanwhile is from Python.
                if in_c and os.fstat(self._file).st_size == self._read:
                    os.kill(self.pid, DUMP)
            elif catches(self.pid, ASK):
                self.take(last=True)
                os.ftruncate(self._file, 0)
                self._read = os.pwrite(self._file, _QUESTION % os.getpid(), 0)
                self._asked, self._dumped = True, False
                self._ran = on_processor(self.pid)
                os.kill(self.pid, ASK)

    def take(self, *, last: bool = False) -> None:
        """Count the stacks that have come.

        An answer is read in parts if it comes just now: a file in memory grows page by page.

        Args:
            last: Whether nothing more is read before the file is emptied.
        """
        assert self._file is not None
        data = os.pread(self._file, _LARGEST, self._read)
        self._read += len(data)
        found = (self._open + data).split(_HEAD)[1:]
        self._open = b""
        if found and data and not last and not found[-1].endswith(_END):
            self._open = _HEAD + found.pop()
        for one in found:
            frames = dumped(one.decode("utf-8", "replace"))
            self.depth = max(self.depth, len(frames))
            if len(frames) >= _DEEPEST:
                frames.append(["", 0, "…"])
            answered = one.endswith(_END)
            if frames and not (answered and self._dumped):
                self._count(frames)
                if not answered and not self._dumped:
                    self._count(frames)  # it stood there when it was asked, too
            self._dumped = self._dumped or not answered
            self._asked = self._asked and not answered

    def _count(self, frames: Sequence[Any]) -> None:
        self._how = "c"
        if len(self._stacks) >= _STACKS:
            self._rest += 1
            return
        numbers = []
        for path, line, name in frames:
            if path not in self._owned:
                self._owned[path] = self._is_own(path)
            # The lines of a library would make many stacks of one.
            key = (path, line if self._owned[path] else 0, name)
            numbers.append(self._frames.setdefault(key, len(self._frames)))
        stack = tuple(numbers)
        self._stacks[stack] = self._stacks.get(stack, 0) + 1

    def record(self, own: Sequence[str], room: int) -> dict[str, Any]:
        """Return what is known, for JSON.

        Args:
            own: The folders of the program.
            room: Frames of all stacks at most.
        """
        state, parent = stat(self.pid)
        rest = self._rest
        used: set[int] = set()
        kept: list[tuple[int, tuple[int, ...]]] = []
        for stack, count in sorted(self._stacks.items(), key=lambda one: -one[1]):
            room -= len(stack)
            if room < 0:
                rest += count
            else:
                kept.append((count, stack))
                used.update(stack)
        new = {old: number for number, old in enumerate(sorted(used))}
        frames = [frame for frame, old in self._frames.items() if old in used]
        return {
            "pid": self.pid,
            "parent": parent,
            "state": state,
            "how": self._how,
            "command": command(self.pid),
            "replica": self.variables.get("CIAO_REPLICA", ""),
            "rank": rank_in(self.pid, self.variables),
            "frames": [with_text(list(frame), own) for frame in frames],
            "stacks": [[count, [new[old] for old in stack]] for count, stack in kept],
            "rest": rest,
        }

    def close(self) -> None:
        """Forget what has come."""
        if self._file is not None:
            if self._held:
                os.ftruncate(self._file, 0)
            os.close(self._file)
