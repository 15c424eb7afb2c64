"""The connection between pdb in a process of a replica and a front end (:mod:`.debug_bridge`).

This file is in replicas as ``ciao_debug_wire``; :mod:`.debugger` loads it at the first breakpoint.
The process writes a marker into its log (:mod:`.breakpoints`) and waits at a socket in a folder of
its own (mode 0700). No port is opened.

One JSON object a line goes either way: ``{"out": text, "prompt": text}``, and ``{"line": text}``
as the answer to a prompt. A front end that goes away does not end the program, as the end of input
would in plain pdb: the process waits for the next one. Two waits have an end: that of a program
that has failed, and that of one that a person has stopped from outside and left.

Standard library, from Python 3.8 on.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from typing import Any

MARKER = "\x1eciao:debug "
FOLDER = "ciao-debug-"
"""Begin of the name of a process's folder; its number follows."""
SOCKET = "socket"
OPEN = "open"
"""File in the folder while a front end is there, with the start time of the process: a process
that was killed at its prompt leaves the file, and a later one may have the same number."""
_MOST = 200_000
"""Characters that are sent at once."""
_RANKS = (
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),  # of torchrun
    ("LOCAL_RANK", "LOCAL_SIZE"),  # of DeepSpeed's launcher
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
"""As LOCAL_RANKS of :mod:`.process_state`, which is not beside this file in a replica."""

_turn = threading.Lock()
"""Held by the thread whose prompt is open, or is waited for."""


def forked() -> None:
    """Leave the turn to the parent, whose other threads are not in this process."""
    global _turn
    _turn = threading.Lock()


def rank() -> str:
    """Return the number of this process among those of its replica; "" if it is alone.

    As rank_of of :mod:`.process_state` for its environment.
    """
    if os.environ.get("LOCAL_WORLD_SIZE") == "1":  # mpirun may count all ranks of the machine
        return ""
    for name, count in _RANKS:
        found = os.environ.get(name, "")
        if found.isdigit() and os.environ.get(count, "1" if found == "0" else "") != "1":
            return found
    return ""


def folder(here: str) -> str:
    """Return the folder for the socket; it is made if it is missing. "" if there is none.

    Args:
        here: The folder of this file.
    """
    for base in (here, "/dev/shm", "/tmp"):
        path = os.path.join(base, f"{FOLDER}{os.getpid()}")
        try:
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:  # of a process that was killed at its prompt
                pass
            found = os.lstat(path)
            own = found.st_uid == os.geteuid() and not found.st_mode & 0o77
            if own and found.st_mode & 0o40000:  # no link
                return path
        except OSError:
            pass
    return ""


