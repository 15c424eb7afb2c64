"""``%load_ext ciao_kernel``: the same cells and commands in any IPython.

There the magics are ordinary ones, which block; the session runs on a thread of its own, so
that Ctrl-C and the stop button reach it as they reach any cell.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class

from ciao_kernel import cells
from ciao_kernel.display.errors import colored
from ciao_kernel.display.notebook import NotebookDisplay
from ciao_kernel.errors import CiaoError, UsageError


def register(shell: InteractiveShell) -> None:
    """Add ``%ciao`` and ``%%ciao`` to a shell."""
    shell.register_magics(CiaoMagics)
    shell.set_custom_exc((CiaoError,), _show)


@magics_class
class CiaoMagics(Magics):  # type: ignore[misc]
    """``%%ciao`` runs a job cell, ``%ciao VERB …`` a command."""

    @line_cell_magic  # type: ignore[misc]
    def ciao(self, line: str, cell: str | None = None) -> None:
        """Run a job (``%%ciao``, directives in the lines below) or a command (``%ciao jobs``)."""
        session = cells.session()
        publisher = _ShellPublisher(self.shell)
        display = NotebookDisplay(publisher, session.settings)
        if cell is None:
            words = cells.command(f"%ciao {line}") or []
            work = cells.run_command(words, session, display, publisher.stream)
        elif line.strip():
            raise UsageError(
                f"%%ciao takes nothing behind it, and {line.strip()!r} stands there.",
                "Put directives on lines of their own below it.",
            )
        else:
            work = session.run(f"%%ciao\n{cell}", display, Path.cwd())
        result = run_blocking(work)
        if result is not None:
            self.shell.user_ns["_job"] = result


class _ShellPublisher:
    """Sends output through IPython's own display (:class:`.display.notebook.Publisher`)."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def stream(self, text: str) -> None:
        print(text, end="", flush=True)

    def display(self, data: dict[str, str], display_id: str, *, update: bool) -> None:
        if hasattr(self._shell, "kernel"):
            transient = {"display_id": display_id}
            self._shell.display_pub.publish(data=data, transient=transient, update=update)
        elif update and "Running" not in data["text/plain"].split("\n", 1)[0]:
            print(data["text/plain"])  # A terminal has no place to update: show the last one.


def run_blocking(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine from a thread whose own loop may be running; Ctrl-C cancels it.

    Raises:
        KeyboardInterrupt: It was interrupted, and has cleaned up.
    """
    outcome: Future[Any] = Future()
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()

    async def main() -> Any:
        task = asyncio.ensure_future(work)
        started.set_result((asyncio.get_running_loop(), task))
        return await task

    def target() -> None:
        try:
            outcome.set_result(asyncio.run(main()))
        except BaseException as error:
            outcome.set_exception(error)

    # The context carries the cell that output belongs to.
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(target,), daemon=True)
    thread.start()
    loop, task = started.result()
    interrupted = False
    while True:
        try:
            result = outcome.result()
        except KeyboardInterrupt:
            interrupted = True
            loop.call_soon_threadsafe(task.cancel)
            continue
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        if interrupted:
            raise KeyboardInterrupt
        return result


def _show(shell: Any, kind: type, value: CiaoError, trace: Any, tb_offset: Any = None) -> list[str]:
    """Show our errors as sentences: the user's lines matter, not this package's."""
    lines = colored(value)
    shell._showtraceback(kind, value, lines)
    return lines
