"""The file and the signals by which a process with a :mod:`.stack_handler` is asked.

A part of programs that run in pods (:mod:`.program_texts`).
"""

from __future__ import annotations

import os
import signal

from ciao_kernel.delivery.inspection.process_state import on_processor, signals, stat

_NAME = "ciao-inside-"
DUMP, ASK, WAKE = (int(signal.SIGRTMIN) + number for number in (5, 6, 7))
_RAN = 1_000_000
"""Nanoseconds on a processor within which a process that runs Python has answered."""


def find(pid: int) -> str:
    """Return the path of the file of a process's handler; "" if it has none."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return ""
    return next((f"{folder}/{one}" for one in names if is_file(f"{folder}/{one}", pid)), "")


def is_file(path: str, pid: int) -> bool:
    """Return whether a path leads to the file of a process's handler."""
    try:
        return os.readlink(path) == f"/memfd:{_NAME}{pid} (deleted)"
    except OSError:
        return False


def open_file(path: str, pid: int) -> int | None:
    """Open the file of a process's handler; None if it is gone."""
    try:
        opened = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    if is_file(f"/proc/self/fd/{opened}", pid):
        return opened
    os.close(opened)  # the program has just opened another file under this number
    return None


def is_in_c(pid: int, ran: int) -> bool:
    """Return whether the main thread of a process that has not answered ASK is outside Python.

    On a busy machine it may also not have run since, and then DUMP would meet it anywhere.

    Args:
        pid: The process.
        ran: What :func:`on_processor` returned before it was asked.
    """
    if signals(pid, ASK)[1] or signals(pid, WAKE)[1]:
        return False
    return stat(pid)[0] in "SD" or on_processor(pid) - ran >= _RAN
