"""``%load_ext ciao_kernel``: the same cells and commands in any IPython.

There the magics are ordinary, blocking magics. The session runs on its own thread, so that
Ctrl-C and the stop button work as in any other cell.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import inspect
import logging
import sys
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from IPython.core.completer import (
    CompletionContext,
    SimpleCompletion,
    SimpleMatcherResult,
    context_matcher,
    cursor_to_position,
)
from IPython.core.interactiveshell import InteractiveShell

from ciao_kernel import log
from ciao_kernel.background import thread_loop
from ciao_kernel.errors import CiaoError, UsageError
from ciao_kernel.redaction import conceal
from ciao_kernel.visible_text import short

if TYPE_CHECKING:
    from ciao_kernel.magics.scanned_cell import ScannedCell
    from ciao_kernel.plugins import Display
    from ciao_kernel.session.session import Session

_log = logging.getLogger(__name__)

_CLOSE_TIMEOUT = 0.5
"""Seconds that this may take when the process ends."""
_MATCHER = "ciao_kernel.directives"


def register(shell: InteractiveShell) -> None:
    """Add ``%ciao`` and ``%%ciao`` to a shell. Other modules are imported at the first use."""
    log.start()

    def ciao(line: str, cell: str | None = None) -> None:
        """Run a job (``%%ciao``, directives in the lines below) or a command (``%ciao jobs``)."""
        try:
            run_magic(shell, line, cell)
        except CiaoError as error:
            from ciao_kernel.jupyter import cells

            cells.hide_frames(error)
            raise

    # Not a docstring, whose verbs would be imported at each start.
    ciao.getdoc = _help  # type: ignore[attr-defined]
    # IPython wraps this method in a way that mypy does not understand.
    shell.register_magic_function(ciao, "line_cell", "ciao")  # type: ignore[arg-type]
    kernel = _kernel(shell)
    if kernel is not None and kernel.implementation == "ciao":
        return  # the ciao kernel completes directives and handles its shutdown itself
    _complete_directives(shell)
    if kernel is not None:
        _watch_shutdown(kernel)
    else:
        atexit.unregister(_close)  # the extension may be loaded again
        atexit.register(_close)


def _help() -> str:
    """Return what IPython shows for ``%ciao?``."""
    from ciao_kernel.commands import help_text

    return help_text()


def _kernel(shell: InteractiveShell) -> Any:
    """Return the kernel of a shell, or None in a terminal."""
    return getattr(shell, "kernel", None)


def _complete_directives(shell: InteractiveShell) -> None:
    """Offer directives on Tab in ``%%ciao`` cells, and arguments of ``%ciao`` commands.

    May be called repeatedly.
    """

    def directives(context: CompletionContext) -> SimpleMatcherResult:
        code, found = context.full_text, None
        if code.startswith(("%%ciao", "%ciao")):
            from ciao_kernel.jupyter import typing_help

            cursor = cursor_to_position(code, context.cursor_line, context.cursor_position)
            found = typing_help.complete(code, cursor, shell.user_ns)
        if found is None:
            return SimpleMatcherResult(completions=[], suppress=False)
        # IPython replaces text up to the cursor and keeps the text after it. If there is nothing
        # to offer, offer the typed text: otherwise IPython would add its own completions.
        typed, behind = code[found.start : cursor], code[cursor : found.end]
        offered = [match.removesuffix(behind) for match in found.matches] or [typed]
        return SimpleMatcherResult(
            completions=[SimpleCompletion(match, type="directive") for match in offered],
            matched_fragment=typed,
            suppress=True,
        )

    matchers = shell.Completer.custom_matchers
    matchers[:] = [one for one in matchers if getattr(one, "matcher_identifier", "") != _MATCHER]
    matchers.append(context_matcher(identifier=_MATCHER)(directives))


def _watch_shutdown(kernel: Any) -> None:
    """Report another kernel's shutdown to waiting jobs: it begins with an interrupt like a stop."""
    shut_down = kernel.do_shutdown

    async def do_shutdown(restart: bool) -> Any:
        from ciao_kernel.jupyter import shutdown

        shutdown.lifetime.end()
        await shutdown.lifetime.wait_until_idle(shutdown.MAX_SHUTDOWN_DELAY)
        await asyncio.to_thread(_close)
        reply = shut_down(restart)
        return await reply if inspect.isawaitable(reply) else reply

    kernel.do_shutdown = do_shutdown


