"""A notebook in JupyterLab, in a real browser, whose cell runs on the cluster."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.lab import PATIENCE, Lab
from tests.browser.server import serving
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import EXEC, Team, rules
from tests.helpers.installed import Environment
from tests.helpers.kernels import IN_PODS, JOB, Place

STOPS = """%framework=tensorflow
%worker=1
import time

value = 7
print("hit", time.time(), flush=True)
breakpoint()
print("value", value, flush=True)
"""


def environment(team: Team) -> dict[str, str]:
    """The variables of a server whose kernels run cells on the cluster."""
    return {
        **IN_PODS,
        "KUBECONFIG": os.environ["KUBECONFIG"],
        "CIAO_NAMESPACE": team.namespace.name,
        "CIAO_CPU_REQUEST": "10m",
        "CIAO_IMAGES": " ".join(f"{name}={image}" for name, image in team.images.items()),
    }


@pytest.mark.second("browser")
def test_page_on_the_cluster(
    team: Team,
    tmp_path: Path,
    installed: Environment,
    browser: Browser,
    figure: Callable[[str], None],
) -> None:
    """Lines live, a reload, the stop button, and nothing left."""
    place = Place(tmp_path / "user")
    steady = (
        "%lines=all\nimport time\n"
        "for i in range(600):\n    print('step', i, flush=True); time.sleep(.1)"
    )
    with serving(place, installed, "lab", env=environment(team)) as server:
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


@pytest.mark.second("browser")
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_breakpoint_in_a_pod_is_a_box_in_the_page(
    team: Team,
    tmp_path: Path,
    installed: Environment,
    browser: Browser,
    figure: Callable[[str], None],
) -> None:
    team.user.allow(*rules(), *rules(EXEC))
    place = Place(tmp_path / "user")
    with serving(place, installed, "lab", env=environment(team)) as server:
        lab = Lab.new(browser, server, [STOPS])
        lab.run(0)
        box = lab.cell(0).locator("input.jp-Stdin-input")
        box.wait_for(timeout=4 * PATIENCE * 1000)
        shown = time.time()
        lab.wait_text(0, "hit ")  # lines and prompts come by two channels, in any order
        hit = re.search(r"hit ([\d.]+)", lab.text(0))
        assert hit
        # The pod is on this machine: both have one clock.
        figure(f"{shown - float(hit[1]):.2f} s from breakpoint() in a pod to the box in the page")
        box.fill("c")
        box.press("Enter")
        lab.wait_text(0, "value 7")
        lab.wait_done(0)
        lab.close()
