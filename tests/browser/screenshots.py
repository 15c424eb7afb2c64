"""Make the pictures of README.md and docs/: what a user sees, from a real browser.

    python -m tests.browser.screenshots [NAME …]

Everything in them is real: JupyterLab, the installed wheel, TensorFlow. `make screenshots`
makes all of them again. They stay below 150 kB each.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.browser.chromium import started
from tests.browser.lab import Lab
from tests.browser.server import Server, serving
from tests.helpers.installed import ROOT, Environment, build
from tests.helpers.kernels import Place

IMAGES = ROOT / "docs" / "images"
_QUICKSTART = ROOT / "notebooks" / "quickstart.ipynb"
_RIGHT, _WRONG = "{task['index']} is done", "{task['id']} is done"


def main() -> None:
    """Make the pictures that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(_PICTURES))
    names = parser.parse_args().names or list(_PICTURES)
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ciao-") as made:
        folder = Path(made)
        environment = Environment(folder / "env")
        (wheel,) = build(folder / "package", "--wheel").glob("*.whl")
        environment.install(wheel)
        place = Place(folder / "home")
        with started() as browser, serving(place, environment) as server:
            for name in names:
                picture, (width, height) = _PICTURES[name]
                notebook = _prepare(server, name)
                lab = Lab(browser, server, notebook, (width, height))
                lab.wait_idle()
                lab.theme("light")
                lab.page.keyboard.press("Control+b")  # the list of files goes
                picture(lab)
                lab.page.mouse.move(width - 2, height - 2)
                file = IMAGES / f"{name}.png"
                lab.page.screenshot(path=file)
                print(f"wrote {file.relative_to(ROOT)}, {file.stat().st_size / 1000:.0f} kB")
                lab.close()


def _prepare(server: Server, name: str) -> str:
    """Copy the quickstart for a picture; the one of a failure gets a fault."""
    target = server.place.work / f"{name}.ipynb"
    shutil.copy(_QUICKSTART, target)
    if name == "failed":
        text = target.read_text()
        assert _RIGHT in text
        target.write_text(text.replace(_RIGHT, _WRONG))
    return target.name


def _running(lab: Lab) -> None:
    lab.run(1)
    lab.wait_text(1, "[worker-1] step", 180)
    output = lab.cell(1).locator(".jp-Cell-outputArea")
    # Some lines more, so that there is something to see.
    output.filter(has_text=re.compile(r"step [5-9]\d\d ")).wait_for()
    output.evaluate("node => node.scrollIntoView({block: 'start'})")
    panel = lab.page.locator(".jp-WindowedPanel-outer").first
    panel.evaluate("node => node.scrollBy(0, -40)")  # the table's title below the edge


def _failed(lab: Lab) -> None:
    lab.run(1)
    lab.wait_done(1, 180)
    error = lab.cell(1).locator("[data-mime-type='application/vnd.jupyter.stderr']")
    error.scroll_into_view_if_needed()


def _completion(lab: Lab) -> None:
    lab.page.keyboard.press("Escape")
    lab.type(1, "%framework=tensorflow\n%worker=2;%c")
    lab.complete()


_PICTURES: dict[str, tuple[Callable[[Lab], None], tuple[int, int]]] = {
    "running": (_running, (1000, 620)),
    "failed": (_failed, (1000, 560)),
    "completion": (_completion, (1000, 420)),
}


if __name__ == "__main__":
    main()
