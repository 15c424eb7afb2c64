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
import json
import signal
import socket
import threading
import traceback
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipykernel.ipkernel import IPythonKernel

from ciao_kernel import __version__

if TYPE_CHECKING:
    from ciao_kernel.display.notebook import NotebookDisplay

_QUICK = {"kernel_info_request", "complete_request", "inspect_request", "is_complete_request"}
"""Requests that are answered while a job runs; without kernel_info a reloaded page shows the
kernel as "unknown" until the job ends."""

_beside_a_job: contextvars.ContextVar[bool] = contextvars.ContextVar("beside", default=False)


class CiaoKernel(IPythonKernel):  # type: ignore[misc]
    """ipykernel's IPython kernel with job cells. Jupyter, SoS and gateways start it by name."""

    implementation = "ciao"
    implementation_version = __version__

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._cells = _RunningCells()
        self._wake: tuple[socket.socket, socket.socket] | None = None
        self.shell.extension_manager.load_extension("ciao_kernel")

    @property
    def banner(self) -> str:  # type: ignore[override]
        """What `jupyter console` greets with."""
        return f"ciao {__version__}: `%ciao magics` lists the directives of job cells\n{super().banner}"

    # -------------------------------------------------------------------------- execution

    async def do_execute(  # type: ignore[override]
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
        if not self._is_ours(code):
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
        if silent or not store_history:
            # Probes of front-ends and of SoS come this way. A job is never a side effect.
            return self._reply({"status": "ok"}, counted=False)
        self.shell.history_manager.store_inputs(self.shell.execution_count, code, code)
        parent = self.get_parent("shell")
        try:
            outcome = await self._guarded(self._run(code, parent))
        except KeyboardInterrupt:
            # Between the message's arrival and the task's start, SIGINT still raises.
            outcome = _interrupted()
        self.shell.execution_count += 1
        if outcome["status"] == "error":
            self._send("error", {k: outcome[k] for k in ("ename", "evalue", "traceback")}, parent)
        else:
            outcome["user_expressions"] = self.shell.user_expressions(user_expressions or {})
        return self._reply(outcome)

    def _is_ours(self, code: str) -> bool:
        if "%" not in code:
            return False
        from ciao_kernel import cells

        return cells.is_job(code) or cells.command(code) is not None

    async def _guarded(self, work: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        """Run a cell as a task that interrupts cancel, and nothing else does."""
        task = asyncio.ensure_future(work)
        with self._cells.entered(task, self.get_parent("shell")):
            return await task

    async def _run(self, code: str, parent: dict[str, Any]) -> dict[str, Any]:
        """Run a job or a ``%ciao`` command; every way out is a reply."""
        from ciao_kernel import cells
        from ciao_kernel.display.errors import colored
        from ciao_kernel.errors import CiaoError

        try:
            display = self._display(parent)
            session = cells.session()
            words = cells.command(code)
            if words is None:
                result = await session.run(code, display, Path.cwd())
            else:
                result = await cells.run_command(words, session, display, self._writer(parent))
            if result is not None:
                self.shell.user_ns["_job"] = result
        except asyncio.CancelledError:
            return _interrupted()
        except CiaoError as error:
            return _error(type(error).__name__, error.message, colored(error))
        except Exception as error:
            lines = traceback.format_exc().splitlines()
            lines.append("This is a fault of ciao itself. Please report it with these lines.")
            return _error(type(error).__name__, str(error), lines)
        return {"status": "ok"}

    def _display(self, parent: dict[str, Any]) -> NotebookDisplay:
        from ciao_kernel import cells
        from ciao_kernel.display.notebook import NotebookDisplay

        return NotebookDisplay(_CellPublisher(self, parent), cells.session().settings)

    def _writer(self, parent: dict[str, Any]) -> Any:
        return _CellPublisher(self, parent).stream

    def _reply(self, outcome: dict[str, Any], *, counted: bool = True) -> dict[str, Any]:
        count = self.shell.execution_count - (1 if counted else 0)
        base = {"execution_count": count, "payload": [], "user_expressions": {}}
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
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        self.io_loop.add_handler(reader, lambda *_: reader.recv(4096), self.io_loop.READ)

    def pre_handler_hook(self) -> None:
        """Let SIGINT raise in plain code, but not for a request that is answered beside a job."""
        if not _beside_a_job.get():
            super().pre_handler_hook()

    def post_handler_hook(self) -> None:
        """Undo :meth:`pre_handler_hook`."""
        if not _beside_a_job.get():
            super().post_handler_hook()

    async def interrupt_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Interrupt by message: jobs on subshells too, which a signal does not reach."""
        self._cells.interrupt()
        await super().interrupt_request(stream, ident, parent)

    async def do_shutdown(self, restart: bool) -> dict[str, Any]:
        """Tell waiting jobs that the interrupt before was the beginning of the end."""
        from ciao_kernel import cells

        cells.lifetime.end()
        reply = super().do_shutdown(restart)
        if isinstance(reply, Awaitable):
            reply = await reply
        result: dict[str, Any] = reply
        return result

    # ------------------------------------------------------------- answers while a job runs

    async def shell_main(self, subshell_id: str | None, msg: Any) -> None:
        """Take a shell message (ipykernel 7): quick ones do not wait for a job's end."""
        if subshell_id is None and self._answers_beside(msg):
            await self._answer_beside(msg)
        else:
            await super().shell_main(subshell_id, msg)

    def schedule_dispatch(self, dispatch: Any, *args: Any) -> None:
        """Take a message (ipykernel 6): as :meth:`shell_main`."""
        if dispatch == self.dispatch_shell and self._answers_beside(args[0]):
            self.io_loop.add_callback(self._answer_beside, args[0])
        else:
            super().schedule_dispatch(dispatch, *args)

    def _answers_beside(self, frames: Any) -> bool:
        return self._cells.on_main is not None and _message_type(frames) in _QUICK

    async def _answer_beside(self, frames: Any) -> None:
        cell = self._cells.on_main
        ident = self._shell_ident()
        context = contextvars.copy_context()
        context.run(_beside_a_job.set, True)
        await asyncio.get_running_loop().create_task(self.dispatch_shell(frames), context=context)
        if cell is not None and self._cells.on_main is cell:
            # The request's own "idle" would show the kernel as idle; output belongs to the cell.
            self.set_parent(ident, cell, channel="shell")
            self._publish_status("busy", "shell", parent=cell)

    def _shell_ident(self) -> Any:
        if hasattr(self, "_shell_parent_ident"):
            return self._get_shell_context_var(self._shell_parent_ident)
        return self._parent_ident["shell"]

    # ----------------------------------------------------------------- help while writing

    def do_complete(self, code: str, cursor_pos: int | None) -> Any:
        """Complete directives in a header, and what IPython completes elsewhere."""
        from ciao_kernel import cells

        position = len(code) if cursor_pos is None else cursor_pos
        found = cells.complete(code, position)
        if found is None:
            return super().do_complete(code, cursor_pos)
        matches = list(found.matches)
        if found.merge:
            theirs = super().do_complete(code, cursor_pos)
            if theirs["cursor_start"] == found.start:
                matches += [match for match in theirs["matches"] if match not in matches]
        return {
            "status": "ok",
            "matches": matches,
            "cursor_start": found.start,
            "cursor_end": found.end,
            "metadata": {},
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


class _RunningCells:
    """The job cells that run now: one on the main thread, and any on subshells' threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: dict[asyncio.Task[Any], asyncio.AbstractEventLoop] = {}
        self.on_main: dict[str, Any] | None = None
        """The request that the main thread's job cell belongs to."""

    @contextlib.contextmanager
    def entered(self, task: asyncio.Task[Any], parent: dict[str, Any]) -> Iterator[None]:
        """Make a task the one that interrupts cancel."""
        main = threading.current_thread() is threading.main_thread()
        with self._lock:
            self._tasks[task] = asyncio.get_running_loop()
        if main:
            before = signal.signal(signal.SIGINT, lambda *_: self.interrupt())
            self.on_main = parent
        try:
            yield
        finally:
            if main:
                self.on_main = None
                signal.signal(signal.SIGINT, before)
            with self._lock:
                self._tasks.pop(task, None)

    def interrupt(self) -> None:
        """Cancel every running cell, once: a second cancel would cut its clean-up short."""
        with self._lock:
            tasks, self._tasks = self._tasks, {}
        for task, loop in tasks.items():
            loop.call_soon_threadsafe(task.cancel)


class _CellPublisher:
    """Sends output to one cell (:class:`ciao_kernel.display.notebook.Publisher`)."""

    def __init__(self, kernel: CiaoKernel, parent: dict[str, Any]) -> None:
        self._kernel = kernel
        self._parent = parent

    def stream(self, text: str) -> None:
        self._kernel._send("stream", {"name": "stdout", "text": text}, self._parent)

    def display(self, data: dict[str, str], display_id: str, *, update: bool) -> None:
        kind = "update_display_data" if update else "display_data"
        content = {"data": data, "metadata": {}, "transient": {"display_id": display_id}}
        self._kernel._send(kind, content, self._parent)


def _message_type(frames: Any) -> str:
    """Read the type of a message without taking it apart: its header is behind the delimiter."""
    parts = [bytes(frame) for frame in frames]
    with contextlib.suppress(ValueError, IndexError, KeyError, TypeError):
        kind: str = json.loads(parts[parts.index(b"<IDS|MSG>") + 2])["msg_type"]
        return kind
    return ""


def _interrupted() -> dict[str, Any]:
    return _error("KeyboardInterrupt", "", ["\x1b[31mKeyboardInterrupt\x1b[0m"])


def _error(name: str, value: str, lines: list[str]) -> dict[str, Any]:
    return {"status": "error", "ename": name, "evalue": value, "traceback": lines}
