"""What can be read: contrast in both themes, and a page that stays quick under much output."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator

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


def opaque(picture: Locator) -> list[Color]:
    """The colours of all dots of a picture that are drawn in full: texts, axes and curves."""
    found: list[list[int]] = picture.evaluate(
        """async image => {
            await image.decode();
            const canvas = new OffscreenCanvas(image.naturalWidth, image.naturalHeight);
            const context = canvas.getContext('2d');
            context.drawImage(image, 0, 0);
            const dots = context.getImageData(0, 0, canvas.width, canvas.height).data;
            const colors = new Set();
            for (let at = 0; at < dots.length; at += 4)
                if (dots[at + 3] === 255) colors.add(dots.slice(at, at + 3).join());
            return [...colors].map(color => color.split(',').map(Number));
        }"""
    )
    return [(red, green, blue) for red, green, blue in found]


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


@pytest.mark.second("browser", only="dark")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everything_can_be_read(
    serve: Callable[..., Server],
    open_lab: Callable[..., Lab],
    figure: Callable[[str], None],
    theme: str,
) -> None:
    lab = open_lab(serve("lab"), CELLS)
    lab.theme(theme)
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
            found[f"cell {number} {name} {lab.read(element)[:30]!r}"] = value
    # The page shows the picture as an image, whose parts have no style to ask for.
    picture = lab.cell(CURVES).locator(".jp-RenderedImage img[src^='data:image/png']")
    _, ground = lab.colors(picture)
    inks = opaque(picture)
    assert len(inks) >= 3  # the texts' and two replicas'
    assert min(contrast(ink, ground) for ink in inks) >= FIXED
    # What is called light is light: an earlier page may have left the other theme.
    assert (luminance(ground) > 0.5) == (theme == "light"), ground
    assert len(found) > 12
    least = min(found, key=lambda name: found[name])
    figure(f"least contrast {found[least]:.1f}: {least}")
    short = {name: round(value, 1) for name, value in found.items() if value < READABLE}
    assert [name for name, value in short.items() if "[worker-" not in name or value < FIXED] == []


CONFINED = (
    JOB + "%plot=loss,accuracy\nimport os, time\ni = 0\n"
    "while not os.path.exists({!r}):\n"
    "    i += 1\n    print('loss', 1 / i, 'accuracy', 1 - 1 / i, flush=True)\n    time.sleep(.1)"
)
"""Draws until a file is there."""
EDGES = """kind => {
    const image = document.querySelector(`img[src^='data:image/${kind}']`);
    const place = image.closest('.jp-OutputArea-output'), area = image.closest('.jp-OutputArea');
    const box = image.getBoundingClientRect();
    return {
        width: box.width, height: box.height, right: box.right,
        most: Math.min(
            place.getBoundingClientRect().right, area.getBoundingClientRect().right, innerWidth
        ),
        scrolled: place.scrollWidth - place.clientWidth,
    };
}"""


@pytest.mark.second("browser")
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1000, 700])
def test_a_picture_is_never_cut_at_its_right_end(
    serve: Callable[..., Server],
    open_lab: Callable[..., Lab],
    figure: Callable[[str], None],
    tmp_path: Path,
    width: int,
    theme: str,
) -> None:
    enough = tmp_path / "enough"
    lab = open_lab(serve("lab"), [CONFINED.format(str(enough))])
    lab.theme(theme)
    lab.page.set_viewport_size({"width": width, "height": 900})
    lab.run(0)
    for kind in ("svg+xml", "png"):
        lab.cell(0).locator(f"img[src^='data:image/{kind}']").wait_for()
        edges = lab.page.evaluate(EDGES, kind)  # in one step: a live picture is replaced
        figure(
            f"{kind}: {edges['width']:.0f} px wide, {edges['most'] - edges['right']:.0f} px left"
        )
        assert 0 < edges["right"] <= edges["most"] + 0.5, kind
        assert edges["scrolled"] == 0, kind
        assert 200 < edges["width"] <= 720
        # It is smaller as a whole, and not pressed together.
        assert 0.6 < edges["height"] / edges["width"] < 0.95
        enough.touch()
    lab.wait_done(0)
    assert lab.cell(0).locator(".jp-OutputArea-output img").count() == 1


LIVE = (
    "%framework=tensorflow\n%ps=1;%worker=2\n%cleanPolicy=running\n"
    "import json, os, time\n"
    "task = json.loads(os.environ['TF_CONFIG'])['task']\n"
    "while not os.path.exists('begin'): time.sleep(0.1)\n"
    "i = 0\n"
    "while not os.path.exists('go-on'):\n"
    "    print('x' if i % 2 else 'a long line ' * 40 + '\u4e2d\U0001f600', flush=True)\n"
    "    time.sleep(0.1)\n"
    "    i += 1\n"
    "while task['type'] == 'ps': time.sleep(1)\n"
)
"""Last lines of very different lengths and letters; the parameter server is stopped at the end."""
GEOMETRY = """() => {
    const seen = window.ciaoGeometry = {shapes: new Set(), lines: new Set()};
    const look = () => {
        const table = document.querySelector('.jp-OutputArea-output table');
        if (!table || table.querySelectorAll('tbody tr').length < 3) return;
        const top = table.getBoundingClientRect();
        const shape = [...table.querySelectorAll('th, td, tr')].map(one => {
            const box = one.getBoundingClientRect();
            return [box.x - top.x, box.y - top.y, box.width, box.height].map(Math.round).join(' ');
        });
        seen.shapes.add(shape.join('; '));
        seen.lines.add(table.querySelector('td code').textContent);
    };
    new MutationObserver(look).observe(document.body, {childList: true, subtree: true});
}"""
"""Notes the place and size of every row and cell whenever the page has changed."""


@pytest.mark.second("browser")
@pytest.mark.parametrize("width", [1000, 700])
def test_the_table_does_not_move_while_a_job_runs(
    serve: Callable[..., Server], open_lab: Callable[..., Lab], width: int
) -> None:
    server = serve("lab")
    lab = open_lab(server, [LIVE])
    lab.page.set_viewport_size({"width": width, "height": 900})
    lab.page.evaluate(GEOMETRY)
    before = set(server.place.job_folders())
    lab.run(0)
    lab.wait("ciaoGeometry.lines.size >= 1")
    (job,) = set(server.place.job_folders()) - before
    (job / "work" / "begin").touch()
    lab.wait("ciaoGeometry.lines.size >= 3")
    (job / "work" / "go-on").touch()
    lab.wait_done(0)
    lab.wait_text(0, "Stopped")
    seen = lab.page.evaluate(
        "() => ({shapes: [...ciaoGeometry.shapes], lines: [...ciaoGeometry.lines]})"
    )
    assert len(seen["lines"]) >= 3  # nothing yet, a short and a long line
    assert len(seen["shapes"]) == 1, "\n".join(seen["shapes"])
    rows = lab.cell(0).locator("tbody tr")
    heights = [rows.nth(at).evaluate("row => row.offsetHeight") for at in range(rows.count())]
    assert max(heights) - min(heights) <= 1  # the first row has half of the heading's border
    # Neither a name nor a time needs a second line, or is cut.
    assert lab.cell(0).evaluate(
        """cell => [...cell.querySelectorAll('td:nth-child(1), td:nth-child(3)')].every(
            one => one.scrollWidth <= one.clientWidth && one.clientHeight < 40)"""
    )
    assert "took" in lab.read(rows.first)
    # Other columns go where the cell is narrow, also beside the list of files.
    room = 150 if width == 1000 else 60
    assert rows.first.locator("code").evaluate("code => code.clientWidth") > room
    # The parameter server's planned end is no warning: its colour is the text's own.
    state = lab.cell(0).locator("td span", has_text="Stopped")
    red, green, blue = lab.colors(state)[0]
    assert max(red, green, blue) - min(red, green, blue) < 10


LINKED = (
    "import os, pathlib\n"
    "folder = pathlib.Path('my jobs & <more>').absolute()\n"
    "folder.mkdir(exist_ok=True)\n"
    "os.environ['CIAO_STORAGE'] = str(folder)\n"
)
"""Jobs in a folder below the server's root, with a name that needs every kind of escaping."""


