"""The profile of a job as a flame graph, or as text. Everything that comes from a job is escaped.

The graph is SVG inside of HTML: a picture of its own (``image/svg+xml``) shows no titles under the
pointer. It has no script and no style sheet, and its texts are on fills of their own, so that it is
the same in light and dark pages.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from ciao_kernel.model.profile import CallTree, Profile
from ciao_kernel.visible_text import short, visible

_WIDTH = 960
_ROW = 18
_THINNEST = 1.5
"""Pixels of a call that is drawn."""
_MOST = 2000
"""Calls that are drawn; the rarest are left out."""
_LETTER = 5.6
"""Pixels of a letter at least; what is too long is clipped by the call's own box."""
_TEXT, _OWN, _LIBRARY = "#14171a", "#f4a650", "#a9cbe8"
_LEAST = 0.01
"""Share of a call that the text shows."""
_LINES = 60
_CHAIN = 4
"""Functions of libraries in a line of the text: the first ones and the last one."""
_LONGEST = 110


@dataclass(frozen=True, slots=True)
class Box:
    """One drawn call, in pixels."""

    call: CallTree
    x: float
    depth: int
    width: float


def boxes(tree: CallTree, width: float = _WIDTH) -> list[Box]:
    """Return what is drawn of a tree: widths in proportion to samples, callers first."""
    waiting: list[tuple[int, int, Box]] = []
    found: list[Box] = []

    def add(box: Box) -> None:
        if box.width >= _THINNEST:
            number = len(found) + len(waiting)
            heapq.heappush(waiting, (-box.call.count, number, box))

    if tree.count > 0:
        add(Box(tree, 0.0, 0, width))
    while waiting and len(found) < _MOST:
        _, _, box = heapq.heappop(waiting)
        found.append(box)
        x = box.x
        for call in box.call.calls:
            part = width * call.count / tree.count
            add(Box(call, x, box.depth + 1, part))
            x += part
    return found


def svg(profile: Profile) -> str:
    """Return the flame graph, outermost calls at the top."""
    drawn = boxes(profile.tree)
    height = _ROW * (1 + max((box.depth for box in drawn), default=0))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" role="img" style="max-width:100%;height:auto" '
        'font-size="11" font-family="system-ui,-apple-system,Segoe UI,Roboto,Arial,sans-serif">'
        f"{''.join(_drawn(box, profile.tree.count) for box in drawn)}</svg>"
    )


def html(profile: Profile) -> str:
    """Return the profile for a cell."""
    remarks = "".join(f"<div>{escape(visible(one))}</div>" for one in profile.remarks)
    legend = f"{_legend(_OWN, 'lines of the cell')} {_legend(_LIBRARY, 'libraries')}"
    drawn = f"{svg(profile)}<div><small>{legend}</small></div>" if profile.tree.count else ""
    return (
        f'<div class="ciao-profile"><div>{escape(visible(profile.title))}</div>{remarks}{drawn}'
        "</div>"
    )


def text(profile: Profile) -> str:
    """Return the profile as a tree with percentages."""
    lines = [visible(profile.title), *map(visible, profile.remarks)]
    total = profile.tree.count
    rows = [row for call in profile.tree.calls for row in _rows(call, total, 0)]
    for depth, call, name in rows[:_LINES]:
        share = f"{100 * call.count / total:3.0f} %"
        detail = f"  {call.detail}" if call.detail else ""
        lines.append(short(visible(f"{share}  {'  ' * depth}{name}{detail}"), _LONGEST))
    if len(rows) > _LINES:
        lines.append(f"… and {len(rows) - _LINES} more lines")
    return "\n".join(lines)


def _rows(call: CallTree, total: int, depth: int) -> Iterator[tuple[int, CallTree, str]]:
    """Yield depth, call and name of each line; calls of libraries in a row are one line."""
    if call.count < _LEAST * total:
        return
    names = [call.name]
    while not call.own and len(call.calls) == 1 and not call.calls[0].own:
        if call.calls[0].count < call.count:
            break
        call = call.calls[0]
        names.append(call.name)
    if len(names) > _CHAIN:
        names[_CHAIN - 1 : -1] = ["…"]
    yield depth, call, " → ".join(names)
    for one in call.calls:
        yield from _rows(one, total, depth + 1)


def _drawn(box: Box, total: int) -> str:
    call, share = box.call, f"{100 * box.call.count / total:.1f} %"
    color = _OWN if call.own else _LIBRARY
    detail = f"\n{call.detail}" if call.detail else ""
    title = escape(_printable(f"{call.name}: {share}, {call.count:,} samples{detail}"))
    letters = int((box.width - 6) / _LETTER)
    words = f"{call.name} · {call.detail}" if call.own and call.detail else call.name
    label = ""
    if letters >= 3:
        shown = escape(_printable(short(words, letters)))
        label = f'<text x="3" y="13" fill="{_TEXT}">{shown}</text>'
    # A gap of half a pixel parts the calls. The inner svg clips its text.
    return (
        f'<svg x="{box.x:.2f}" y="{box.depth * _ROW}" width="{max(box.width - 0.5, 0.5):.2f}" '
        f'height="{_ROW - 1}"><g><title>{title}</title>'
        f'<rect width="100%" height="100%" fill="{color}"/>{label}</g></svg>'
    )


def _legend(color: str, words: str) -> str:
    return f'<span style="background:{color};color:{_TEXT};padding:0 .5em">{words}</span>'


def _printable(words: str) -> str:
    """Return a text that XML accepts; line feeds stay, for titles."""
    return "\n".join(map(visible, words.split("\n")))
