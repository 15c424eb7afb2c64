"""Keeps a program that fails at the frame of its error (``%onError=debug``).

This file is in replicas as ``ciao_post_mortem`` (:mod:`ciao_kernel.delivery.site_folder`), beside
:mod:`.debugger`. It takes over ``sys.excepthook``: the traceback is printed as usual, then a prompt
of pdb opens, and afterwards the process ends with the exit code that it would have had.

The error of a program has a frame in a file of the program. That of torchrun's agent, which is
raised when one of its processes has failed, has none.

Standard library, from Python 3.8 on.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # not from typing, which each process of the program would import
if TYPE_CHECKING:
    from typing import Any

SECONDS = "ciao_post_mortem.txt"
"""File beside this one with the seconds for which the program is kept."""
_MOST = 200
"""Characters of the error's text in a marker."""

_here = ""
_before: Any = None
_stderr: Any = None


def start(folder: str) -> None:
    """Take over ``sys.excepthook``.

    Args:
        folder: The folder of this file.
    """
    global _here, _before, _stderr
    _here, _before, _stderr = folder, sys.excepthook, sys.stderr
    sys.excepthook = on_error


def on_error(kind: Any, value: Any, trace: Any) -> None:
    """Print an error that ends the program, and open a prompt where it was raised."""
    debugger = sys.modules.get("ciao_debugger")
    place = _place(kind, trace) if debugger else None
    if debugger is None or place is None:
        _before(kind, value, trace)
        return
    reason = debugger.why_passed_over()
    if reason:
        sys.stderr.write(f"%onError=debug is passed over: {reason}.\n")
        _before(kind, value, trace)
        return
    # torch calls this with a buffer, whose text it prints afterwards: too late for the person.
    buffer, is_held = sys.stderr, hasattr(sys.stderr, "getvalue")
    if is_held:
        sys.stderr = _stderr
    try:
        _before(kind, value, trace)
        ended = debugger.keep(_text(kind, value), trace, debugger.where(*place), _seconds())
    except BaseException:  # an interrupt, or no socket can be made: the program ends as it would
        ended = True
    finally:
        sys.stderr = buffer
    if not ended:
        sys.stderr.write("The time of %onError=debug is over.\n")
    elif is_held:  # else torch prints the begin of a line
        sys.stderr.write("The prompt of %onError=debug is over.\n")


def _place(kind: Any, trace: Any) -> Any:
    """Return the innermost frame of the program and its line; None if it has no part in it."""
    bdb = sys.modules.get("bdb")
    if not issubclass(kind, Exception) or (bdb and issubclass(kind, bdb.BdbQuit)):
        return None  # an interrupt, or the person has typed q
    inside, found = os.path.dirname(_here) + os.sep, None
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if path.startswith(inside) and not path.startswith(_here):
            found = (trace.tb_frame, trace.tb_lineno)
        trace = trace.tb_next
    return found


def _text(kind: Any, value: Any) -> str:
    try:
        text = str(value).strip().split("\n")[0]
    except Exception:
        text = ""
    return f"{kind.__name__}: {text}"[:_MOST] if text else str(kind.__name__)


def _seconds() -> float:
    with open(os.path.join(_here, SECONDS), encoding="utf-8") as file:
        return float(file.read())