@pytest.mark.second("browser")
def test_logs_and_folders_below_the_servers_root_open_by_a_click(
    serve: Callable[..., Server], open_lab: Callable[..., Lab]
) -> None:
    lab = open_lab(serve("lab"), [LINKED, JOB + "print('found in the log')"])
    for number in (0, 1):
        lab.run(number)
        lab.wait_done(number)
    area = lab.cell(1).locator(".jp-Cell-outputArea")
    with lab.context.expect_page() as opened:
        area.get_by_role("link", name="logs").click()
    opened.value.locator(".jp-DirListing-item", has_text="worker-0.log").wait_for()
    opened.value.close()
    area.get_by_role("link", name="worker-0.log").click()
    lab.page.locator(".jp-FileEditor", has_text="found in the log").wait_for()


MANY = (
    "%framework=tensorflow\n%worker=64\n%lines=all\n"
    "import os, sys\n"
    "for i in range(1563): print('step', i, 'loss', 1 / (i + 1), flush=i % 50 == 0)\n"
)
"""64 replicas, 100,000 lines."""


@pytest.mark.second("browser")
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


LONG = (
    "%framework=tensorflow\n%worker=1\nimport os, time\n"
    "for i in range(3000): print('step', i, flush=True)\n"
    "while not os.path.exists({!r}): time.sleep(.05)\n"
)


@pytest.mark.second("browser")
def test_a_long_log_leaves_a_page_of_usual_height(
    serve: Callable[..., Server],
    open_lab: Callable[..., Lab],
    figure: Callable[[str], None],
    tmp_path: Path,
) -> None:
    go_on = tmp_path / "go-on"
    lab = open_lab(serve("lab"), [LONG.format(str(go_on))])
    lab.run(0)
    box = lab.cell(0).locator("pre", has_text="[worker-0] step 2999")
    box.wait_for(timeout=120_000)
    assert box.evaluate("pre => pre.parentElement.clientHeight") < 400
    # The newest line is in sight without scrolling.
    assert box.evaluate(
        "pre => pre.getBoundingClientRect().bottom"
        " <= pre.parentElement.getBoundingClientRect().bottom + 1"
    )
    assert "step 2999" not in "".join(str(one) for one in lab.outputs(0) if "text" in one)
    go_on.touch()
    lab.wait_done(0, 120)
    lab.wait_text(0, "left out here")
    text = lab.text(0)
    assert text.count("[worker-0] step") == 400
    assert "… 2,600 lines of worker-0 are left out here" in text
    height = lab.cell(0).locator(".jp-Cell-outputArea").first.evaluate("area => area.scrollHeight")
    figure(f"{height:.0f} px high with 3,000 lines")
    assert height < 10_000
    shown = lab.cell(0).locator(".jp-OutputArea-output")
    heights = shown.evaluate_all("all => all.map(one => one.offsetHeight)")
    assert min(heights) < 10, "the emptied box takes room"
