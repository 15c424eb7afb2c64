"""Draws a picture as PNG, with only the standard library.

For saved notebooks, wherever they are shown: GitHub, PDFs and untrusted notebooks in JupyterLab
show no SVG. The PNG is drawn once, when a job is over.
"""

from __future__ import annotations

import itertools
import math
import struct
import zlib
from collections.abc import Iterator, Sequence

from ciao_kernel.display.plot.stroke_font import length, strokes
from ciao_kernel.display.plot.svg import INK, Area, Line, Picture, Point, Shape, Text

_SCALE = 2
"""Dots per CSS pixel, for high-resolution screens."""
_LONGEST = 400_000
"""Total length of lines, in CSS pixels, above which one dot per pixel is drawn, to save time."""
_LEVELS = 16
"""Levels of opacity of each colour; 0 is transparent."""
_MOST_COLORS = 256 // _LEVELS


def png(picture: Picture) -> bytes:
    """Draw a picture; its background is transparent."""
    lines = (shape.points for shape in picture.shapes if isinstance(shape, Line))
    canvas = _Canvas(picture, 1 if sum(map(_length, lines)) > _LONGEST else _SCALE)
    for shape in picture.shapes:
        canvas.draw(shape)
    return canvas.file()


class _Canvas:
    """Dots; each has a colour and an opacity, as an index into the palette."""

    def __init__(self, picture: Picture, scale: int) -> None:
        self._scale = scale
        self._width, self._height = picture.width * scale, picture.height * scale
        self._dots = bytearray(self._width * self._height)
        self._colors: list[str] = []

    def draw(self, shape: Shape) -> None:
        if isinstance(shape, Area):
            self._area(shape)
        elif isinstance(shape, Text):
            self._text(shape)
        else:
            self._line(shape.points, shape.color, shape.width, shape.opacity, shape.dash)

    def file(self) -> bytes:
        """Return the canvas as a PNG file (W3C PNG 3) with a palette."""
        rows = range(0, len(self._dots), self._width)
        data = b"".join(b"\0" + self._dots[start : start + self._width] for start in rows)
        palette = b"".join(bytes.fromhex(color[1:]) * _LEVELS for color in self._colors or [INK])
        clear = bytes(round(level * 255 / (_LEVELS - 1)) for level in range(_LEVELS))
        size = struct.pack(">IIBBBBB", self._width, self._height, 8, 3, 0, 0, 0)
        pixels_per_meter = round(self._scale * 96 / 0.0254)
        chunks = (
            (b"IHDR", size),
            (b"pHYs", struct.pack(">IIB", pixels_per_meter, pixels_per_meter, 1)),
            (b"PLTE", palette),
            (b"tRNS", clear * max(1, len(self._colors))),
            (b"IDAT", zlib.compress(data)),
            (b"IEND", b""),
        )
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
            for kind, body in chunks
        )

    def _text(self, text: Text) -> None:
        share = {"start": 0.0, "middle": 0.5, "end": 1.0}[text.anchor]
        left = text.x - share * length(text.text, text.size)
        width = text.size * (0.125 if text.bold else 0.09)
        for stroke in strokes(text.text, text.size):
            points = [(left + x, text.y + y) for x, y in stroke]
            dot = width * 1.9 if len(points) == 1 else width
            self._line(points, INK, dot, 1.0, ())

    def _area(self, area: Area) -> None:
        value = self._base(area.color) + round(area.opacity * (_LEVELS - 1))
        tops = list(_columns(self._scaled(area.top)))
        bottoms = list(_columns(self._scaled(area.bottom)))
        for (x, top), (_, bottom) in zip(tops, bottoms, strict=False):
            first, last = max(0, round(top)), min(self._height, round(bottom))
            if 0 <= x < self._width and first < last:
                place = slice(first * self._width + x, last * self._width + x, self._width)
                self._dots[place] = bytes((value,)) * (last - first)

    def _line(
        self,
        points: Sequence[Point],
        color: str,
        width: float,
        opacity: float,
        dash: Sequence[int],
    ) -> None:
        base, half = self._base(color), width * self._scale / 2
        most = opacity * (_LEVELS - 1)
        scaled = self._scaled(points)
        if len(scaled) == 1:
            self._dot(scaled[0], base, half, most)
        for start, end in _dashed(scaled, [float(one * self._scale) for one in dash]):
            self._stroke(start, end, base, half, most)

    def _stroke(self, start: Point, end: Point, base: int, half: float, most: float) -> None:
        """Draw a piece of a line, column by column; a steep piece row by row."""
        (x0, y0), (x1, y1) = start, end
        along, across, wide, high = 1, self._width, self._width, self._height
        if abs(y1 - y0) > abs(x1 - x0):
            x0, y0, x1, y1 = y0, x0, y1, x1
            along, across, wide, high = across, along, high, wide
        if x0 > x1:
            x0, y0, x1, y1 = x1, y1, x0, y0
        slope = (y1 - y0) / (x1 - x0) if x1 > x0 else 0.0
        more = half / 2 if half < 4 else 0.0  # so that pieces meet where a line turns
        x0, x1, y0 = x0 - more, x1 + more, y0 - more * slope
        half *= math.sqrt(1 + slope * slope)
        dots = self._dots
        whole = (
            b"" if most < _LEVELS - 1 else bytes((base + _LEVELS - 1,)) * math.ceil(2 * half + 2)
        )
        for x in range(max(0, math.floor(x0)), min(wide, math.ceil(x1))):
            part = (x + 1 if x + 1 < x1 else x1) - (x if x > x0 else x0)
            middle = y0 + (x + 0.5 - x0) * slope
            top, bottom = middle - half, middle + half
            first, last = int(top), int(bottom)
            if first < 0 or last >= high:
                continue
            place = x * along + first * across
            if part == 1 and last - first > 1 and whole:
                # Inside the stroke, no dot is more opaque: one assignment, and the two edges.
                inside = last - first - 1
                under = place + (inside + 1) * across
                dots[place + across : under : across] = whole[:inside]
                value = int(most * (first + 1 - top) + 0.5)
                if value and value >= dots[place] % _LEVELS:
                    dots[place] = base + value
                value = int(most * (bottom - last) + 0.5)
                if value and value >= dots[under] % _LEVELS:
                    dots[under] = base + value
                continue
            for y in range(first, last + 1):
                covered = (y + 1 if y + 1 < bottom else bottom) - (y if y > top else top)
                value = int(most * part * covered + 0.5)
                if value and value >= dots[place] % _LEVELS:
                    dots[place] = base + value
                place += across

    def _dot(self, point: Point, base: int, half: float, most: float) -> None:
        reach = range(-math.ceil(half) - 1, math.ceil(half) + 2)
        for x in (int(point[0]) + one for one in reach):
            for y in (int(point[1]) + one for one in reach):
                away = math.hypot(x + 0.5 - point[0], y + 0.5 - point[1])
                value = round(most * min(1.0, max(0.0, half + 0.5 - away)))
                if value and 0 <= x < self._width and 0 <= y < self._height:
                    place = y * self._width + x
                    if value >= self._dots[place] % _LEVELS:
                        self._dots[place] = base + value

    def _scaled(self, points: Sequence[Point]) -> list[Point]:
        return [(x * self._scale, y * self._scale) for x, y in points]

    def _base(self, color: str) -> int:
        if color not in self._colors and len(self._colors) < _MOST_COLORS:
            self._colors.append(color)
        return _LEVELS * self._colors.index(color if color in self._colors else self._colors[0])


def _length(points: Sequence[Point]) -> float:
    return sum(abs(x1 - x0) + abs(y1 - y0) for (x0, y0), (x1, y1) in itertools.pairwise(points))


def _columns(points: Sequence[Point]) -> Iterator[tuple[int, float]]:
    """Yield the position of a line from left to right in each column."""
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        for x in range(round(x0), round(x1)):
            yield x, y0 + (x - x0) / (x1 - x0) * (y1 - y0)


def _dashed(points: Sequence[Point], dash: Sequence[float]) -> Iterator[tuple[Point, Point]]:
    """Yield the pieces of a line; of a dashed line, only the drawn pieces."""
    lengths = dash or [math.inf]
    number, left = 0, lengths[0]
    for start, end in itertools.pairwise(points):
        whole = math.hypot(end[0] - start[0], end[1] - start[1])
        done = 0.0
        while done < whole:
            step = min(left, whole - done)
            if number % 2 == 0:
                yield (
                    _between(start, end, done / whole),
                    _between(start, end, (done + step) / whole),
                )
            done, left = done + step, left - step
            if left <= 0:
                number += 1
                left = lengths[number % len(lengths)]


def _between(start: Point, end: Point, share: float) -> Point:
    return (start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share)
