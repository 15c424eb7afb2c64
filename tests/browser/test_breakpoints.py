"""breakpoint() in a replica: the box for answers in a real page, while lines go on."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from tests.browser.lab import PATIENCE, Lab
from tests.browser.server import Server
from tests.helpers import prompts

STOPS = f"%framework=python\n%worker=2\n%lines=all\n{prompts.STOPS}".replace("0.05", "0.25")
"""A page that draws each line of twenty a second is slow to answer on a busy machine."""


def answer(lab: Lab, line: str) -> None:
    box = lab.cell(0).locator("input.jp-Stdin-input").element_handle(timeout=PATIENCE * 1000)
    assert box
    assert "worker-1 (Pdb)" in lab.read(lab.cell(0).locator(".jp-Stdin-prompt").last)
    box.fill(line)
    box.press("Enter")
    box.wait_for_element_state("hidden")  # text takes its place


@pytest.mark.second("browser")
def test_a_prompt_of_a_replica_is_a_box_in_the_cell(
    home: Server, open_lab: Callable[..., Lab], figure: Callable[[str], None]
) -> None:
    lab = open_lab(home, [STOPS])
    lab.run(0)
    lab.cell(0).locator("input.jp-Stdin-input").wait_for(timeout=PATIENCE * 1000)
    shown = time.time()
    lab.wait_text(0, "hit ")  # lines and prompts come by two channels, in any order
    hit = re.search(r"hit ([\d.]+)", lab.text(0))
    assert hit
    figure(f"{shown - float(hit[1]):.2f} s from breakpoint() to the box in the page")
    steps = lab.text(0).count("step")
    lab.wait_text(0, f"step {steps + 5}")  # the lines of worker-0 go on

    answer(lab, "p total * 1001")
    lab.wait_text(0, "7007")
    answer(lab, "total = 30")
    answer(lab, "c")

    lab.wait_text(0, "mean 15.0")
    lab.wait_done(0)
    assert "worker-1 goes on." in lab.text(0)
    assert "ciao:debug" not in lab.text(0)
    assert not [one for one in lab.outputs(0) if one["output_type"] == "error"]


@pytest.mark.second("browser")
def test_the_stop_button_closes_the_box_and_then_stops(
    home: Server, open_lab: Callable[..., Lab]
) -> None:
    lab = open_lab(home, [STOPS, "print('alive')"])
    lab.run(0)
    lab.cell(0).locator("input.jp-Stdin-input").wait_for(timeout=PATIENCE * 1000)
    lab.stop()
    lab.wait_text(0, "the prompt is closed, and worker-1 waits.")
    lab.stop()
    lab.wait_text(0, "KeyboardInterrupt")
    lab.run(1)
    lab.wait_text(1, "alive")
