"""The Jupyter kernel: IPython, and cells that are jobs.

A cell whose header holds directives runs as a job in an asyncio task; every other cell is
ipykernel's own business. What is particular here is what ipykernel does not do for a cell
that waits: interrupts that cancel it and nothing else, and answers to other requests
meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from typing import Any

from ipykernel import ipkernel, kernelbase

from ciao_kernel import __version__
from ciao_kernel.interrupts import RunningCells

_QUICK = {
    "kernel_info_request",
    "complete_request",
    "inspect_request",
    "is_complete_request",
    "history_request",
    "comm_info_request",
}
"""Requests that are answered while a job runs; without kernel_info a reloaded page shows the
kernel as "unknown" until the job ends."""

_CLOSING = 0.5
"""Seconds that connections get to be closed when the kernel ends."""

_displaced: contextvars.ContextVar[list[tuple[Any, Any]] | None] = contextvars.ContextVar(
    "displaced", default=None
)
"""Set while a request is answered beside a job: the request that was handled before it."""

# Of several versions, and typed by halves: for mypy, anything.
_IPythonKernel: Any = ipkernel.IPythonKernel
_Kernel: Any = kernelbase.Kernel


class CiaoKernel(_IPythonKernel):  # type: ignore[misc]
    """ipykernel's IPython kernel with job cells. Jupyter, SoS and gateways start it by name."""

    implementation = "ciao"
    implementation_version = __version__

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._cells = RunningCells(self._terminated)
        self._endings: list[asyncio.Task[None]] = []
        self._wake: tuple[socket.socket, socket.socket] | None = None
        self.shell.extension_manager.load_extension("ciao_kernel")

    @property
    def banner(self) -> str:
        """What `jupyter console` greets with."""
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
        """Run a cell: ours as a job, any other as ipykernel does."""
        parent = self.get_parent("shell")
        try:
            if self._is_ours(code):
                if silent or not store_history:
                    return self._not_run(silent, parent)
                return await self._run_cell(code, user_expressions or {}, parent)
            with self._cells.raising():
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
            # Not in the user's code, which IPython guards, but just before or behind it.
            # ipykernel would send no reply, and the cell would seem to run for ever.
            return self._reply(_interrupted(), parent)
        except Exception:  # without a reply the cell would seem to run for ever
            return self._reply(_fault(), parent)

    def _is_ours(self, code: str) -> bool:
        if "%" not in code:
            return False
        from ciao_kernel import cells

        return cells.is_job(code) or cells.command(code) is not None

    def _not_run(self, silent: bool, parent: dict[str, Any]) -> dict[str, Any]:
        """Front-ends and SoS probe in this way, and a job is never a side effect."""
        if not silent:
            text = "Nothing was run: job cells and %ciao run only where the history keeps them.\n"
            self._send("stream", {"name": "stderr", "text": text}, parent)
        return self._reply({"status": "ok"}, parent)

    async def _run_cell(
        self, code: str, user_expressions: dict[str, str], parent: dict[str, Any]
    ) -> dict[str, Any]:
        """Run a cell of ours as a task that interrupts cancel, and nothing else does."""
        self.shell.history_manager.store_inputs(self.shell.execution_count, code, code)
        task = asyncio.get_running_loop().create_task(self._run(code, parent))
        with self._cells.running(task, parent):
            self._let_quick_ones_pass()
            try:
                outcome = await task
            except asyncio.CancelledError:
                outcome = _interrupted()  # before the task's first step
        self.shell.execution_count += 1
        if outcome["status"] == "ok":
            outcome["user_expressions"] = self.shell.user_expressions(user_expressions)
        return self._reply(outcome, parent)

    async def _run(self, code: str, parent: dict[str, Any]) -> dict[str, Any]:
        """Run a job or a ``%ciao`` command; every way out is an outcome."""
        from ciao_kernel import cells
        from ciao_kernel.display.errors import colored
        from ciao_kernel.display.notebook import NotebookDisplay
        from ciao_kernel.errors import CiaoError

        try:
            words = cells.command(code)
            session = cells.session(words)
            publisher = _CellPublisher(self, parent)
            display = NotebookDisplay(publisher, session.settings)
            try:
                if words is None:
                    await cells.run_job(code, session, display, self.shell.user_ns)
                else:
                    await cells.run_command(words, session, display, publisher.stream)
            finally:
                self.shell.user_ns["_job"] = session.last
        except asyncio.CancelledError:
            return _interrupted()
        except CiaoError as error:
            return _error(type(error).__name__, error.message, colored(error, page=True))
        except (Exception, SystemExit):
            return _fault()  # SystemExit too: out of a task it would end the kernel.
        return {"status": "ok"}

    def _reply(self, outcome: dict[str, Any], parent: dict[str, Any]) -> dict[str, Any]:
        """Make the content of an execute_reply; an error is shown in the cell, too."""
        if outcome["status"] == "error":
            self._send("error", {k: outcome[k] for k in ("ename", "evalue", "traceback")}, parent)
        base = {
            "execution_count": self.shell.execution_count - 1,
            "payload": [],
            "user_expressions": {},
        }
        return {**base, **outcome}

    def _send(self, kind: str, content: dict[str, Any], parent: dict[str, Any]) -> None:
        """Publish to the cell that a request belongs to, whatever else runs meanwhile."""
        if self.session is not None:
            self.session.send(
                self.iopub_socket, kind, content, parent=parent, ident=self._topic(kind)
            )

    # ------------------------------------------------------------------ interrupt and end

    def start(self) -> None:
        """Start the kernel, and let signals wake its loop.

        ipykernel's handler for an awaiting cell leaves a callback for the loop, which sleeps
        in select() and sees it when the next timer fires: `await asyncio.sleep(20)` would be
        interrupted after 20 seconds.
        """
        super().start()
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        self._wake = (reader, writer)
        self._wake_on_signals()
        self.io_loop.add_handler(reader, lambda *_: reader.recv(4096), self.io_loop.READ)

    def _wake_on_signals(self) -> None:
        if self._wake is not None and threading.current_thread() is threading.main_thread():
            other = signal.set_wakeup_fd(self._wake[1].fileno(), warn_on_full_buffer=False)
            if other not in (-1, self._wake[1].fileno()):
                # The user's `loop.add_signal_handler` needs its own, which wakes the loop too.
                signal.set_wakeup_fd(other)

    def pre_handler_hook(self) -> None:
        """Say what SIGINT does to the request that comes now."""
        if _displaced.get() is not None:
            return  # SIGINT is the job's.
        super().pre_handler_hook()
        if self.get_parent("shell")["header"]["msg_type"] == "execute_request":
            # An interrupt that comes before do_execute must not raise: no reply would be sent.
            self._cells.collect()
            self._wake_on_signals()

    def post_handler_hook(self) -> None:
        """Undo :meth:`pre_handler_hook`."""
        if _displaced.get() is None:
            super().post_handler_hook()

    async def interrupt_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Interrupt by message: jobs on subshells too, which ipykernel's SIGINT never reaches."""
        self._cells.cancel_elsewhere()
        await super().interrupt_request(stream, ident, parent)

    async def do_shutdown(self, restart: bool) -> dict[str, Any]:
        """End what runs: jobs that may outlive this kernel run on, others are stopped before."""
        await self._wind_up()
        reply = super().do_shutdown(restart)
        if inspect.isawaitable(reply):
            reply = await reply
        result: dict[str, Any] = reply
        return result

    async def _wind_up(self) -> None:
        """Tell jobs that an interrupt before was the beginning of the end, and see them end.

        Runs in the control thread on a shutdown, in the main one on SIGTERM.
        """
        from ciao_kernel import cells

        cells.lifetime.end()
        until = time.monotonic() + cells.LAST_WORK
        await self._cells.end(cells.LAST_WORK)
        await cells.lifetime.settled(until - time.monotonic())
        # Connections belong to the main loop, which user's code may hold up.
        closing = asyncio.run_coroutine_threadsafe(cells.close(), self.io_loop.asyncio_loop)
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_CLOSING):
                await asyncio.wrap_future(closing)

    def _terminated(self) -> None:
        """Take SIGTERM, which comes while a job runs, as a shutdown."""

        async def end() -> None:
            try:
                await self._wind_up()
            finally:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGTERM)

        loop = self.io_loop.asyncio_loop
        loop.call_soon_threadsafe(lambda: self._endings.append(loop.create_task(end())))

    # ------------------------------------------------------------- answers while a job runs

    async def shell_main(self, subshell_id: str | None, msg: Any) -> None:
        """Take a shell message (ipykernel 7): quick ones do not wait for a job's end."""
        lock = self._main_asyncio_lock
        if subshell_id is not None or not lock.locked() or _message_type(msg) not in _QUICK:
            await super().shell_main(subshell_id, msg)
        elif await self._cells.turn(lock):
            try:
                await self.dispatch_shell(msg, subshell_id=None)
            finally:
                lock.release()
        else:
            await self._answer_beside(msg)

    def schedule_dispatch(self, dispatch: Any, *args: Any) -> None:
        """Take a message (ipykernel 6): as :meth:`shell_main`."""
        if self._cells.on_main is not None and self._is_quick(dispatch, args):
            self.io_loop.add_callback(self._answer_beside, args[0])
        else:
            super().schedule_dispatch(dispatch, *args)

    def _let_quick_ones_pass(self) -> None:
        """Answer what came before the job began and stands in line behind it (ipykernel 6)."""
        queue = getattr(self, "msg_queue", None)
        if queue is None or self._cells.on_main is None:
            return
        for number, dispatch, args in [queue.get_nowait() for _ in range(queue.qsize())]:
            if self._is_quick(dispatch, args):
                self.io_loop.add_callback(self._answer_beside, args[0])
            else:
                queue.put_nowait((number, dispatch, args))

    def _is_quick(self, dispatch: Any, args: tuple[Any, ...]) -> bool:
        return dispatch == self.dispatch_shell and _message_type(args[0]) in _QUICK

    async def _answer_beside(self, frames: Any) -> None:
        context = contextvars.copy_context()
        context.run(_displaced.set, [])
        await asyncio.get_running_loop().create_task(self._dispatch_beside(frames), context=context)

    async def _dispatch_beside(self, frames: Any) -> None:
        await self.dispatch_shell(frames)
        # Nothing else ran since dispatch_shell called set_parent: no quick handler waits.
        for ident, parent in (_displaced.get() or [])[:1]:
            _Kernel.set_parent(self, ident, parent, channel="shell")
        if (cell := self._cells.on_main) is not None:
            # The request's own "idle" would show the kernel as idle.
            self._publish_status("busy", "shell", parent=cell)

    def set_parent(self, ident: Any, parent: Any, channel: str = "shell") -> None:
        """Note which request is handled; what is printed beside a job stays the job's."""
        displaced = _displaced.get()
        if displaced is None:
            super().set_parent(ident, parent, channel)
        else:
            displaced.append((self._parent_ident["shell"], self.get_parent("shell")))
            _Kernel.set_parent(self, ident, parent, channel)

    # ----------------------------------------------------------------- help while writing

    def do_complete(self, code: str, cursor_pos: int | None) -> Any:
        """Complete directives in a header, and what IPython completes elsewhere."""
        from ciao_kernel import cells

        position = len(code) if cursor_pos is None else cursor_pos
        found = cells.complete(code, position)
        if found is None:
            return super().do_complete(code, cursor_pos)
        matches, start, end = list(found.matches), found.start, found.end
        types = [_typed(match, start, end, "directive") for match in matches]
        if found.merge:
            theirs = super().do_complete(code, cursor_pos)
            if not matches:
                return theirs
            if theirs["cursor_start"] == start:
                more = [match for match in theirs["matches"] if match not in matches]
                types += [_typed(match, start, end, "magic") for match in more]
                matches += more
        return {
            "status": "ok",
            "matches": matches,
            "cursor_start": start,
            "cursor_end": end,
            "metadata": {"_jupyter_types_experimental": types},
        }

    def do_inspect(
        self, code: str, cursor_pos: int, detail_level: int = 0, omit_sections: Any = ()
    ) -> Any:
        """Explain a directive, or what IPython explains."""
        from ciao_kernel import cells

        text = cells.explain(code, cursor_pos)
        if text is None:
            return super().do_inspect(code, cursor_pos, detail_level, omit_sections)
        return {"status": "ok", "found": True, "data": {"text/plain": text}, "metadata": {}}

    def do_is_complete(self, code: str) -> Any:
        """Ask for code under a header that has none."""
        from ciao_kernel import cells

        answer = cells.is_complete(code)
        if isinstance(answer, str):
            return super().do_is_complete(answer)
        return answer


