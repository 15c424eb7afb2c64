"""The notebook that a user opens first, in the browser as it stands: real TensorFlow."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser

from tests.browser.lab import Lab
from tests.browser.server import Server
from tests.helpers.installed import ROOT

# tests/integration/notebooks trains it too, and test_cells.py has all that a page adds.
pytestmark = [pytest.mark.second("docs"), pytest.mark.frameworks, pytest.mark.timeout(400)]


def test_quickstart(
    serve: Callable[..., Server], browser: Browser, figure: Callable[[str], None]
) -> None:
    for package in ("tensorflow", "sklearn"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}: pip install '.[tensorflow,examples]'")
    server = serve("lab")
    shutil.copy(ROOT / "notebooks" / "quickstart.ipynb", server.place.work)
    lab = Lab(browser, server, "quickstart.ipynb")
    try:
        lab.wait_idle()
        lab.run(1)
        lab.wait_text(1, "loss", 200)
        assert lab.status == "busy", "lines are shown while the job runs"
        figure(f"{lab.wait_done(1, 300):.1f} s from the first loss to the cell's end")
        text = lab.text(1)
        assert re.search(r"ps-0\s+Stopped", text)
        assert re.search(r"worker-1\s+Succeeded", text)
        assert "[worker-1] worker 1 is done" in text
        lab.run(3)
        lab.wait_done(3)
        assert re.search(r"Succeeded \[.*'ciao_cell.py'", lab.text(3))
    finally:
        lab.close()
