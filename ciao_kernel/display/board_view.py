"""TensorBoard in a notebook, and as a line of text."""

from __future__ import annotations

from html import escape

from ciao_kernel.model import TensorBoard
from ciao_kernel.visible_text import listed

_HEIGHT = 640
_NAMED = 6
"""Jobs that are named at most."""
_WAITS = "(a frame comes with the first event files)"


def text(event: TensorBoard) -> str:
    """Return the address as a line of text."""
    return f"{_title(event)}: {event.page if _is_whole(event.page) else event.address}"


def html(event: TensorBoard) -> str:
    """Return a link; and a frame, where the page is known to reach TensorBoard.

    A frame with the address on the kernel's machine would be empty on any other machine. A page
    without data stays empty until somebody presses its button, so the frame comes with the data.
    """
    address = escape(event.page or event.address)
    link = (
        f'<a href="{address}" target="_blank" rel="noopener">{escape(event.address)}</a>'
        if not event.page
        else f'<a href="{address}" target="_blank" rel="noopener">open it in a tab of its own</a>'
    )
    frame = (
        f'<iframe src="{address}" width="100%" height="{_HEIGHT}" frameborder="0" '
        'title="TensorBoard"></iframe>'
        if event.page and not event.loads
        else ""
    )
    waits = f" {_WAITS}" if event.page and event.loads else ""
    return f"<div>{escape(_title(event))}: {link}{waits}</div>{frame}"


def _title(event: TensorBoard) -> str:
    return f"TensorBoard of {listed(event.jobs[::-1], _NAMED)}"


def _is_whole(address: str) -> bool:
    return address.startswith(("http://", "https://"))
