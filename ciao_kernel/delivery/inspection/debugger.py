"""Lets a person work with pdb in a process of a replica, from a cell or from a terminal.

This file is in replicas as ``ciao_debugger`` (:mod:`ciao_kernel.delivery.site_folder`). It takes
over ``breakpoint()``, and does nothing else until the program calls it. Then a :mod:`.debug_prompt`
opens, which talks over a :mod:`.debug_wire`; both are in replicas beside this file.
:mod:`.post_mortem` opens a prompt at an error that ends the program, and :func:`halt` one in a
program that runs.

Standard library, from Python 3.8 on; what takes time is imported at the first breakpoint.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # not from typing, which each process of the program would import
if TYPE_CHECKING:
    from typing import Any

SENTENCE = "ciao_breakpoint.txt"
"""File beside this one with the reason why breakpoint() is passed over; empty if it is not."""
WAIT = "ciao_debug_wait.txt"
"""File beside this one with the seconds for which a stopped program waits while nobody is there."""
_WAIT = 600.0
"""The same without that file."""
_RANK = "ciao_rank"
"""Name of ciao's module that calls the program in some frameworks (frameworks/in_process.py)."""
_here = ""
_passed: set[tuple[str, int]] = set()
_debuggers: dict[int, Any] = {}
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
    reason = _text(SENTENCE)
    try:
        if reason or _part("ciao_debug_wire").folder(_here):
            return reason
    except Exception:  # no file can be opened; an error in sys.excepthook would hide the program's
        return "the debugger cannot be loaded"
    return "there is no folder for its socket"


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
    if not _debuggers:
        return
    import threading

    _part("ciao_debug_wire").forked()
    for one in _debuggers.values():
        one.wire.forked()
    for ident in set(_debuggers) - {threading.get_ident()}:
        del _debuggers[ident]


def _debugger() -> Any:
    """Return the debugger of this thread.

    It is always the same one: a second one would step into the first one.
    """
    import threading

    ident = threading.get_ident()
    if ident not in _debuggers:
        wire = _part("ciao_debug_wire")
        prompt = _part("ciao_debug_prompt")
        skip = [__name__, wire.__name__, prompt.__name__, _RANK]
        _debuggers[ident] = prompt.Debugger(wire.Wire(_here), where, _detach, skip)
    return _debuggers[ident]


def _detach() -> None:
    """Pass later breakpoints over."""
    global _detached
    _detached = True


def _part(name: str) -> Any:
    """Return another module of this folder, which is not in the path of the program."""
    if name not in sys.modules:
        from importlib import util

        spec: Any = util.spec_from_file_location(name, os.path.join(_here, f"{name}.py"))
        part = util.module_from_spec(spec)
        spec.loader.exec_module(part)
        sys.modules.setdefault(name, part)  # another thread may have been faster
    return sys.modules[name]
