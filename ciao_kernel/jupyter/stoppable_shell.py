"""Lets an interrupt stop a plain cell also at a moment that IPython does not expect.

IPython prints an interrupt of a function that it calls before each cell, and runs the cell
nevertheless. And a signal may arrive at an instruction without a line number, for which IPython
shows an error of its own. Both last microseconds of each cell: about one press in three hundred
that comes right behind the run button meets one of them.
"""

from __future__ import annotations

import functools
import sys
from types import TracebackType
from typing import Any

from IPython.core.events import EventManager
from IPython.core.interactiveshell import InteractiveShell

_BEFORE_A_CELL = {"pre_execute", "pre_run_cell"}


def make_stoppable(shell: InteractiveShell) -> None:
    """Mend a shell; the kernel calls this once, before it runs a cell.

    The class of the shell stays: libraries know a notebook by the class's name.
    """
    events = _StoppableEvents(shell, ())
    events.callbacks = shell.events.callbacks
    shell.events = events
    usual = shell.showtraceback

    @functools.wraps(usual)
    def showtraceback(*args: Any, **kwargs: Any) -> None:
        error, seen = sys.exc_info()[1], set[int]()
        while error is not None and id(error) not in seen:
            error.__traceback__ = _with_lines(error.__traceback__)
            seen.add(id(error))
            error = error.__context__
        usual(*args, **kwargs)

    shell.showtraceback = showtraceback  # type: ignore[method-assign]


class _StoppableEvents(EventManager):
    """Events of a shell that an interrupt passes through, so that the cell does not run."""

    def trigger(self, event: str, *args: Any, **kwargs: Any) -> None:
        if event not in _BEFORE_A_CELL:
            super().trigger(event, *args, **kwargs)
            return
        for function in self.callbacks[event][:]:
            try:
                function(*args, **kwargs)
            except Exception:
                print(f"Error in callback {function} (for {event}):")
                self.shell.showtraceback()


def _with_lines(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the entries that have no line.

    They get no line of another instruction: IPython takes some lines from the frame, which cannot
    be changed.
    """
    entries = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    kept = [entry for entry in entries if entry.tb_lineno is not None]
    if len(kept) == len(entries) or not kept:
        return entries[0] if entries else None
    first: TracebackType | None = None
    for entry in reversed(kept):
        first = TracebackType(first, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return first
