"""``%load_ext ciao_kernel``: the same cells and commands in any IPython.

There the magics are ordinary ones, which block; the session runs on a thread of its own, so
that Ctrl-C and the stop button reach it as they reach any cell.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import sys
import threading
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

from ciao_kernel.errors import CiaoError, UsageError

if TYPE_CHECKING:
    from ciao_kernel.plugins import Display
    from ciao_kernel.session.session import Session

_MATCHER = "ciao_kernel.directives"


def register(shell: InteractiveShell) -> None:
    """Add ``%ciao`` and ``%%ciao`` to a shell. The rest is imported when one is used."""

    def ciao(line: str, cell: str | None = None) -> None:
        """Run a job (``%%ciao``, directives in the lines below) or a command (``%ciao jobs``)."""
        try:
            run_magic(shell, line, cell)
        except CiaoError as error:
            from ciao_kernel.display.errors import colored, uncolored

            lines = colored if _kernel(shell) or sys.stdout.isatty() else uncolored
            # IPython asks an error how it looks: the user's lines matter, not this package's.
            error.__dict__["_render_traceback_"] = functools.partial(lines, error)
            raise

    # IPython wraps this method in a way that leads mypy astray.
    shell.register_magic_function(ciao, "line_cell", "ciao")  # type: ignore[arg-type]
    kernel = _kernel(shell)
    if kernel is not None and kernel.implementation == "ciao":
        return  # it completes directives, and sees to jobs at its end, by itself
    _complete_directives(shell)
    if kernel is not None:
        _watch_shutdown(kernel)


def _kernel(shell: InteractiveShell) -> Any:
    """The kernel that a shell is in; None in a terminal."""
    return getattr(shell, "kernel", None)


def _complete_directives(shell: InteractiveShell) -> None:
    """Let Tab offer directives and their values in ``%%ciao`` cells, once however often asked."""

    def directives(context: CompletionContext) -> SimpleMatcherResult:
        code, found = context.full_text, None
        if code.startswith("%%ciao"):
            from ciao_kernel.jupyter import cells

            cursor = cursor_to_position(code, context.cursor_line, context.cursor_position)
            found = cells.complete(code, cursor, shell.user_ns)
        if found is None:
            return SimpleMatcherResult(completions=[], suppress=False)
        # IPython replaces up to the cursor: what stands behind it stays. Where there is nothing
        # to offer, what is typed is offered: else IPython would offer its own.
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
    """Tell waiting jobs of another kernel's shutdown, which begins as the stop button does."""
    theirs = kernel.do_shutdown

    async def do_shutdown(restart: bool) -> Any:
        from ciao_kernel.jupyter import shutdown

        shutdown.lifetime.end()
        await shutdown.lifetime.settled(shutdown.LAST_WORK)
        reply = theirs(restart)
        return await reply if inspect.isawaitable(reply) else reply

    kernel.do_shutdown = do_shutdown


def run_magic(shell: InteractiveShell, line: str, cell: str | None) -> None:
    """Run what stands behind ``%ciao``, or in a ``%%ciao`` cell, to its end."""
    from ciao_kernel.jupyter import cells

    words = (cells.command(f"%ciao {line}") or []) if cell is None else None
    session = cells.session(words)
    display = _display(shell, session)
    work: Coroutine[Any, Any, Any]
    if words is not None:
        work = cells.run_command(words, session, display, _write)
    elif line.strip():
        raise UsageError(
            f"%%ciao takes nothing behind it, and {line.strip()!r} stands there.",
            "Put directives on lines of their own below it.",
        )
    else:
        work = cells.run_job(f"%%ciao\n{cell}", session, display, shell.user_ns)
    try:
        run_blocking(work)
    finally:
        shell.user_ns["_job"] = session.last


def _display(shell: InteractiveShell, session: Session) -> Display:
    if _kernel(shell) is None:
        from ciao_kernel.display.terminal import TerminalDisplay

        return TerminalDisplay(session.settings, sys.stdout)
    from ciao_kernel.display.notebook import NotebookDisplay

    return NotebookDisplay(_ShellPublisher(shell), session.settings)


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
    """Run a coroutine from a thread whose own loop may be running; Ctrl-C cancels it.

    The first Ctrl-C waits for the coroutine's clean-up, a second one leaves that to itself.

    Raises:
        KeyboardInterrupt: It was interrupted.
    """
    from ciao_kernel.jupyter import shutdown

    loop = _loop()
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

    # An interrupt may be the beginning of a shutdown, which must not overtake the clean-up.
    with shutdown.lifetime.held():
        try:
            # The context carries the cell that output belongs to.
            loop.call_soon_threadsafe(start, context=contextvars.copy_context())
            task = done.result()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(cancel)
            task = done.result()
            if task.cancelled() or task.exception() is None:
                raise
    if task.cancelled():
        raise KeyboardInterrupt
    return task.result()


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """A loop on a thread of its own, for as long as the process lives.

    A stopped job may go on stopping after its cell has ended.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="ciao", daemon=True).start()
    return loop
