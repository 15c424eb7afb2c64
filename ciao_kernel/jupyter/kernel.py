"""The Jupyter kernel: IPython with job cells.

A cell whose header contains directives runs as a job in an asyncio task; ipykernel runs every
other cell. This module adds two features that ipykernel lacks for a waiting cell: interrupts that
cancel only this cell (:mod:`ciao_kernel.jupyter.interrupts`), and answers to other requests in the
meantime (:mod:`ciao_kernel.jupyter.side_requests`).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import threading
from typing import TYPE_CHECKING, Any

from ciao_kernel import __version__, log
from ciao_kernel.jupyter import gui_loop, inner_cells, messages, questions
from ciao_kernel.jupyter.helping_kernel import HelpingKernel
from ciao_kernel.jupyter.hooks import Hooks, expand_variables
from ciao_kernel.jupyter.interrupts import RunningCells
from ciao_kernel.jupyter.messages import CellPublisher
from ciao_kernel.jupyter.orderly_end import OrderlyEnd
from ciao_kernel.jupyter.signal_wakeup import SignalWakeup
from ciao_kernel.jupyter.stoppable_shell import make_stoppable

if TYPE_CHECKING:
    from ciao_kernel.jupyter.cell_console import CellConsole
    from ciao_kernel.magics.scanned_cell import ScannedCell

_log = logging.getLogger(__name__)


class CiaoKernel(HelpingKernel):
    """ipykernel's IPython kernel with job cells. Jupyter, SoS and gateways start it by name."""

    implementation = "ciao"
    implementation_version = __version__

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        log.start()
        for handler in self.log.handlers:  # `--debug` sets their level
            if isinstance(handler, logging.StreamHandler):
                level = max(handler.level, self.log.getEffectiveLevel())
                log.show_on(handler.stream, level)
        self._cells = RunningCells(lambda: self._end.by_sigterm())
        self._end = OrderlyEnd(self._cells, lambda: self.io_loop.asyncio_loop)
        self._numbering = threading.Lock()
        self._wakeup = SignalWakeup()
        make_stoppable(self.shell)
        self._know_plain = inner_cells.let_run(self.shell)
        self.shell.extension_manager.load_extension("ciao_kernel")

    @property
    def banner(self) -> str:
        """Greeting of `jupyter console`."""
        hint = "`%ciao magics` lists the directives of job cells"
        return f"ciao {__version__}: {hint}\n{super().banner}"

    # -------------------------------------------------------------------------- execution

    async def do_execute(
        self,
        code: str,
        silent: bool,
        store_history: bool = True,
        user_expressions: dict[str, str] | None = None,
        allow_stdin: bool = False,
        *,
        cell_meta: dict[str, Any] | None = None,
        cell_id: str | None = None,
    ) -> dict[str, Any]:
        """Run a job or a ``%ciao`` command here, and any other cell as ipykernel does."""
        parent = self.get_parent("shell")
        try:
            arguments = _command_arguments(code)
            if arguments is None:
                arguments = questions.arguments(code, self.shell)
            job = None if arguments is not None else _scan_job(code)
            if arguments is not None or job is not None:
                # A command without history is a user's question; a job would be forgotten.
                if silent or (job is not None and not store_history):
                    return self._refuse(silent, parent)
                hooks = Hooks(self.shell, code, store_history, cell_id, cell_meta)
                return await self._run_cell(
                    hooks, job or arguments or "", user_expressions or {}, parent, allow_stdin
                )
            self._know_plain(code)
            with self._cells.raising_interrupts():
                reply: dict[str, Any] = await super().do_execute(
                    code,
                    silent,
                    store_history,
                    user_expressions,
                    allow_stdin,
                    cell_meta=cell_meta,
                    cell_id=cell_id,
                )
            return reply
        except KeyboardInterrupt:
            # Raised just before or after the user's code, in which IPython catches it.
            # ipykernel would send no reply, and the cell would seem to run for ever.
            return self._reply(messages.interrupted(), parent)
        except asyncio.CancelledError:
            # The task of a plain cell with `await`, which was cancelled before the user's code.
            own = asyncio.current_task()
            if own is not None and own.cancelling():
                raise
            return self._reply(messages.interrupted(), parent)
        except Exception:  # without a reply the cell would seem to run for ever
            _log.exception("the request of a cell failed")
            return self._reply(messages.internal_error(), parent)

    def _refuse(self, silent: bool, parent: dict[str, Any]) -> dict[str, Any]:
        """Refuse a request that front-ends and SoS send as a probe: a job must not start.

        The sender must not believe that a job has succeeded, so the reply is an error. It is shown
        in the cell unless the request asks for silence.
        """
        from ciao_kernel.errors import UsageError
        from ciao_kernel.jupyter import cells

        option = "silent=True" if silent else "store_history=False"
        instead = "silent=False" if silent else "store_history=True"
        error = UsageError(
            f"nothing was run: the request had {option}.",
            f"The program that runs the cells must send {instead}.",
        )
        outcome = messages.ciao_error(error, color=cells.colors_errors())
        return self._reply(outcome, parent, silent=silent)

    async def _run_cell(
        self,
        hooks: Hooks,
        work: ScannedCell | str,
        user_expressions: dict[str, str],
        parent: dict[str, Any],
        allow_stdin: bool,
    ) -> dict[str, Any]:
        """Run a job, or the arguments of ``%ciao``, as a task that only interrupts cancel."""
        with self._cells.raising_interrupts():  # this is the user's code
            try:
                hooks.before()
            except KeyboardInterrupt:
                hooks.after(messages.interrupted(), None)
                raise
            if isinstance(work, str):
                work = expand_variables(work, self.shell.user_ns)
        number = self._begin_history(hooks)
        publisher = CellPublisher(self._send, parent)
        console = self._console(publisher, parent) if allow_stdin else None
        close_prompt = console.close if console else lambda: False
        async with gui_loop.paused(self):
            task = asyncio.get_running_loop().create_task(self._run(work, publisher, console))
            with self._cells.cancel_on_interrupt(task, parent, close_prompt):
                self._answer_queued_requests()
                try:
                    outcome = await task
                except asyncio.CancelledError:
                    outcome = messages.interrupted()  # cancelled before the task's first step
        with self._cells.raising_interrupts(ignore_earlier=True):
            hooks.after(outcome, number)
        if outcome["status"] == "ok":
            outcome["user_expressions"] = self.shell.user_expressions(user_expressions)
        return {**self._reply(outcome, parent), "execution_count": number}

    def _begin_history(self, hooks: Hooks) -> int:
        """Store a cell in the history; return its number, which no other job cell gets.

        Cells of subshells may begin before this one ends. IPython writes an error into one of
        them if two have the same number.
        """
        if not hooks.store_history:
            return int(self.shell.execution_count) - 1
        with self._numbering:  # each subshell has a thread
            number = int(self.shell.execution_count)
            self.shell.execution_count = number + 1
        self.shell.history_manager.store_inputs(number, hooks.code, hooks.code)
        return number

    def _console(self, publisher: CellPublisher, parent: dict[str, Any]) -> CellConsole | None:
        """Return where prompts are opened; None in a subshell, whose thread has no input."""
        if threading.current_thread() is not threading.main_thread():
            return None
        from ciao_kernel.jupyter.cell_console import CellConsole

        return CellConsole(self, parent, self._parent_ident["shell"], publisher.stream)

    async def _run(
        self, work: ScannedCell | str, publisher: CellPublisher, console: CellConsole | None
    ) -> dict[str, Any]:
        """Run a job, or the arguments of ``%ciao``; return an outcome even after an error."""
        from ciao_kernel.display.notebook import NotebookDisplay
        from ciao_kernel.errors import CiaoError
        from ciao_kernel.jupyter import cells
        from ciao_kernel.jupyter.file_links import kernel_file_links

        try:
            words = cells.split(work) if isinstance(work, str) else []
            session = cells.session(words)
            display = NotebookDisplay(publisher, session.settings, kernel_file_links())
            try:
                if isinstance(work, str):
                    await cells.run_command(words, session, display, publisher.stream, console)
                else:
                    await cells.run_job(work, session, display, self.shell.user_ns, console)
            finally:
                self.shell.user_ns["_job"] = cells.last_job(session)
        except asyncio.CancelledError:
            return messages.interrupted()
        except CiaoError as error:
            return messages.ciao_error(error, color=cells.colors_errors())
        except (Exception, SystemExit):  # raised by a task, SystemExit would end the kernel
            _log.exception("a cell failed with an internal error")
            return messages.internal_error()
        return messages.ok()

    def _reply(
        self, outcome: dict[str, Any], parent: dict[str, Any], *, silent: bool = False
    ) -> dict[str, Any]:
        """Return the content of an execute_reply; also show an error in the cell."""
        if outcome["status"] == "error" and not silent:
            self._send("error", {k: outcome[k] for k in ("ename", "evalue", "traceback")}, parent)
        base = {
            "execution_count": self.shell.execution_count - 1,
            "payload": [],
            "user_expressions": {},
        }
        return {**base, **outcome}

    def _send(self, kind: str, content: dict[str, Any], parent: dict[str, Any]) -> None:
        """Publish a message to the cell of a request, whatever else runs meanwhile."""
        if self.session is not None:
            self.session.send(
                self.iopub_socket, kind, content, parent=parent, ident=self._topic(kind)
            )

    # ------------------------------------------------------------------ interrupt and end

    def start(self) -> None:
        """Start the kernel, and let signals wake its event loop."""
        super().start()
        if threading.current_thread() is threading.main_thread():
            # ipykernel ignores an interrupt that comes just before its cell.
            self._cells.store_interrupts()
        self._wakeup.start(self.io_loop)

    def pre_handler_hook(self) -> None:
        """Set the SIGINT handler for the request that begins now."""
        header = self.get_parent("shell")["header"]
        if header["msg_type"] != "execute_request":
            super().pre_handler_hook()
            return
        # This replaces ipykernel's handler, which raises KeyboardInterrupt: no reply would be
        # sent if it were raised before do_execute, and within this hook it would end the kernel.
        self.saved_sigint_handler = self._cells.collect_interrupts(header.get("date"))
        self._wakeup.renew()

    async def interrupt_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Interrupt by message; this also stops jobs on subshells, which SIGINT never reaches."""
        try:
            self._cells.interrupt_sent(parent["header"].get("date"))
            self._cells.cancel_subshells()
        finally:
            await super().interrupt_request(stream, ident, parent)

    async def delete_subshell_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Delete a subshell (ipykernel 7); its job cell, whose stop needs its loop, ends first."""
        from ciao_kernel.jupyter import shutdown
        from ciao_kernel.jupyter.subshell_deletion import delete_subshell

        delete = functools.partial(super().delete_subshell_request, stream, ident, parent)
        subshell = str(parent["content"].get("subshell_id"))
        within = shutdown.MAX_SHUTDOWN_DELAY
        await delete_subshell(subshell, delete, self._cells, shutdown.lifetime, within)

    async def do_shutdown(self, restart: bool) -> dict[str, Any]:
        """Shut down: jobs that may outlive this kernel keep running, others are stopped first."""
        # Only the main thread can set handlers, and this is the control thread.
        self.io_loop.add_callback(self._cells.ignore_sigterm)
        try:
            await self._end.of_cells()
        finally:
            self.io_loop.add_callback(self._cells.restore_sigterm)
        reply = super().do_shutdown(restart)
        if inspect.isawaitable(reply):
            reply = await reply
        result: dict[str, Any] = reply
        return result


def _command_arguments(code: str) -> str | None:
    """Return the arguments of a ``%ciao`` command, None for any other cell."""
    if "%" not in code:
        return None
    from ciao_kernel.jupyter import cells

    return cells.command(code)


def _scan_job(code: str) -> ScannedCell | None:
    """Return the directives of a job cell, None for any other cell."""
    if "%" not in code:
        return None
    from ciao_kernel.jupyter import cells

    return cells.scan_job(code)