def _close() -> None:
    """End idle warm replicas, TensorBoard and connections: the process ends.

    The loop of the cells does it, which they belong to.
    """
    cells = sys.modules.get("ciao_kernel.jupyter.cells")
    if cells is None or not thread_loop.cache_info().currsize:
        return  # neither a cell nor a command was run
    closing = asyncio.run_coroutine_threadsafe(cells.close(), thread_loop())
    with log.ignored(_log, "closing the connections"):
        closing.result(_CLOSE_TIMEOUT)


def run_magic(shell: InteractiveShell, line: str, cell: str | None) -> None:
    """Run a ``%ciao`` command or a ``%%ciao`` cell to its end."""
    from ciao_kernel.jupyter import cells

    if cell is not None:
        if line.strip():
            from ciao_kernel.magics import ipython_lines

            raise UsageError(
                f"%%ciao takes no arguments, but {short(conceal(line.strip()))!r} follows it.",
                ipython_lines.BEHIND_CIAO,
            )
        from ciao_kernel.magics import scanned_cell

        run_job(shell, scanned_cell.scan(f"%%ciao\n{cell}", cells.registry().table))
        return
    words = cells.split(line)
    session = cells.session(words)
    display = _display(shell, session)
    _run_to_its_end(shell, session, cells.run_command(words, session, display, _write))


def run_job(shell: InteractiveShell, cell: ScannedCell) -> None:
    """Run a job cell to its end."""
    from ciao_kernel.jupyter import cells

    session = cells.session()
    work = cells.run_job(cell, session, _display(shell, session), shell.user_ns)
    _run_to_its_end(shell, session, work)


def _run_to_its_end(
    shell: InteractiveShell, session: Session, work: Coroutine[Any, Any, Any]
) -> None:
    from ciao_kernel.jupyter import cells

    try:
        run_blocking(work)
    finally:
        shell.user_ns["_job"] = cells.last_job(session)


def _display(shell: InteractiveShell, session: Session) -> Display:
    if _kernel(shell) is None:
        from ciao_kernel.display.terminal import TerminalDisplay

        return TerminalDisplay(session.settings, sys.stdout)
    from ciao_kernel.display.notebook import NotebookDisplay
    from ciao_kernel.jupyter.file_links import kernel_file_links

    return NotebookDisplay(_ShellPublisher(shell), session.settings, kernel_file_links())


def _write(text: str) -> None:
    print(text, end="", flush=True)


class _ShellPublisher:
    """Sends output through IPython's own display (:class:`.display.publisher.Publisher`)."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def stream(self, text: str) -> None:
        _write(text)

    def display(
        self,
        data: dict[str, str],
        display_id: str,
        *,
        update: bool,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self._shell.display_pub.publish(
            data=data,
            metadata=dict(metadata or {}),
            transient={"display_id": display_id},
            update=update,
        )


def run_blocking(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine from a thread whose own event loop may be running; Ctrl-C cancels it.

    The first Ctrl-C waits for the coroutine's clean-up; after a second Ctrl-C the clean-up
    continues in the background.

    Raises:
        KeyboardInterrupt: The coroutine was interrupted.
    """
    from ciao_kernel.jupyter import shutdown

    loop = thread_loop()
    done: Future[asyncio.Task[Any]] = Future()
    tasks: list[asyncio.Task[Any]] = []

    def start() -> None:
        tasks.append(loop.create_task(work))
        tasks[0].add_done_callback(done.set_result)

    def cancel() -> None:
        if tasks:
            tasks[0].cancel()
        else:
            work.close()
            done.set_exception(KeyboardInterrupt())

    # An interrupt may begin a shutdown, which must wait for the clean-up.
    with shutdown.lifetime.delay_shutdown():
        try:
            # The context identifies the cell that the output belongs to.
            loop.call_soon_threadsafe(start, context=contextvars.copy_context())
            task = done.result()
        except KeyboardInterrupt:
            try:
                loop.call_soon_threadsafe(cancel)
            except KeyboardInterrupt:  # a second one, before the first has had its effect
                loop.call_soon_threadsafe(cancel)
            task = done.result()
            if task.cancelled() or task.exception() is None:
                raise
    if task.cancelled():
        raise KeyboardInterrupt
    return task.result()
