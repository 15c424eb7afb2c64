"""Lets a person work with pdb in a process of a replica, from a cell or from a terminal.

This file is in replicas as ``ciao_debugger`` (:mod:`ciao_kernel.delivery.site_folder`). It takes
over ``breakpoint()``, and does nothing else until the program calls it. Then the process writes a
marker into its log (:mod:`.breakpoints`) and waits at a socket in a folder of its own (mode 0700),
until :mod:`.debug_bridge` connects a front end. No port is opened. :mod:`.post_mortem` opens a
prompt at an error that ends the program.

One JSON object a line goes either way: ``{"out": text, "prompt": text}``, and ``{"line": text}``
as the answer to a prompt. A front end that goes away does not end the program, as the end of input
would in plain pdb: the process waits for the next one. Two waits have an end: that of a program
that has failed, and that of one that a person has stopped from outside (:func:`halt`) and left.

Standard library, from Python 3.8 on; what takes time is imported at the first breakpoint.
"""

from __future__ import annotations

import os
import sys
from typing import Any

MARKER = "\x1eciao:debug "
FOLDER = "ciao-debug-"
"""Begin of the name of a process's folder; its number follows."""
SOCKET = "socket"
OPEN = "open"
"""File in the folder while a front end is there, with the start time of the process: a process
that was killed at its prompt leaves the file, and a later one may have the same number."""
SENTENCE = "ciao_breakpoint.txt"
"""File beside this one with the reason why breakpoint() is passed over; empty if it is not."""
WAIT = "ciao_debug_wait.txt"
"""File beside this one with the seconds for which a stopped program waits while nobody is there."""
_WAIT = 600.0
"""The same without that file."""
_MOST = 200_000
"""Characters that are sent at once."""
_RANKS = (
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),  # of torchrun
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
"""Variables with the number of a process in its replica, and with their count."""

_here = ""
_passed: set[tuple[str, int]] = set()
_debuggers: dict[int, Any] = {}
_turn: Any = None
_detached = False


def start(folder: str) -> None:
    """Take over breakpoint().

    Args:
        folder: The folder of this file.
    """
    global _here
    _here = folder
    sys.breakpointhook = on_breakpoint
    os.register_at_fork(after_in_child=_forked)


def on_breakpoint(*args: Any, **options: Any) -> Any:
    """Open a prompt at the caller's line, unless the program has chosen another debugger."""
    chosen = os.environ.get("PYTHONBREAKPOINT", "")
    if _detached or chosen == "0":
        return None
    if chosen:
        return sys.__breakpointhook__(*args, **options)
    frame = sys._getframe(1)
    if reason := why_passed_over():
        place = (frame.f_code.co_filename, frame.f_lineno)
        if place not in _passed:  # it may be in a loop
            _passed.add(place)
            text = f"breakpoint() at {where(frame)} is passed over: {reason}.\n"
            sys.stdout.flush()
            sys.stderr.write(text)
            sys.stderr.flush()
        return None
    debugger = _debugger()
    debugger.wire.alone = None
    debugger.set_trace(frame)
    return None


def why_passed_over() -> str:
    """Return why no prompt is opened, to end a sentence; "" if one is."""
    return _text(SENTENCE) or ("" if _folder() else "there is no folder for its socket")


def keep(error: str, trace: Any, place: str, seconds: float) -> bool:
    """Open a prompt at the frame of an error; the program ends afterwards.

    Args:
        error: Its name and its text.
        trace: Its traceback.
        place: Where the program stands, as :func:`where` returns it.
        seconds: After this time the prompt ends, whatever is typed.

    Returns:
        Whether a person has ended it, and not the time.
    """
    import time

    sys.settrace(None)
    debugger = _debugger()
    wire = debugger.wire
    wire.failed, wire.until, wire.alone = error, time.monotonic() + seconds, None
    debugger.place = place
    debugger.reset()
    try:
        debugger.interaction(None, trace)
    finally:
        sys.settrace(None)
        ended = not wire.is_late
        wire.close("ends" if ended else "ends, because its time is over")
    return ended


def halt(frame: Any) -> str:
    """Stop at the next line of the program's innermost frame; return ``stops``, or why not.

    Args:
        frame: Where a signal has interrupted the main thread.
    """
    if any(one.wire.is_open for one in _debuggers.values()):
        return "open"
    inside, own = os.path.dirname(_here) + os.sep, frame
    while own is not None:
        path = own.f_code.co_filename
        if path.startswith(inside) and not path.startswith(_here):
            break
        own = own.f_back
    if own is None:
        return "elsewhere"
    debugger, wait = _debugger(), _seconds()

    def trap(traced: Any, event: str, arg: Any) -> Any:
        if event != "line":
            return trap
        sys.settrace(None)
        debugger.wire.asked, debugger.wire.alone = True, wait
        debugger.set_trace(traced)
        return debugger.trace_dispatch(traced, event, arg)

    own.f_trace = trap
    sys.settrace(lambda *_: None)  # no new frame is traced, the handler's neither
    return "stops"


def where(frame: Any, line: int = 0) -> str:
    """Return the place of a frame: the line alone if it is in the program itself.

    Args:
        frame: The frame.
        line: Its line, if the frame has left it since.
    """
    path = frame.f_code.co_filename
    name = frame.f_code.co_name
    inside = "" if name.startswith("<") else f" in {name}"
    own = path == getattr(sys.modules.get("__main__"), "__file__", None)
    return f"{'' if own else os.path.basename(path) + ', '}line {line or frame.f_lineno}{inside}"