def _started() -> str:
    """Return the start time of this process."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[19]


class Over(BaseException):
    """The time of a prompt is over. No Exception: pdb shows those of the lines that it runs."""


class Wire:
    """Input and output of pdb: a socket at which one front end may be.

    Args:
        here: The folder of this file.
    """

    encoding = "utf-8"
    over = Over
    """What a wait raises when the time of the prompt is over."""
    asked = False
    """Whether somebody has asked for the stop: that front end opens the prompt, and no other."""
    failed = ""
    """The error that ends the program afterwards."""
    until: Any = None
    """When the prompt ends, whoever is there (time.monotonic()); None: never."""
    alone: Any = None
    """Seconds for which the program waits while nobody is there; None: for ever."""
    _has_typed = False

    def __init__(self, here: str) -> None:
        self._here = here
        self._text = self._place = self._folder = ""
        self._socket: Any = None
        self._lines: Any = None
        self._holds = self._waits = False

    @property
    def is_late(self) -> bool:
        """True if the time of the prompt is over."""
        return self.until is not None and time.monotonic() >= self.until

    @property
    def is_open(self) -> bool:
        """True if a front end is connected."""
        return self._socket is not None

    def open(self, place: str) -> None:
        """Wait for a front end, unless one is there."""
        self._place = place
        if self._socket is None:
            self._wait(again=False)
        elif self.failed:  # in a step; the front end has the prompt already
            self._mark(again=False, over=False)

    def write(self, text: str) -> None:
        """Add output; it goes out with the next prompt."""
        self._text += text
        if len(self._text) > _MOST:
            self._text = self._text[:_MOST] + "\n… the rest is not shown.\n"

    def flush(self) -> None:
        """Do nothing."""

    def isatty(self) -> bool:
        """Return False."""
        return False

    def readline(self) -> str:
        """Send what pdb has written, and return the next line of the person."""
        text, self._text = self._text, ""
        head, feed, prompt = text.rpartition("\n")
        while True:
            try:
                self._socket.settimeout(self._patience(self._has_typed))
            except (OSError, AttributeError):  # closed
                pass
            self._send({"out": head + feed, "prompt": prompt, "rank": rank(), "alone": self.alone})
            try:
                line = str(json.loads(self._lines.readline())["line"])
                self._has_typed = True
                return line
            except socket.timeout:  # noqa: UP041 - another class before Python 3.10
                raise Over from None
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                self.drop()
                self._wait(again=True)

    def close(self, end: str) -> None:
        """Take leave of the front end, which shows why."""
        if self._socket is not None:
            text, self._text = self._text, ""
            self._send({"out": text, "end": end})
            self.drop()
        if self._waits:
            self._waits = False
            try:
                os.rmdir(self._folder)
            except OSError:
                pass
            self._mark(again=False, over=True)
            self.asked = False
        self._release()

    def drop(self) -> None:
        """Close the connection."""
        one, self._socket = self._socket, None
        if one is not None:
            try:
                one.close()
                self._lines.close()
            except OSError:
                pass
            if self._folder:
                try:
                    os.unlink(os.path.join(self._folder, OPEN))
                except OSError:
                    pass

    def forked(self) -> None:
        """Leave the connection to the parent."""
        self._folder = self._text = ""
        self.asked = self._holds = self._waits = False
        self.drop()

    def _left(self) -> Any:
        """Return the seconds until the prompt ends, None if it does not; raise Over if it has."""
        if self.is_late:
            raise Over
        return None if self.until is None else max(0.001, self.until - time.monotonic())

    def _patience(self, somebody: bool) -> Any:
        """Return the seconds of a wait, None if it has no end.

        Args:
            somebody: Whether a person is there for sure: a cell also opens a prompt by itself.
        """
        times = [self._left(), None if somebody else self.alone]
        return min((one for one in times if one is not None), default=None)

    def _wait(self, *, again: bool) -> None:
        """Wait for a front end; one thread at a time does so."""
        try:
            if not self._holds:
                left = self._left()
                if not _turn.acquire(timeout=-1 if left is None else left):
                    raise Over
                self._holds = True
            self._accept(again)
        except BaseException:  # a signal of the program
            self._release()
            raise

    def _release(self) -> None:
        if self._holds:
            self._holds = False
            _turn.release()

    def _accept(self, again: bool) -> None:
        self._folder = folder(self._here)
        opened = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        # By the descriptor: the path of a socket may have a hundred characters at most.
        path = f"/proc/self/fd/{opened}/{SOCKET}"
        try:
            for name in (SOCKET, OPEN):
                if os.path.lexists(f"/proc/self/fd/{opened}/{name}"):
                    os.unlink(f"/proc/self/fd/{opened}/{name}")
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(path)
                server.listen(1)
                server.settimeout(self._patience(False))
                self._has_typed = False
                self._waits = True
                self._mark(again=again, over=False)
                try:
                    self._socket, _ = server.accept()
                except socket.timeout:  # noqa: UP041 - another class before Python 3.10
                    raise Over from None
                with open(f"/proc/self/fd/{opened}/{OPEN}", "w", encoding="ascii") as file:
                    file.write(_started())
            self._lines = self._socket.makefile("r", encoding="utf-8")
        finally:
            try:
                os.unlink(path)
            except OSError:
                pass
            os.close(opened)

    def _mark(self, *, again: bool, over: bool) -> None:
        """Write a marker into the log."""
        mark: dict[str, Any]
        mark = {"pid": os.getpid(), "at": self._place[:200], "again": again, "asked": self.asked}
        mark.update(over=over, failed=self.failed, rank=rank())
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.write(2, f"{MARKER}{json.dumps(mark)}\n".encode())

    def _send(self, what: dict[str, Any]) -> None:
        try:
            self._socket.sendall(json.dumps(what).encode() + b"\n")
        except (OSError, AttributeError):  # the next read sees that nobody is there
            pass
