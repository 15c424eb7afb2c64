"""Letters as strokes, for pictures that are drawn without a font.

A glyph is a list of strokes separated by ``|``; a stroke is a list of points, two digits each: x
and y.
The base line is 2, small letters end at 6 and capitals at 8; a stroke of one point is a dot.
"""

from __future__ import annotations

from collections.abc import Iterator

from ciao_kernel.display.plot.svg import Point

_ACROSS, _UP = 0.098, 0.119
"""Length of one unit, relative to the font size."""
_GAP = 1.9
_SPACE = 3.2
_ROOM = dict.fromkeys(".,:;!", 1.0)
"""More room on both sides of marks that would touch letters: 1.00 must not read 100."""
_BASE = 2

_GLYPHS = {
    "A": "022842|1434",
    "B": "02083847463505|3544433202",
    "C": "4738180703123243",
    "D": "02082846442202",
    "E": "48080242|0535",
    "F": "480802|0535",
    "G": "47381807031232434525",
    "H": "0802|4842|0545",
    "I": "2822",
    "J": "3833221203",
    "K": "0802|4804|1542",
    "L": "080242",
    "M": "0208254842",
    "N": "02084248",
    "O": "183847433212030718",
    "P": "02083847463505",
    "Q": "183847433212030718|2442",
    "R": "02083847463505|2542",
    "S": "473818070615354443321203",
    "T": "0848|2822",
    "U": "080312324348",
    "V": "082248",
    "W": "0812253248",
    "X": "0842|4802",
    "Y": "082548|2522",
    "Z": "08480242",
    "a": "16364542|441403123243",
    "b": "0802|0516364543321203",
    "c": "4536160503123243",
    "d": "4842|4536160503123243",
    "e": "04444536160503123243",
    "f": "38281712|0636",
    "g": "4641301001|4536160503123243",
    "h": "0802|0516364542",
    "i": "2622|28",
    "j": "36312010|38",
    "k": "0802|3604|1532",
    "l": "2822",
    "m": "0602|05162522|25364542",
    "n": "0602|0516364542",
    "o": "163645433212030516",
    "p": "0600|0516364543321203",
    "q": "4640|4536160503123243",
    "r": "0602|051626",
    "s": "45361605143443321203",
    "t": "18132232|0636",
    "u": "0603123243|4642",
    "v": "062246",
    "w": "0612253246",
    "x": "0642|4602",
    "y": "0622|4610",
    "z": "06460242",
    "0": "183847433212030718",
    "1": "072822",
    "2": "07183847460242",
    "3": "07183847463515|354443321203",
    "4": "32380444",
    "5": "480805354443321203",
    "6": "473818070312324344351504",
    "7": "084812",
    "8": "183847463515060718|353443321203041535",
    "9": "031232434738180706153546",
    ".": "22",
    ",": "22|2211",
    ":": "23|26",
    ";": "26|22|2211",
    "-": "0535",
    "_": "0141",
    "/": "0148",
    "+": "2723|0545",
    "=": "0646|0444",
    "%": "0248|07|43",
    "(": "38161432",
    ")": "18363412",
    "[": "38181232",
    "]": "18383212",
    "<": "460442",
    ">": "064402",
    "'": "2826",
    '"': "1816|3836",
    "|": "2921",
    "!": "2824|22",
    "?": "07183847462524|22",
    "*": "2824|0747|0545",
    "#": "1812|3832|0646|0444",
    "×": "0743|0347",
    "…": "02|32|62",
}
_UNKNOWN = "0208484202"


def strokes(text: str, size: float) -> Iterator[list[Point]]:
    """Yield the strokes of a text that begins at the origin; up is negative, as on a screen."""
    left = 0.0
    for letter in text:
        if letter.isspace():
            left += _SPACE
            continue
        lines = [_points(stroke) for stroke in _glyph(letter)]
        first = min(x for line in lines for x, _ in line) - _ROOM.get(letter, 0.0)
        for line in lines:
            yield [(size * _ACROSS * (left + x - first), size * _UP * (_BASE - y)) for x, y in line]
        left += _width(letter) + _GAP


def length(text: str, size: float) -> float:
    """Return the length of a text."""
    widths = (_SPACE if letter.isspace() else _width(letter) + _GAP for letter in text)
    return max(0.0, sum(widths) - _GAP) * size * _ACROSS


def _glyph(letter: str) -> list[str]:
    return _GLYPHS.get(letter, _UNKNOWN).split("|")


def _points(stroke: str) -> list[tuple[int, int]]:
    return [(int(stroke[at]), int(stroke[at + 1])) for at in range(0, len(stroke), 2)]


def _width(letter: str) -> float:
    places = [x for stroke in _glyph(letter) for x, _ in _points(stroke)]
    return max(places) - min(places) + 2 * _ROOM.get(letter, 0.0)
