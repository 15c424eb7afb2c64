"""Make docs/quickstart.png: JupyterLab, while and after the quickstart's cell trains.

    python docs/screenshot.py [--chromium /usr/bin/chromium]

Needs the packages of `make demo`, and `pip install playwright` with a Chromium. Everything in
the picture is real: a Jupyter Server on loopback, the ciao kernel, TensorFlow.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
# The notebook panel alone: no side bars, no news.
_SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    }
}


def main() -> None:
    """Run the quickstart in a browser and keep pictures of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chromium", default=shutil.which("chromium") or "")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "quickstart.png")
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="demo-") as folder,
        _server(Path(folder)) as url,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(
            executable_path=args.chromium or None,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        page = browser.new_page(viewport={"width": 1120, "height": 1640}, device_scale_factor=1)
        page.goto(url, wait_until="domcontentloaded")
        _run_first_cell(page)
        page.screenshot(path=str(args.out))
        browser.close()
    print(f"wrote {args.out}")


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[str]:
    """Serve a copy of the quickstart; yield the address of its page."""
    shutil.copy(ROOT / "notebooks" / "quickstart.ipynb", folder)
    app = folder / "app"
    shutil.copytree(Path(sys.prefix, "share", "jupyter", "lab"), app)
    (app / "settings").mkdir(exist_ok=True)
    (app / "settings" / "overrides.json").write_text(json.dumps(_SETTINGS))
    token, port = secrets.token_hex(16), _free_port()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
            *(f"--ServerApp.port={port}", f"--IdentityProvider.token={token}"),
            *(f"--LabApp.app_dir={app}", "--LabApp.expose_app_in_browser=True"),
        ],
        cwd=folder,
        env={**os.environ, "CIAO_STORAGE": str(folder / "ciao")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(300):
            with contextlib.suppress(urllib.error.URLError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api")
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/lab/tree/quickstart.ipynb?token={token}&reset"
    finally:
        process.terminate()
        process.wait(20)


def _run_first_cell(page: Page) -> None:
    context = "window.jupyterapp?.shell.currentWidget?.sessionContext"
    page.wait_for_function(f"{context}?.isReady", timeout=60_000)
    page.wait_for_function(f"{context}?.session?.kernel?.status === 'idle'", timeout=60_000)
    page.keyboard.press("Control+b")  # the file browser goes
    cell = page.locator(".jp-Notebook .jp-Cell").nth(1)
    cell.locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")
    page.wait_for_function(
        "document.querySelector('.jp-CodeCell .jp-InputPrompt').textContent.match(/\\[\\d+\\]/)",
        timeout=120_000,
    )
    page.evaluate("document.querySelectorAll('.jp-Notebook .jp-Cell')[1].scrollIntoView()")
    page.wait_for_timeout(1000)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