def rank() -> str:
    """Return the number of this process among those of its replica; "" if it is alone."""
    for name, count in _RANKS:
        found = os.environ.get(name, "")
        if found.isdigit() and os.environ.get(count, "1") != "1":
            return found
    return ""


def _text(name: str) -> str:
    try:
        with open(os.path.join(_here, name), encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def _seconds() -> float:
    try:
        return float(_text(WAIT))
    except ValueError:
        return _WAIT


def _forked() -> None:
    """Leave the prompts to the parent, whose other threads are not in this process.

    The debugger of this thread stays: its trace function and its breakpoints are here too.
    """
    global _turn
    if _turn is None:
        return
    import threading

    _turn = threading.Lock()
    for one in _debuggers.values():
        one.wire.forked()
    for ident in set(_debuggers) - {threading.get_ident()}:
        del _debuggers[ident]


def _folder() -> str:
    """Return the folder for the socket; it is made if it is missing. "" if there is none."""
    for base in (_here, "/dev/shm", "/tmp"):
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


def _debugger() -> Any:
    """Return the debugger of this thread.

    It is always the same one: a second one would step into the first one.
    """
    global _turn
    import threading

    if _turn is None:
        _turn = threading.Lock()
    ident = threading.get_ident()
    if ident not in _debuggers:
        _debuggers[ident] = _new()
    return _debuggers[ident]


class _Over(BaseException):
    """The time of a prompt is over. No Exception: pdb shows those of the lines that it runs."""


class _Wire:
    """Input and output of pdb: a socket at which one front end may be."""

    encoding = "utf-8"
    asked = False
    """Whether somebody has asked for the stop: that front end opens the prompt, and no other."""
    failed = ""
    """The error that ends the program afterwards."""
    until: Any = None
    """When the prompt ends, whoever is there (time.monotonic()); None: never."""
    alone: Any = None
    """Seconds for which the program waits while nobody is there; None: for ever."""
    _has_typed = False

    def __init__(self) -> None:
        self._text = self._place = self._folder = ""
        self._socket: Any = None
        self._lines: Any = None
        self._holds = self._waits = False

    @property
    def is_late(self) -> bool:
        """Whether the time of the prompt is over."""
        import time

        return self.until is not None and time.monotonic() >= self.until

    @property
    def is_open(self) -> bool:
        """Whether a front end is there."""
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
        import json
        import socket

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
                raise _Over from None
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
        """Return the seconds until the prompt ends, None if it does not; raise _Over if it has."""
        import time

        if self.is_late:
            raise _Over
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
                    raise _Over
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
        import socket

        self._folder = _folder()
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
                    raise _Over from None
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
        import json

        mark: dict[str, Any]
        mark = {"pid": os.getpid(), "at": self._place[:200], "again": again, "asked": self.asked}
        mark.update(over=over, failed=self.failed, rank=rank())
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.write(2, f"{MARKER}{json.dumps(mark)}\n".encode())

    def _send(self, what: dict[str, Any]) -> None:
        import json

        try:
            self._socket.sendall(json.dumps(what).encode() + b"\n")
        except (OSError, AttributeError):  # the next read sees that nobody is there
            pass


def _new() -> Any:
    import pdb

    class Debugger(pdb.Pdb):
        """pdb at a wire, which ends when the program goes on."""

        def __init__(self) -> None:
            wire: Any = _Wire()
            self.wire, self.place = wire, ""
            skip = ["bdb", "pdb", "cmd", __name__]
            super().__init__(stdin=wire, stdout=wire, nosigint=True, skip=skip)

        def interaction(self, frame: Any, *more: Any, **options: Any) -> Any:
            if frame is not None:
                self.place = where(frame)
            try:
                self.wire.open(self.place)
                return super().interaction(frame, *more, **options)
            except _Over:
                if self.wire.failed:
                    self.wire.until = 0.0  # a wait may end a moment before
                else:
                    self._leave()

        def _leave(self) -> None:
            """Let the program go on, because nobody is there."""
            self.forget()
            self.clear_all_breaks()
            self.set_continue()
            text = (
                f"Nobody was at the prompt of {self.place} for {self.wire.alone:g} s: it goes on."
            )
            sys.stderr.write(f"{text}\n")
            self.wire.close("goes on")

        def do_continue(self, arg: str) -> Any:
            result = super().do_continue(arg)
            self.wire.close("ends" if self.wire.failed else "goes on")
            return result

        do_c = do_cont = do_continue

        def do_quit(self, arg: str) -> Any:
            result = super().do_quit(arg)
            self.wire.close("ends" if self.wire.failed else "ends, as q wants")
            return result

        do_q = do_exit = do_quit

        def do_detach(self, arg: str) -> bool:
            """Continue, and stop at no further breakpoint."""
            global _detached
            _detached = True
            self.clear_all_breaks()
            self.set_continue()
            end = "goes on, and passes later breakpoints over"
            self.wire.close("ends" if self.wire.failed else end)
            return True

        def do_run(self, arg: str) -> None:
            """Refuse: a job is started again from outside."""
            self.error("run is not available here: rerun starts the job again")

        do_restart = do_run

        def do_interact(self, arg: str) -> None:
            """Refuse: the console would read another input."""
            self.error("interact is not available here: write ! before a line of Python")

    return Debugger()
