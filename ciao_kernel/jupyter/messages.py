"""Jupyter messages of job cells and commands: output, outcome and completions."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ciao_kernel import exhaustion
from ciao_kernel.visible_text import visible_lines

if TYPE_CHECKING:
    from ciao_kernel.errors import CiaoError

Content = dict[str, Any]


class CellPublisher:
    """Sends output to one cell (:class:`ciao_kernel.display.publisher.Publisher`).

    Args:
        send: Publishes a message. Takes its type, its content, and the request it belongs to.
        parent: The request that runs the cell.
    """

    def __init__(self, send: Callable[[str, Content, Content], None], parent: Content) -> None:
        self._send = send
        self._parent = parent

    def stream(self, text: str) -> None:
        """Write text."""
        self._send("stream", {"name": "stdout", "text": text}, self._parent)

    def display(
        self,
        data: dict[str, str],
        display_id: str,
        *,
        update: bool,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Show an output, or replace the output that was shown under the same ID."""
        kind = "update_display_data" if update else "display_data"
        transient = {"display_id": display_id}
        content = {"data": data, "metadata": dict(metadata or {}), "transient": transient}
        self._send(kind, content, self._parent)


def ok() -> Content:
    """Return the outcome of a successful cell."""
    return {"status": "ok"}


def interrupted() -> Content:
    """Return the outcome of a cell that was stopped."""
    return error("KeyboardInterrupt", "", ["\x1b[31mKeyboardInterrupt\x1b[0m"])


def internal_error() -> Content:
    """Return the outcome after an unexpected exception; call it in the exception handler.

    If a limit of this process or machine is the cause, it is no bug, and the outcome names it.
    """
    raised = sys.exception()
    if isinstance(raised, OSError) and (fault := exhaustion.fault_of(raised)):
        # Without colours: to import what draws them needs an open file too.
        name = type(fault).__name__
        return error(name, fault.message, [f"{name}: {fault.message}", fault.hint])
    lines = traceback.format_exc().splitlines()
    lines.append("This is a bug in the kernel, not in the cell. Please report these lines.")
    return error(type(raised).__name__, str(raised), lines)


def ciao_error(raised: CiaoError, *, color: bool) -> Content:
    """Return the outcome of a cell that raised a ciao error: its message and its hint.

    Args:
        raised: The error.
        color: Show its name in colour.
    """
    from ciao_kernel.display.errors import colored, uncolored

    lines = colored(raised, page=True) if color else uncolored(raised, page=True)
    return error(type(raised).__name__, visible_lines(raised.message), lines)


def error(name: str, value: str, lines: list[str]) -> Content:
    """Return the outcome of a failed cell, which shows ``lines``."""
    return {"status": "error", "ename": name, "evalue": value, "traceback": lines}


def completions(offered: Iterable[tuple[str, str]], start: int, end: int) -> Content:
    """Return matches for the text from ``start`` to ``end``, with kinds for JupyterLab's menu."""
    types = [
        {"start": start, "end": end, "text": match, "type": kind, "signature": ""}
        for match, kind in offered
    ]
    return {
        "status": "ok",
        "matches": [one["text"] for one in types],
        "cursor_start": start,
        "cursor_end": end,
        "metadata": {"_jupyter_types_experimental": types},
    }
