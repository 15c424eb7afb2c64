"""Pillow as a peer: draws the picture of a plot as ciao's own PNG writer does."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import PIL
from PIL import Image, ImageDraw, ImageFont

from ciao_kernel.display.plot.svg import INK, Area, Line, Picture, Point, Text

NAME = f"Pillow {PIL.__version__}"
_SCALE = 2
"""Dots per CSS pixel, as ciao's."""
_OVER = 2
"""Lines and areas are drawn so much larger: ImageDraw has no antialiasing but for letters."""
_ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}


def png(picture: Picture) -> bytes:
    """Draw a picture with a transparent background and a palette, Pillow's smallest files."""
    scale = _SCALE * _OVER
    image = Image.new("RGBA", (picture.width * scale, picture.height * scale))
    pen = ImageDraw.Draw(image)
    for shape in picture.shapes:
        if isinstance(shape, Area):
            edge = (*shape.top, *reversed(shape.bottom))
            pen.polygon(_scaled(edge, scale), _color(shape.color, shape.opacity))
        elif isinstance(shape, Line):
            _line(pen, shape, scale)
    image = image.reduce(_OVER)
    pen = ImageDraw.Draw(image)
    for shape in picture.shapes:
        if isinstance(shape, Text):
            font = ImageFont.load_default(shape.size * _SCALE)
            place, anchor = (shape.x * _SCALE, shape.y * _SCALE), _ANCHORS[shape.anchor]
            bold = 0.4 * _SCALE if shape.bold else 0
            pen.text(place, shape.text, _color(INK, 1), font, anchor, stroke_width=bold)
    file = io.BytesIO()
    dots_an_inch = 96 * _SCALE
    small = image.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    small.save(file, "PNG", dpi=(dots_an_inch, dots_an_inch))
    return file.getvalue()


def _line(pen: ImageDraw.ImageDraw, line: Line, scale: int) -> None:
    points, color = _scaled(line.points, scale), _color(line.color, line.opacity)
    if len(points) == 1:
        pen.circle(points[0], line.width * scale / 2, color)
        return
    width = max(1, round(line.width * scale))
    if not line.dash:
        pen.line(points, color, width, joint="curve")
    for piece in _dashed(points, [one * scale for one in line.dash]) if line.dash else ():
        pen.line(piece, color, width)


def _dashed(points: Sequence[Point], dash: Sequence[int]) -> Iterator[tuple[Point, Point]]:
    """The drawn pieces of a dashed line, which ImageDraw does not know."""
    number, left = 0, float(dash[0])
    for (x, y), end in pairwise(points):
        apart = math.dist((x, y), end)
        done = 0.0
        while done < apart:
            step = min(left, apart - done)
            across, down = (end[0] - x) / apart, (end[1] - y) / apart
            if number % 2 == 0:
                begin = (x + across * done, y + down * done)
                yield begin, (begin[0] + across * step, begin[1] + down * step)
            done, left = done + step, left - step
            if left <= 0:
                number += 1
                left = float(dash[number % len(dash)])


def _scaled(points: Sequence[Point], scale: int) -> list[Point]:
    return [(x * scale, y * scale) for x, y in points]


def _color(color: str, opacity: float) -> tuple[int, ...]:
    return (*bytes.fromhex(color[1:]), round(opacity * 255))
