"""A notebook's page in a real browser, used as a person uses it: clicks, keys, what is seen.

The same for JupyterLab and for Notebook. Fixtures of ``conftest.py`` give the server and the
browser; by hand it is::

    environment = Environment(folder / "env")            # tests/helpers/installed.py
    environment.install(wheel)
    place = Place(folder / "user")                        # tests/helpers/kernels.py
    with started() as browser, serving(place, environment, "lab") as server:
        lab = Lab.new(browser, server, ["%framework=tensorflow\\n%worker=2\\nprint('hi')", "6 * 7"])
        lab.run(0)                                        # Shift+Enter in the first cell
        lab.wait_text(0, "[worker-0] hi")                 # seen on the page
        lab.wait_done(0)                                  # its prompt has a number
        assert lab.outputs(0)[0]["output_type"] == "display_data"
        lab.run(1); lab.wait_done(1)
        lab.close()                                       # the page and its kernel
"""

from __future__ import annotations

import contextlib
import re
import time
from typing import Any

from playwright.sync_api import Browser, Error, Locator, Page

from tests.browser.server import Server

PATIENCE = 60.0
"""Seconds that any single thing on a page may take."""

Color = tuple[int, int, int]
"""Red, green and blue, 0 to 255."""

_PANEL = "window.jupyterapp?.shell?.currentWidget"
_CONTEXT = f"{_PANEL}?.sessionContext"
_STATUS = f"{_CONTEXT}?.session?.kernel?.status"
_COUNT_RESTARTS = f"""() => {{
    window.ciaoRestarts = 0;
    {_CONTEXT}.session.kernel.statusChanged.connect((_, status) => {{
        if (status === 'restarting') window.ciaoRestarts++;
    }});
}}"""


