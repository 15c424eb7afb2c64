"""The Jupyter messages of a cell of ours: what it shows, how it ended, what completes it."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ciao_kernel.errors import CiaoError

Content = dict[str, Any]


class CellPublisher:
    """Sends output to one cell (:class:`ciao_kernel.display.publisher.Publisher`).

    Args:
        send: Publishes a message: its type, its content, and the request that it belongs to.
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
        """Show an output, or put it in the place of one that was shown under its name."""
        kind = "update_display_data" if update else "display_data"
        transient = {"display_id": display_id}
        content = {"data": data, "metadata": dict(metadata or {}), "transient": transient}
        self._send(kind, content, self._parent)


def ok() -> Content:
    """The outcome of a cell that did what it was to do."""
    return {"status": "ok"}


def interrupted() -> Content:
    """The outcome of a cell that was stopped."""
    return error("KeyboardInterrupt", "", ["\x1b[31mKeyboardInterrupt\x1b[0m"])


def fault() -> Content:
    """The outcome after an exception that nobody expected; for use where it is handled."""
    found = sys.exception()
    lines = traceback.format_exc().splitlines()
    lines.append("This is a fault of the kernel, not of the cell. Please report these lines.")
    return error(type(found).__name__, str(found), lines)


def refusal(found: CiaoError) -> Content:
    """The outcome of a cell with an error of ours: its sentence and its hint."""
    from ciao_kernel.display.errors import colored

    return error(type(found).__name__, found.message, colored(found, page=True))


def error(name: str, value: str, lines: list[str]) -> Content:
    """The outcome of a cell that failed; ``lines`` are shown in it."""
    return {"status": "error", "ename": name, "evalue": value, "traceback": lines}


def completions(offered: Iterable[tuple[str, str]], start: int, end: int) -> Content:
    """What may stand from ``start`` to ``end``, each with its kind for JupyterLab's menu."""
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
