"""Shapes of a picture, and their form as SVG.

A picture has no background, and only colours that are readable on white and on black: it appears
in light and dark notebooks, where no style sheet reaches it.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]

INK = "#787878"
"""Colour of texts and axes: contrast 4.4:1 on white, 4.3:1 on JupyterLab's dark background."""


@dataclass(frozen=True, slots=True)
class Line:
    """A stroke through points; a single point is a dot. ``dash`` is as in SVG."""

    points: Sequence[Point]
    color: str = INK
    width: float = 1.0
    dash: tuple[int, ...] = ()
    opacity: float = 1.0


@dataclass(frozen=True, slots=True)
class Area:
    """A filled shape: a top edge from left to right, and a bottom edge at the same places."""

    top: Sequence[Point]
    bottom: Sequence[Point]
    color: str
    opacity: float


@dataclass(frozen=True, slots=True)
class Text:
    """One line of text; ``y`` is its base line, ``anchor`` start, middle or end."""

    x: float
    y: float
    text: str
    anchor: str = "start"
    size: float = 12.0
    bold: bool = False


Shape = Line | Area | Text


@dataclass(frozen=True, slots=True)
class Picture:
    """Shapes, the lower ones first, in units of a CSS pixel from the top left corner."""

    width: int
    height: int
    shapes: Sequence[Shape]
    title: str
    """Description for readers who cannot see the picture."""


def svg(picture: Picture) -> str:
    """Write a picture as SVG: no script, no style sheet, no link."""
    width, height, title = picture.width, picture.height, escape(printable(picture.title))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" '
        'font-family="system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif">'
        f"<title>{title}</title>{''.join(map(_drawn, picture.shapes))}</svg>"
    )


def html(picture: Picture) -> str:
    """Write a picture as an image element: as wide as it is, or as its place if that is narrower.

    Browsers run no script and load nothing for such an image.
    """
    data = base64.b64encode(svg(picture).encode()).decode("ascii")
    return (
        f'<img src="data:image/svg+xml;base64,{data}" width="{picture.width}" '
        f'height="{picture.height}" alt="{escape(printable(picture.title))}" '
        'style="display:block;margin:0;max-width:100%;height:auto">'
    )


def _drawn(shape: Shape) -> str:
    if isinstance(shape, Text):
        anchor = f' text-anchor="{shape.anchor}"' if shape.anchor != "start" else ""
        weight = ' font-weight="600"' if shape.bold else ""
        return (
            f'<text x="{shape.x:.1f}" y="{shape.y:.1f}" font-size="{shape.size:g}" '
            f'fill="{INK}"{anchor}{weight}>{escape(printable(shape.text))}</text>'
        )
    if isinstance(shape, Area):
        path = f"M{_path(shape.top)}L{_path(shape.bottom[::-1])}Z"
        return f'<path d="{path}" fill="{shape.color}" fill-opacity="{shape.opacity:g}"/>'
    path = f"M{_path(shape.points)}" + ("h0" if len(shape.points) == 1 else "")
    dash = f' stroke-dasharray="{" ".join(map(str, shape.dash))}"' if shape.dash else ""
    fade = f' stroke-opacity="{shape.opacity:g}"' if shape.opacity < 1 else ""
    return (
        f'<path d="{path}" fill="none" stroke="{shape.color}" stroke-width="{shape.width:g}" '
        f'stroke-linejoin="round" stroke-linecap="round"{dash}{fade}/>'
    )


def _path(points: Sequence[Point]) -> str:
    """Format coordinates, as numbers only: no text of a job gets here."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def printable(text: str) -> str:
    """Replace control characters in a text: XML does not accept them, not even escaped."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
