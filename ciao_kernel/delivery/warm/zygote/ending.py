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
import types
from typing import Any

_OF_PEERS = (
    ("jax._src.api", "clean_up"),
    ("jax._src.dispatch", "wait_for_tokens"),
    ("jax._src.distributed", "shutdown"),
)
"""Functions that JAX registers with ``atexit``, and that wait for the other processes of a job."""
_KEPT = (type, types.FunctionType, types.ModuleType, str, int, float, type(None))


def code_of(error: BaseException) -> int:
    """Show the error that has ended the program; return the exit code, both as Python does.

    Args:
        error: The error, with the traceback to show.
    """
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return int(error.code or 0) & 0xFF
        print(error.code, file=sys.stderr, flush=True)
        return 1
    sys.last_type = type(error)  # before the hook, as Python sets it
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as end:
        return code_of(end)
    except BaseException as failed:  # the program's own hook has an error
        failed.__context__ = None
        print("Error in sys.excepthook:", file=sys.stderr)
        trace = failed.__traceback__.tb_next if failed.__traceback__ else None
        sys.__excepthook__(type(failed), failed.with_traceback(trace), trace)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, error.__traceback__)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def is_connected() -> bool:
    """Return whether JAX has connected this process to others."""
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    return getattr(state, "client", None) is not None


def leave(code: int, names: dict[str, Any]) -> None:
    """End the process as Python does, but without taking the framework apart: that takes seconds.

    Threads end, functions of ``atexit`` run, the program's own objects are destroyed, unless a
    daemon thread still runs, and its files are flushed. After a failure nothing waits for the
    other processes of the job: they wait for this one.

    Args:
        code: The exit code.
        names: The variables of the program.
    """
    if code and is_connected():  # else JAX only waits for its own work, such as jax.debug.print
        for module, name in _OF_PEERS:
            if (function := getattr(sys.modules.get(module), name, None)) is not None:
                atexit.unregister(function)
    for step in (
        threading._shutdown,  # type: ignore[attr-defined]
        atexit._run_exitfuncs,
        lambda: _destroy_objects(names),
        _flush_files,
    ):
        with contextlib.suppress(BaseException):
            step()
    os._exit(code)


def _destroy_objects(names: dict[str, Any]) -> None:
    """Destroy the program's objects, the last one first; its functions, classes and modules stay.

    A ``__del__`` finds these and older objects, as in Python. Without them, a NameError would
    follow the error that has ended the program.
    """
    if len(sys._current_frames()) > 1:
        return  # Python stops daemon threads; here they would run on, and miss the objects
    for name in reversed(list(names)):
        if not name.startswith("__") and not issubclass(type(names[name]), _KEPT):
            del names[name]
    gc.collect()  # what the zygote has imported is not looked at


def _flush_files() -> None:
    for one in gc.get_objects():
        if isinstance(one, io.IOBase):
            with contextlib.suppress(Exception):
                one.flush()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    ctypes.CDLL(None).fflush(None)
