"""What can be read: contrast in both themes, and a page that stays quick under much output."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from tests.browser.lab import Color, Lab
from tests.browser.server import Server
from tests.helpers.kernels import JOB

READABLE = 4.5
"""Least contrast of text and ground (WCAG 2, AA)."""
FIXED = 4.0
"""The same of replicas' names and of a picture's text, whose colours are fixed: in both themes none
has more than 4.35."""


def luminance(color: Color) -> float:
    parts = [part / 255 for part in color]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Color, other: Color) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


CELLS = [
    JOB + "print('fine')",
    JOB + "def train():\n    raise ValueError('no')\ntrain()",
    "%framework=tensorflow\n%wroker=2\n1",
    "%ciao jobs",
    JOB + "%plot=loss\nfor i in range(1, 20): print('loss', 1 / i)",
]
CURVES = 4
"""The cell with a picture."""
PARTS = {
    "title": "b",
    "heading": "th",
    "name": "td:nth-child(1)",
    "state": "td:nth-child(2) span",
    "last line": "td code",
    "place": "div > code",
}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everything_can_be_read(
    serve: Callable[..., Server],
    open_lab: Callable[..., Lab],
    figure: Callable[[str], None],
    theme: str,
) -> None:
    lab = open_lab(serve("lab"), CELLS)
    if theme == "dark":
        lab.dark()
    found = {}
    for number in range(len(CELLS)):
        lab.run(number)
        lab.wait_done(number)
        area = lab.cell(number).locator(".jp-Cell-outputArea")
        colored = area.locator("pre span")
        parts = {f"span {i}": colored.nth(i) for i in range(colored.count())}
        parts |= (
            {name: area.locator(css).first for name, css in PARTS.items()} if number < 2 else {}
        )
        for name, element in parts.items():
            value = contrast(*lab.colors(element))
            found[f"cell {number} {name} {element.inner_text()[:30]!r}"] = value
    # The page shows the picture as an image, whose parts have no style to ask for.
    picture = lab.cell(CURVES).locator(".jp-RenderedSVG img[src^='data:image/svg+xml']")
    _, ground = lab.colors(picture)
    (data,) = [one["data"] for one in lab.outputs(CURVES) if "image/svg+xml" in one.get("data", {})]
    inks = set(re.findall(r'<text [^>]*fill="#(\w{6})"', data["image/svg+xml"]))
    assert inks
    for ink in inks:
        red, green, blue = bytes.fromhex(ink)
        assert contrast((red, green, blue), ground) >= FIXED
    assert len(found) > 12
    least = min(found, key=lambda name: found[name])
    figure(f"least contrast {found[least]:.1f}: {least}")
    short = {name: round(value, 1) for name, value in found.items() if value < READABLE}
    assert [name for name, value in short.items() if "[worker-" not in name or value < FIXED] == []


MANY = (
    "%framework=tensorflow\n%worker=64\n"
    "import os, sys\n"
    "for i in range(1563): print('step', i, 'loss', 1 / (i + 1), flush=i % 50 == 0)\n"
)
"""64 replicas, 100,000 lines."""


def test_page_answers_while_much_is_shown(
    serve: Callable[..., Server], open_lab: Callable[..., Lab], figure: Callable[[str], None]
) -> None:
    lab = open_lab(serve("lab"), ["", MANY])
    lab.watch_frames()
    started = time.monotonic()
    lab.run(1)
    lab.wait_outputs(1, 120)
    typed = "typed while the lines come in"
    lab.type(0, typed)
    lab.wait(f"{lab.source(0)} === '{typed}'")
    lab.wait_done(1, 240)
    took = time.monotonic() - started
    frames, tasks = lab.frames()
    slow = sum(frame > 200 for frame in frames)
    figure(
        f"{took:.0f} s; longest frame {max(frames):.0f} ms, {slow} of {len(frames)} above 200 ms; "
        f"longest task {max(tasks):.0f} ms"
    )
    text = lab.text(1)
    assert ": Succeeded" in text
    assert "lines are shown; all are in the log files" in text or text.count("step") >= 100_000
    assert lab.cell(1).locator("table tbody tr").count() == 64
    size = len(str(lab.outputs(1)))
    figure(f"{size / 1e6:.1f} MB of output in the notebook")
