"""Lets an interrupt stop a plain cell also at a moment that IPython does not expect.

IPython prints an interrupt of a function that it calls before each cell, and runs the cell
nevertheless. And a signal may arrive at an instruction without a line number, for which IPython
shows an error of its own. Both last microseconds of each cell: about one press in three hundred
that comes right behind the run button meets one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
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

    @functools.wraps(shell.showtraceback)
    def showtraceback(*args: Any, **kwargs: Any) -> None:
        with contextlib.suppress(Exception):  # whatever an error is, it is shown
            _drop_entries_without_line(sys.exc_info()[1])
        # Looked up now: others may have changed the class.
        type(shell).showtraceback(shell, *args, **kwargs)

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
            except KeyboardInterrupt:
                if _is_in_task_of_cell():
                    # Beyond its task it would end the event loop, and so the kernel.
                    raise asyncio.CancelledError from None
                raise
            except Exception:
                print(f"Error in callback {function} (for {event}):")
                self.shell.showtraceback()


def _is_in_task_of_cell() -> bool:
    """Return whether this is the task of a plain cell with ``await``, which ipykernel makes."""
    task: asyncio.Task[Any] | None = None
    with contextlib.suppress(RuntimeError):  # a thread of the user has no event loop
        task = asyncio.current_task()
    code = getattr(task.get_coro(), "cr_code", None) if task else None
    return code is InteractiveShell.run_cell_async.__code__


def _drop_entries_without_line(error: BaseException | None) -> None:
    """Drop the entries of tracebacks that have no line, of an error and of those before it.

    They get no line of another instruction: IPython takes some lines from the frame, which cannot
    be changed.
    """
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        kept = _with_lines(error.__traceback__)
        if kept is not error.__traceback__:
            BaseException.with_traceback(error, kept)  # its class may allow no assignment
        error = error.__context__


def _with_lines(traceback: TracebackType | None) -> TracebackType | None:
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
