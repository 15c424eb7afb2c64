"""Progress of a long step as one line of text, and as HTML: pure functions."""

from __future__ import annotations

from ciao_kernel.model import Progress, Unit
from ciao_kernel.model.times import span
from ciao_kernel.visible_text import short, visible

_WIDTH = 20
"""Characters of the bar in a text."""
_SIZES = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
# All lines of a step have the same height, so that no other output moves.
_LINE = "white-space:nowrap;overflow:hidden;text-overflow:ellipsis;line-height:1.6"
# A bar gives way in a narrow cell, where the words need the room.
_BAR = "width:min(12em,15%);height:.8em;vertical-align:middle;margin-right:.6em"


def line(event: Progress) -> str:
    """Return the line of a step: ``pushing to host/cells: 12.3 of 126.0 MB, 14s (a layer)``."""
    return _joined(event, "")


def line_with_bar(event: Progress) -> str:
    """Return the line of a step with a bar of characters, if the whole amount is known."""
    return _joined(event, f"{_bar(_fraction(event))} " if _has_bar(event) else "")


def html(event: Progress) -> str:
    """Return the line of a step as HTML, with a bar if the whole amount is known."""
    from html import escape  # not for a terminal: it imports the names of all characters

    bar = ""
    if _has_bar(event):
        part = _fraction(event)
        bar = f'<progress max="1" value="{part:.3f}" style="{_BAR}"></progress>'
    text = escape(line(event))
    return f'<div style="{_LINE}" title="{text}">{bar}{text}</div>'


def notice_html(text: str) -> str:
    """Return the sentence that a step begins with as HTML, as high as the step's line."""
    from html import escape

    return f'<div style="{_LINE}">{escape(visible(text))}</div>'


def announcement(event: Progress) -> str:
    """Return a text that stays true where an output is never updated."""
    return f"{visible(event.step)} …"


def _joined(event: Progress, bar: str) -> str:
    took = span(event.seconds)
    amount = _amount(event)
    if event.over:
        words = f"{amount or 'done'} in {took}"
    else:
        words = f"{bar}{amount}, {took}" if amount else took
    # Last, because a narrow place cuts the end of the line.
    detail = f" ({short(visible(event.detail))})" if event.detail and not event.over else ""
    return f"{visible(event.step)}: {words}{detail}"


def _amount(event: Progress) -> str:
    """Return the amount; "" if it is unknown."""
    done, total = event.done, event.total
    whole = max(done, total)
    if whole <= 0:
        return ""
    if event.unit is Unit.BYTES:
        size, unit = next((one for one in _SIZES if whole >= one[0]), (1, "bytes"))
        digits = 0 if size == 1 else 1
        said = f"{done / size:,.{digits}f}"
        return (
            f"{said} of {total / size:,.{digits}f} {unit}" if _partial(event) else f"{said} {unit}"
        )
    unit = str(event.unit) if whole > 1 else str(event.unit).removesuffix("s")
    return f"{done:,} of {total:,} {unit}" if _partial(event) else f"{done:,} {unit}"


def _partial(event: Progress) -> bool:
    return bool(event.total) and not event.over


def _has_bar(event: Progress) -> bool:
    return event.total > 0 and not event.over


def _fraction(event: Progress) -> float:
    return min(1.0, max(0.0, event.done / event.total))


def _bar(part: float) -> str:
    full = int(part * _WIDTH)
    return f"[{'#' * full}{'-' * (_WIDTH - full)}]"