class _CellPublisher:
    """Sends output to one cell (:class:`ciao_kernel.display.notebook.Publisher`)."""

    def __init__(self, kernel: CiaoKernel, parent: dict[str, Any]) -> None:
        self._kernel = kernel
        self._parent = parent

    def stream(self, text: str) -> None:
        self._kernel._send("stream", {"name": "stdout", "text": text}, self._parent)

    def display(
        self,
        data: dict[str, str],
        display_id: str,
        *,
        update: bool,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        kind = "update_display_data" if update else "display_data"
        transient = {"display_id": display_id}
        content = {"data": data, "metadata": dict(metadata or {}), "transient": transient}
        self._kernel._send(kind, content, self._parent)


def _message_type(frames: Any) -> str:
    """Read the type of a message without taking it apart: its header is behind the delimiter."""
    parts = [bytes(frame) for frame in frames]
    with contextlib.suppress(ValueError, IndexError, KeyError, TypeError):
        kind: str = json.loads(parts[parts.index(b"<IDS|MSG>") + 2])["msg_type"]
        return kind
    return ""


def _typed(match: str, start: int, end: int, kind: str) -> dict[str, Any]:
    """Say of what kind a match is, as IPython does for JupyterLab's menu."""
    return {"start": start, "end": end, "text": match, "type": kind, "signature": ""}


def _interrupted() -> dict[str, Any]:
    return _error("KeyboardInterrupt", "", ["\x1b[31mKeyboardInterrupt\x1b[0m"])


def _fault() -> dict[str, Any]:
    """What is said of an exception that nobody expected; for use where it is handled."""
    error = sys.exception()
    lines = traceback.format_exc().splitlines()
    lines.append("This is a fault of the kernel, not of the cell. Please report these lines.")
    return _error(type(error).__name__, str(error), lines)


def _error(name: str, value: str, lines: list[str]) -> dict[str, Any]:
    return {"status": "error", "ename": name, "evalue": value, "traceback": lines}
