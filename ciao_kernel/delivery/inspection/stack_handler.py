"""Answers where a Python process of a replica stands.

This file is in replicas as ``ciao_stack_handler`` (:mod:`ciao_kernel.delivery.site_folder`).
Nothing runs, and there is no thread, until :mod:`.stack_reader` asks by a signal. Real-time
signals, because programs use SIGUSR1 and SIGUSR2:

- ASK: a handler in Python answers between two bytecodes, with the stacks of all threads.
- WAKE: the same handler; it also ends the wait for a lock. The other signals let system calls go
  on, because not every library in C expects that one is interrupted.
- DUMP: faulthandler writes the stack of the thread that gets the signal, also while it is in a
  library in C. Of this one thread only: ``all_threads=True`` reads the stacks of threads that run
  meanwhile, and a busy process ends with a segmentation fault. So may a process that runs Python at
  this moment: a stack is incomplete while a call begins. It is sent only to one that has not
  answered ASK for a while.

Questions and answers are in a file without a name, in memory (memfd_create(2)): it works with a
read-only file system, leaves nothing behind, and only this user can open it. Standard library, from
Python 3.8 on; ``_signal`` because ``signal`` takes milliseconds to import.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # not from typing, which each process of the program would import
if TYPE_CHECKING:
    from typing import Any

NAME = "ciao-inside-"
"""Name of the file; the number of the process follows, because a fork inherits the file."""
DUMP_NUMBER, ASK_NUMBER, WAKE_NUMBER = 5, 6, 7
"""Numbers of the signals behind SIGRTMIN."""
QUESTION = b"ask "
"""Beginning of the file while somebody waits for an answer; a token follows."""
MAIN = b"main "
"""The same while somebody samples the main thread (:mod:`.sampler`)."""
HEAD, END = "Stack (most recent call first):\n", "answered\n"
"""First line, as faulthandler writes it too, and last line of the answer to that."""
HALT = b"halt "
"""The same while somebody waits until the process stops for its debugger (:mod:`.debugger`)."""
HALTED = "halt:"
"""Begin of the answer to that."""
_FRAMES, _THREADS = 100, 64
_RANK = "ciao_rank"
"""Name of ciao's module that calls the program in some frameworks (frameworks/in_process.py)."""

_file = (-1, -1, -1)
"""The descriptor of the file, and its device and inode: a program may close descriptors."""
_CLOSE_ON_EXEC = 1  # MFD_CLOEXEC, which os.memfd_create sets too
_memfd_create: Any = None
"""The function that makes the file; it is looked up once, and not again after each fork."""


def start(_: str = "") -> None:
    """Install the handlers; a process that cannot have them runs without."""
    try:
        _install()
        os.register_at_fork(after_in_child=_forked)
    except Exception:  # a program must not notice anything
        pass


def _forked() -> None:
    try:
        before = _own_descriptor()
        _install()
        if before is not None:
            os.close(before)
    except Exception:
        pass


def _install() -> None:
    global _file, _memfd_create
    import _signal  # type: ignore[import-not-found]
    import faulthandler
    import fcntl

    if _memfd_create is None:
        _memfd_create = getattr(os, "memfd_create", None) or _of_c_library()
    descriptor = _memfd_create(f"{NAME}{os.getpid()}")
    fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_RDWR | os.O_APPEND)
    found = os.fstat(descriptor)
    _file = (descriptor, found.st_dev, found.st_ino)
    first = int(_signal.SIGRTMIN)
    faulthandler.register(first + DUMP_NUMBER, file=descriptor, all_threads=False)
    for number in (ASK_NUMBER, WAKE_NUMBER):
        if _signal.getsignal(first + number) == _signal.SIG_DFL:
            _signal.signal(first + number, _answer)
            if number == ASK_NUMBER:
                _signal.siginterrupt(first + number, False)


def _own_descriptor() -> int | None:
    """Return the descriptor of the file; None if the program closed it, and may have reused it."""
    descriptor, device, inode = _file
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return descriptor if (found.st_dev, found.st_ino) == (device, inode) else None


def _of_c_library() -> Any:
    """Return memfd_create of the C library, for a Python that was built for an older one."""
    import ctypes

    function = ctypes.CDLL(None, use_errno=True).memfd_create

    def create(name: str) -> int:
        descriptor: int = function(name.encode(), _CLOSE_ON_EXEC)
        if descriptor < 0:
            raise OSError(ctypes.get_errno(), "memfd_create")
        return descriptor

    return create


def _answer(_: int, frame: Any) -> None:
    try:
        descriptor = _own_descriptor()
        if descriptor is None:
            return
        question = os.pread(descriptor, 64, 0)
        if question.startswith(QUESTION):  # else nobody waits any more
            os.write(descriptor, (repr(_stacks(frame)) + "\n").encode("utf-8", "backslashreplace"))
        elif question.startswith(MAIN):
            os.write(descriptor, _main(frame).encode("utf-8", "backslashreplace"))
        elif question.startswith(HALT):
            debugger = sys.modules.get("ciao_debugger")
            os.write(
                descriptor, f"{HALTED}{debugger.halt(frame) if debugger else 'none'}\n".encode()
            )
    except Exception:
        pass


def _main(frame: Any) -> str:
    """Return the stack of the main thread, in the words of faulthandler."""
    lines = [HEAD]
    while frame is not None and len(lines) <= _FRAMES:
        code = frame.f_code
        place = f"line {frame.f_lineno or 0} in {code.co_name}"
        lines.append(f'  File "{code.co_filename}", {place}\n')
        frame = frame.f_back
    return "".join([*lines, END])


def _stacks(frame: Any) -> list[Any]:
    """Return name, whether it is the main one, and the frames of each thread, inner ones first.

    The frames of ciao's call of the program, which are the outermost ones, are left out.
    """
    import _thread

    # Not threading.enumerate(): the lock that it takes may be held where this handler interrupts.
    active = getattr(sys.modules.get("threading"), "_active", {})
    names = {ident: str(thread.name) for ident, thread in list(active.items())}
    main = _thread.get_ident()
    found = []
    for ident, current in list(sys._current_frames().items())[:_THREADS]:
        one = frame if ident == main else current
        frames: list[Any] = []
        while one is not None and len(frames) < _FRAMES:
            if frames and one.f_globals.get("__name__") == _RANK:
                break
            code = one.f_code
            frames.append([code.co_filename, one.f_lineno or 0, code.co_name])
            one = one.f_back
        found.append([names.get(ident, ""), ident == main, frames])
    return found
