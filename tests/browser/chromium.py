"""The browser of the tests: Debian's Chromium, steered by Playwright's Python package.

Playwright's own download is not used, so nothing but apt and pip is needed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# The shell alone is a fifth of the size of the whole browser, and starts twice as fast.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = [
    "--no-sandbox",  # it refuses to start as root otherwise
    "--disable-gpu",
    "--disable-dev-shm-usage",  # /dev/shm is small in containers
    "--disable-background-networking",
]


def program() -> str:
    """Path of the browser: CIAO_TEST_CHROMIUM, else what is installed; empty if there is none."""
    named = os.environ.get("CIAO_TEST_CHROMIUM", "")
    return named or next(filter(None, map(shutil.which, _NAMES)), "")


def missing() -> str:
    """What the tests lack, and how to get it; empty if nothing."""
    if not program():
        way = "apt-get install chromium-headless-shell, or name one: CIAO_TEST_CHROMIUM=FILE"
        return f"no Chromium here: {way}"
    if importlib.util.find_spec("playwright") is None:
        return "no Playwright here: pip install '.[dev]'"
    return ""


@contextlib.contextmanager
def started() -> Iterator[Browser]:
    """A browser without a window, for as long as the block runs."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()
