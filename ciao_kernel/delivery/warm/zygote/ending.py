"""The end of a process that has run a program."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import io
import os
import sys
import threading
from typing import Any


def leave(code: int, names: dict[str, Any]) -> None:
    """End the process as Python does, but without taking the framework apart: that takes seconds.

    Threads end, functions of ``atexit`` run, the program's own objects are destroyed and its files
    are flushed.
    """
    for step in (
        threading._shutdown,  # type: ignore[attr-defined]
        atexit._run_exitfuncs,
        names.clear,
        gc.collect,  # what the zygote has imported is not looked at
        _flush_files,
    ):
        with contextlib.suppress(BaseException):
            step()
    os._exit(code)


def _flush_files() -> None:
    for one in gc.get_objects():
        if isinstance(one, io.IOBase):
            with contextlib.suppress(Exception):
                one.flush()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    ctypes.CDLL(None).fflush(None)
