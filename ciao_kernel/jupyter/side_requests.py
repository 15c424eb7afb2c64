"""Answers to quick requests while a job runs.

ipykernel handles one request after another. A reloaded page requests kernel_info and shows the
kernel as "unknown" until the answer: without this module, until the job ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
from typing import Any

from ipykernel import ipkernel, kernelbase

from ciao_kernel.jupyter.interrupts import RunningCells

_QUICK = {
    "kernel_info_request",
    "complete_request",
    "inspect_request",
    "is_complete_request",
    "history_request",
    "comm_info_request",
}
"""Requests that are answered while a job runs."""

_previous_requests: contextvars.ContextVar[list[tuple[Any, Any]] | None] = contextvars.ContextVar(
    "previous_requests", default=None
)
"""Set while a request is answered during a job: the request that was handled before it."""

# Any for mypy: several versions are supported, and their types are incomplete.
_IPythonKernel: Any = ipkernel.IPythonKernel
_Kernel: Any = kernelbase.Kernel


class AnsweringKernel(_IPythonKernel):  # type: ignore[misc]
    """ipykernel's IPython kernel, which answers quick requests while a job runs.

    A subclass sets ``_cells``, and calls :meth:`_answer_queued_requests` when a job begins.
    """

    _cells: RunningCells

    def pre_handler_hook(self) -> None:
        """Prepare a request, but leave SIGINT to the job if this request is answered during one."""
        if _previous_requests.get() is None:
            super().pre_handler_hook()
            # As ipykernel's handler, but an interrupt is not lost.
            self._cells.store_and_raise_interrupts()

    def post_handler_hook(self) -> None:
        """Undo :meth:`pre_handler_hook`."""
        if _previous_requests.get() is None:
            super().post_handler_hook()
            self._cells.forget_interrupts()

    async def shell_main(self, subshell_id: str | None, msg: Any) -> None:
        """Handle a shell message (ipykernel 7); quick requests do not wait for the job's end."""
        lock = self._main_asyncio_lock
        if subshell_id is not None:
            await super().shell_main(subshell_id, msg)
            # On the main thread: a "busy" from here could come after the "idle" of the job's cell.
            self.io_loop.add_callback(self._show_busy)
        elif not lock.locked() or _message_type(msg) not in _QUICK:
            await super().shell_main(subshell_id, msg)
        elif await self._cells.acquire_unless_job(lock):
            try:
                await self.dispatch_shell(msg, subshell_id=None)
            finally:
                lock.release()
        else:
            await self._answer_during_job(msg)

    def schedule_dispatch(self, dispatch: Any, *args: Any) -> None:
        """Handle a message (ipykernel 6) like :meth:`shell_main`."""
        if self._cells.main_request is not None and self._is_quick(dispatch, args):
            self.io_loop.add_callback(self._answer_during_job, args[0])
        else:
            super().schedule_dispatch(dispatch, *args)

    def _answer_queued_requests(self) -> None:
        """Answer quick requests that came before the job began and wait for it (ipykernel 6)."""
        queue = getattr(self, "msg_queue", None)
        if queue is None or self._cells.main_request is None:
            return
        for number, dispatch, args in [queue.get_nowait() for _ in range(queue.qsize())]:
            if self._is_quick(dispatch, args):
                self.io_loop.add_callback(self._answer_during_job, args[0])
            else:
                queue.put_nowait((number, dispatch, args))

    def _is_quick(self, dispatch: Any, args: tuple[Any, ...]) -> bool:
        return dispatch == self.dispatch_shell and _message_type(args[0]) in _QUICK

    async def _answer_during_job(self, frames: Any) -> None:
        context = contextvars.copy_context()
        context.run(_previous_requests.set, [])
        await asyncio.get_running_loop().create_task(
            self._dispatch_during_job(frames), context=context
        )

    async def _dispatch_during_job(self, frames: Any) -> None:
        await self.dispatch_shell(frames)
        # Nothing else has run since dispatch_shell called set_parent: no quick handler awaits.
        for ident, parent in (_previous_requests.get() or [])[:1]:
            _Kernel.set_parent(self, ident, parent, channel="shell")
        self._show_busy()

    def _show_busy(self) -> None:
        """Publish again that a job runs: the "idle" of another request shows the kernel as idle."""
        if (cell := self._cells.main_request) is not None:
            self._publish_status("busy", "shell", parent=cell)

    def set_parent(self, ident: Any, parent: Any, channel: str = "shell") -> None:
        """Set the current request; output that is printed during a job still belongs to the job."""
        previous = _previous_requests.get()
        if previous is None:
            super().set_parent(ident, parent, channel)
        else:
            previous.append((self._parent_ident["shell"], self.get_parent("shell")))
            _Kernel.set_parent(self, ident, parent, channel)


def _message_type(frames: Any) -> str:
    """Return the type of a message, read from the header after the delimiter only."""
    parts = [bytes(frame) for frame in frames]
    with contextlib.suppress(ValueError, IndexError, KeyError, TypeError):
        kind: str = json.loads(parts[parts.index(b"<IDS|MSG>") + 2])["msg_type"]
        return kind
    return ""