class Lab:
    """One page with one notebook.

    Args:
        browser: A running browser.
        server: Whose page it is.
        notebook: A file in the server's folder.
        size: Of the window, in pixels.
    """

    def __init__(
        self, browser: Browser, server: Server, notebook: str, size: tuple[int, int] = (1200, 900)
    ) -> None:
        self.server, self.notebook = server, notebook
        self.faults: list[str] = []
        """Exceptions of the page's own code."""
        self._browser, self._size = browser, size
        self.reopen()

    def reopen(self) -> None:
        """Open the notebook on a new page; the one before is to be closed."""
        width, height = self._size
        self.context = self._browser.new_context(viewport={"width": width, "height": height})
        self.context.set_default_timeout(PATIENCE * 1000)  # also of pages that this one opens
        self.page: Page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.goto(self.server.address(self.notebook), wait_until="domcontentloaded")

    @classmethod
    def new(
        cls,
        browser: Browser,
        server: Server,
        cells: list[str],
        name: str = "work.ipynb",
        kernel: str = "ciao",
    ) -> Lab:
        """Write a notebook, open it, and wait for its kernel."""
        server.write(name, cells, kernel)
        lab = cls(browser, server, name)
        lab.wait_idle()
        return lab

    def close(self) -> None:
        """End the kernel and the page."""
        # Where the page is gone, the server ends the kernel.
        with contextlib.suppress(Error):
            self.page.evaluate(f"{_CONTEXT}?.shutdown()")
        self.context.close()

    # ------------------------------------------------------------------------------ the kernel

    @property
    def status(self) -> str:
        """The kernel's as the page knows it: ``idle``, ``busy``, ``unknown`` …; empty without."""
        return str(self.page.evaluate(f"{_STATUS} ?? ''"))

    def wait_status(self, status: str, within: float = PATIENCE) -> float:
        """Wait for the kernel's status; return the seconds that it took."""
        return self.wait(f"{_CONTEXT}?.isReady && {_STATUS} === '{status}'", within)

    def wait_idle(self, within: float = PATIENCE) -> float:
        """Wait until the kernel is there and does nothing; return the seconds that it took."""
        return self.wait_status("idle", within)

    def stop(self) -> None:
        """Press the stop button."""
        self._button("interrupt").click()

    def restart(self) -> float:
        """Press the restart button and confirm; return the seconds until the kernel is idle."""
        # The old kernel's "idle" must not be taken for the new one's, and between them may be less
        # than the time of a look.
        self.page.evaluate(_COUNT_RESTARTS)
        started = time.monotonic()
        self._button("restart").click()
        self.page.locator(".jp-Dialog .jp-mod-accept").click()
        self.wait("window.ciaoRestarts > 0")
        self.wait_idle()
        return time.monotonic() - started

    def reload(self) -> None:
        """Load the page again, as F5 does; the kernel runs on."""
        self.page.reload(wait_until="domcontentloaded")

    # ------------------------------------------------------------------------------- the cells

    def cell(self, number: int) -> Locator:
        """A cell on the page, scrolled to: a page draws only the cells near the window."""
        self.page.evaluate(f"{_PANEL}.content.scrollToItem({number})")
        return self.page.locator(f'.jp-Notebook .jp-Cell[data-windowed-list-index="{number}"]')

    def click(self, number: int) -> None:
        """Put the cursor into a cell."""
        self.cell(number).locator(".cm-content").first.click()

    def run(self, number: int) -> None:
        """Shift+Enter in a cell."""
        self.click(number)
        self.page.keyboard.press("Shift+Enter")

    def type(self, number: int, text: str) -> None:
        """Replace a cell's text by typing."""
        self.click(number)
        self.page.keyboard.press("Control+a")
        self.page.keyboard.press("Delete")
        self.page.keyboard.type(text)

    def complete(self) -> list[str]:
        """Press Tab; return what the menu offers. Enter takes the first.

        Pressed again where nothing comes: the page may not have been ready.
        """
        entries = self.page.locator(".jp-Completer:not(.lm-mod-hidden) .jp-Completer-match")
        for _ in range(6):
            self.page.keyboard.press("Tab")
            with contextlib.suppress(Error):
                entries.first.wait_for(timeout=4000)
                return entries.all_inner_texts()
        raise AssertionError("Tab offers nothing")

    def wait_done(self, number: int, within: float = PATIENCE) -> float:
        """Wait until a cell has ended: its prompt has a number. Return the seconds."""
        node = f"{_PANEL}.content.widgets[{number}].node"
        prompt = f"{node}.querySelector('.jp-InputPrompt').textContent"
        return self.wait(rf"/^\[\d+\]:?$/.test({prompt})", within)

    def wait_outputs(self, number: int, within: float = PATIENCE) -> float:
        """Wait until a cell has any output. Return the seconds that it took."""
        area = f"{_PANEL}.content.widgets[{number}].outputArea"
        return self.wait(f"{area}.model.length > 0", within)

    def wait_text(self, number: int, text: str, within: float = PATIENCE) -> float:
        """Wait until a cell's output shows a text. Return the seconds that it took."""
        output = self.cell(number).locator(".jp-Cell-outputArea")
        started = time.monotonic()
        output.filter(has_text=re.compile(re.escape(text))).wait_for(timeout=within * 1000)
        return time.monotonic() - started

    def text(self, number: int) -> str:
        """What a cell's output shows."""
        return self.read(self.cell(number).locator(".jp-Cell-outputArea"))

    def outputs(self, number: int) -> list[dict[str, Any]]:
        """A cell's outputs, as the notebook's file would hold them."""
        area = f"{_PANEL}.content.widgets[{number}].outputArea"
        found: list[dict[str, Any]] = self.page.evaluate(f"{area}.model.toJSON()")
        return found

    def source(self, number: int) -> str:
        """JavaScript for a cell's text, for :meth:`wait`."""
        return f"{_PANEL}.content.widgets[{number}].model.sharedModel.source"

    def save(self) -> None:
        """Control+S, and wait until the file is written."""
        self.page.keyboard.press("Escape")
        self.page.keyboard.press("Control+s")
        self.wait(f"!{_PANEL}.context.model.dirty")

    # -------------------------------------------------------------------------------- the page

    def wait(self, condition: str, within: float = PATIENCE) -> float:
        """Wait until a JavaScript expression is true; return the seconds that it took."""
        started = time.monotonic()
        # In turns of 20 ms: the default, once a frame, is slow in a page that draws much.
        self.page.wait_for_function(condition, timeout=within * 1000, polling=20)
        return time.monotonic() - started

    def watch_frames(self) -> None:
        """Begin to measure how long each of the page's frames takes, and its long tasks."""
        self.page.evaluate(
            """() => {
                const seen = window.ciaoSeen = {frames: [], tasks: []};
                let last = performance.now();
                const tick = now => {
                    seen.frames.push(now - last);
                    last = now;
                    requestAnimationFrame(tick);
                };
                requestAnimationFrame(tick);
                new PerformanceObserver(list =>
                    seen.tasks.push(...list.getEntries().map(one => one.duration))
                ).observe({entryTypes: ['longtask']});
            }"""
        )

    def frames(self) -> tuple[list[float], list[float]]:
        """Milliseconds of each frame, and of each task above 50 ms, since they are watched."""
        seen = self.page.evaluate("window.ciaoSeen")
        return seen["frames"], seen["tasks"] or [0.0]

    def command(self, name: str, arguments: str = "{}") -> None:
        """Run one of the front end's commands, which also its menus run."""
        self.page.evaluate(f"window.jupyterapp.commands.execute('{name}', {arguments})")

    def theme(self, name: str) -> None:
        """Change to the theme ``light`` or ``dark``, whichever an earlier page has left.

        JupyterLab keeps the choice for later pages of the same user.
        """
        light = name == "light"
        title = "JupyterLab Light" if light else "JupyterLab Dark"
        self.command("apputils:change-theme", f"{{theme: '{title}'}}")
        self.wait(f"document.body.dataset.jpThemeLight === '{str(light).lower()}'")
        # The sheet of the theme is loaded after the mark is set.
        self.wait(
            "(ground => parseInt(ground.slice(1, 3).padEnd(2, ground[1]), 16) "
            f"{'>' if light else '<'} 128)(getComputedStyle(document.body)"
            ".getPropertyValue('--jp-layout-color0').trim()"
            ".replace('white', '#ffffff').replace('black', '#000000'))"
        )

    def colors(self, element: Locator) -> tuple[Color, Color]:
        """An element's text and what is behind it, as they are painted: all grounds in turn."""
        text, ground = element.evaluate(
            """node => {
                const canvas = new OffscreenCanvas(1, 1).getContext('2d');
                const paint = color => {
                    canvas.fillStyle = color;
                    canvas.fillRect(0, 0, 1, 1);
                    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
                };
                const around = [];
                for (let one = node; one; one = one.parentElement) around.unshift(one);
                paint('white');
                for (const one of around) paint(getComputedStyle(one).backgroundColor);
                const ground = paint('transparent');
                return [paint(getComputedStyle(node).color), ground];
            }"""
        )
        return tuple(text), tuple(ground)

    def seen(self) -> str:
        """All that the page shows, and the faults of its code."""
        return "\n".join((self.read(self.page.locator("body")), *self.faults))

    def read(self, element: Locator) -> str:
        """The text of an element of a cell, also while the browser does not draw the cell.

        JupyterLab 4.6 gives cells ``content-visibility: auto``: a browser leaves out the content
        of a cell outside the window, and ``innerText`` of that content is empty. A cell that has
        just been scrolled to is outside until the next frame.
        """
        style = self.page.add_style_tag(
            content=".jp-Cell { content-visibility: visible !important }"
        )
        try:
            # Finds and reads in one step: a live table is replaced several times a second.
            return element.inner_text()
        finally:
            style.evaluate("style => style.remove()")

    def _button(self, name: str) -> Locator:
        return self.page.locator(f'[data-jp-item-name="{name}"] jp-button:visible').first
