"""A notebook in JupyterLab, in a real browser, whose cell runs on the cluster."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.lab import Lab
from tests.browser.server import serving
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import Team
from tests.helpers.installed import Environment
from tests.helpers.kernels import IN_PODS, JOB, Place


@pytest.mark.second("browser")
def test_page_on_the_cluster(
    team: Team,
    tmp_path: Path,
    installed: Environment,
    browser: Browser,
    figure: Callable[[str], None],
) -> None:
    """Lines live, a reload, the stop button, and nothing left."""
    env = {
        **IN_PODS,
        "KUBECONFIG": os.environ["KUBECONFIG"],
        "CIAO_NAMESPACE": team.namespace.name,
        "CIAO_CPU_REQUEST": "10m",
        "CIAO_IMAGES": " ".join(f"{name}={image}" for name, image in team.images.items()),
    }
    place = Place(tmp_path / "user")
    steady = (
        "%lines=all\nimport time\n"
        "for i in range(600):\n    print('step', i, flush=True); time.sleep(.1)"
    )
    with serving(place, installed, "lab", env=env) as server:
        lab = Lab.new(browser, server, [JOB + steady, "print('next', 6 * 7)"])
        started = time.monotonic()
        lab.run(0)
        lab.wait_text(0, "[worker-1] step 3", 120)
        figure(f"{time.monotonic() - started:.1f} s to the fourth line")
        lab.reload()
        lab.wait_status("busy")
        pressed = time.monotonic()
        lab.stop()
        lab.wait_idle()
        figure(f"{time.monotonic() - pressed:.1f} s from the stop button to idle")
        until(lambda: team.left() == [], "nothing left", 60)
        lab.run(1)
        lab.wait_text(1, "next 42")

        lab.run(0)
        lab.wait_text(0, "[worker-1] step 3", 120)
        lab.stop()
        lab.wait_done(0)
        lab.wait_text(0, "Stopped")  # a slow stop is shown behind the cell's end
        table = lab.outputs(0)[0]["data"]["text/plain"]
        assert re.search(r"worker-1\s+Stopped", table)
        until(lambda: team.left() == [], "nothing left", 60)
        lab.close()
