"""Where users first meet the kernel: JupyterLab's launcher, Notebook's menu of new files."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.lab import PATIENCE, Lab
from tests.browser.server import Server


@pytest.fixture
def page(browser: Browser) -> Page:
    context = browser.new_context()
    context.set_default_timeout(PATIENCE * 1000)
    yield context.new_page()
    context.close()


def test_launcher_shows_the_kernel_with_its_logo(
    serve: Callable[..., Server], page: Page, browser: Browser
) -> None:
    server = serve("lab")
    page.goto(server.address(), wait_until="domcontentloaded")
    cards = page.locator(".jp-LauncherCard[data-category='Notebook']")
    card = cards.filter(has_text="Ciao")
    card.wait_for(timeout=60_000)
    assert card.count() == 1
    logo = card.locator("img")
    size = logo.evaluate("async image => (await image.decode(), image.naturalWidth)")
    assert size >= 64 or logo.get_attribute("src").endswith(".svg")
    drawn = logo.bounding_box()
    assert drawn is not None
    assert drawn["width"] > 20

    card.click()
    status = "window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status"
    page.wait_for_function(f"{status} === 'idle'", timeout=60_000)
    page.locator(".jp-Notebook .cm-content").first.click()
    page.keyboard.type("print(6 * 7)")
    page.keyboard.press("Shift+Enter")
    page.locator(".jp-Cell-outputArea").filter(has_text="42").first.wait_for(timeout=60_000)


@pytest.mark.second("browser")
def test_notebook_offers_the_kernel(serve: Callable[..., Server], page: Page) -> None:
    server = serve("notebook")
    page.goto(server.address(), wait_until="domcontentloaded")
    page.locator(".jp-FileBrowser-toolbar").get_by_text("New", exact=True).first.click()
    entry = page.locator(".lm-Menu-item").filter(has_text="Ciao")
    entry.wait_for(timeout=60_000)
    with page.context.expect_page() as opened:
        entry.click()
    status = "window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status"
    opened.value.wait_for_function(f"{status} === 'idle'", timeout=60_000)


@pytest.mark.second("browser")
def test_logo_stands_in_the_notebook(
    serve: Callable[..., Server], open_lab: Callable[..., Lab]
) -> None:
    """Notebook shows it in its corner; a missing one would be a broken picture."""
    lab = open_lab(serve("notebook"), ["1"])
    logo = lab.page.locator('[data-jp-item-name="kernelLogo"] img')
    assert logo.evaluate("async image => (await image.decode(), image.naturalWidth)") > 0
