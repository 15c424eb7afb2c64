"""Job cells in JupyterLab and Notebook, by a real browser on the installed wheel."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

import nbformat
import pytest

from ciao_kernel.session.plugin_registry import Registry
from tests.browser.lab import Lab
from tests.browser.server import Server
from tests.helpers.colors import uncolored
from tests.helpers.kernels import JOB

Open = Callable[..., Lab]
Figure = Callable[[str], None]


STEADY = (
    JOB
    + "%lines=all\nimport time\n"
    + "for i in range(6000):\n    print('step', i, flush=True)\n    time.sleep(.1)"
)
PLOT = JOB + (
    "%plot=loss\nimport os, time\ni = 0\nwhile not os.path.exists({!r}):\n"
    "    i += 1\n    print('loss', 1 / i, flush=True)\n    time.sleep(.1)"
)
"""Draws until a file is there."""
SHORT = STEADY.replace("6000", "{}")
FAILING = JOB + "import time\n\ndef train():\n    raise ValueError('no <data>')\n\ntrain()"


def tables(lab: Lab, number: int = 0) -> list[str]:
    """The tables in a cell's outputs, as plain text."""
    return [one["data"]["text/plain"] for one in lab.outputs(number) if "data" in one]


@pytest.mark.second("browser", only="notebook")
def test_run_stop_restart(home: Server, open_lab: Open, figure: Figure) -> None:
    """The whole way of a notebook, on one page."""
    lab = open_lab(home, [STEADY, "print('six times seven is', 6 * 7)", "print(_job.state)"])
    assert "Ciao" in lab.seen()
    started = time.monotonic()
    lab.run(0)
    lab.wait_text(0, "[worker-1] step 3")
    figure(f"{time.monotonic() - started:.2f} s to the fourth line")
    assert lab.status == "busy", "lines are shown while the job runs"
    lab.wait_text(0, ": Running")  # the table is drawn more rarely than lines come

    # The table is one element of the page that is drawn anew, and one output of the notebook.
    table = lab.cell(0).locator(".jp-Cell-outputArea table")
    assert table.count() == 1
    table.locator("tr", has_text=re.compile(r"worker-1\s*Running")).wait_for()
    before, drawn = lab.read(table), table.text_content()
    lab.wait(f"document.querySelector('.jp-Cell-outputArea table').textContent !== {drawn!r}")
    assert (table.count(), len(tables(lab))) == (1, 1)
    assert re.search(r"worker-1\s+Running", before)

    pressed = time.monotonic()
    lab.stop()
    lab.wait_done(0)
    figure(f"{time.monotonic() - pressed:.2f} s from the stop button to the cell's end")
    home.place.wait_empty()
    assert "KeyboardInterrupt" in lab.text(0)
    lab.wait_text(0, "Stopped")  # a slow stop is shown behind the cell's end
    assert re.search(r"worker-1\s+Stopped", tables(lab)[0])
    kinds = [one["output_type"] for one in lab.outputs(0)]
    assert kinds[:3] == ["display_data", "stream", "error"]  # how a slow stop went comes behind
    lab.run(1)
    lab.wait_done(1)
    assert lab.text(1).strip() == "six times seven is 42"
    lab.run(2)
    lab.wait_done(2)
    assert "Stopped" in lab.text(2)

    took = lab.restart()
    figure(f"{took:.2f} s to restart")
    lab.run(2)
    lab.wait_text(2, "NameError")
    lab.run(1)
    lab.wait_done(1)
    assert lab.outputs(1)[0]["text"] == "six times seven is 42\n"


@pytest.mark.second("browser")
def test_restart_during_a_job(home: Server, open_lab: Open) -> None:
    lab = open_lab(home, [STEADY, "print('alive')"])
    lab.run(0)
    lab.wait_text(0, "[worker-1] step 3")
    lab.restart()
    home.place.wait_empty()
    lab.run(1)
    lab.wait_text(1, "alive")


@pytest.mark.stands_for("browser")
def test_failed_job(home: Server, open_lab: Open) -> None:
    """Red, with the line of the cell, and the notebook's other cells do not run."""
    lab = open_lab(home, [FAILING, "print('never')"])
    lab.run(0)
    lab.wait_text(0, "JobFailed")
    text = lab.text(0)
    assert "ValueError: no <data>" in text
    assert "Cell, line 6, in train" in text
    assert "Cell, line 8, in <module>" in text
    error = lab.cell(0).locator("[data-mime-type='application/vnd.jupyter.stderr']")
    name = error.locator("span", has_text="JobFailed").first
    assert lab.read(name) == "JobFailed"
    for red, green, blue in (lab.colors(name)[1], lab.colors(error)[1]):
        assert red > 150, "the error's name and the whole error stand on red"
        assert max(green, blue) < red - 20
    (output,) = [one for one in lab.outputs(0) if one["output_type"] == "error"]
    assert output["ename"] == "JobFailed"


@pytest.mark.second("browser", only="notebook")
def test_keys_on_directives(home: Server, open_lab: Open) -> None:
    """Tab completes, Shift+Tab explains; also while another cell's job runs."""
    lab = open_lab(home, [STEADY, "%framework=tensorflow\n%wor", "%clea", "%worker=2"])
    for running in (False, True):
        if running:
            lab.run(0)
            lab.wait_text(0, "[worker-0] step 1")
        lab.type(1, "%framework=tensorflow\n%wor")
        assert lab.complete() == ["%worker="]
        lab.page.keyboard.press("Enter")
        lab.wait(f"{lab.source(1)} === '%framework=tensorflow\\n%worker='")
        lab.type(1, "%framework=")
        assert lab.complete() == list(Registry({}).table.names.frameworks)
        lab.page.keyboard.press("Escape")
        lab.type(1, "%cleanPolicy=all")
        lab.page.keyboard.press("Shift+Tab")
        tip = lab.page.locator(".jp-Tooltip")
        tip.wait_for()
        assert "%cleanPolicy" in tip.inner_text()
        lab.page.keyboard.press("Escape")
        tip.wait_for(state="detached")
    lab.wait_status("busy")  # the "idle" of a request is followed by "busy"


@pytest.mark.second("browser", only="notebook")
def test_reload_during_a_job(home: Server, open_lab: Open, figure: Figure) -> None:
    lab = open_lab(home, [STEADY, "%ciao attach", "print('next')"])
    lab.run(0)
    lab.wait_text(0, "[worker-1] step 3")
    lab.reload()
    lab.wait("window.jupyterapp?.shell?.currentWidget?.sessionContext?.isReady")
    took = lab.wait_status("busy")
    figure(f"{took:.2f} s from the page's start to busy")
    lab.stop()
    figure(f"{lab.wait_idle():.2f} s from the stop button to idle")
    home.place.wait_empty()
    lab.run(1)
    lab.wait_done(1)
    assert "[worker-1] step 3" in lab.text(1)
    assert re.search(r"worker-1\s+Stopped", tables(lab, 1)[0])
    lab.run(2)
    lab.wait_text(2, "next")


@pytest.mark.second("browser")
def test_reload_before_the_end_of_a_job(home: Server, open_lab: Open) -> None:
    """What came while nobody looked is shown by one command, from the first line on."""
    lab = open_lab(home, [SHORT.format(40), "%ciao attach"])
    lab.run(0)
    lab.wait_text(0, "[worker-1] step 3")
    lab.reload()
    lab.wait("window.jupyterapp?.shell?.currentWidget?.sessionContext?.isReady")
    lab.wait_idle()
    lab.run(1)
    lab.wait_done(1)
    stream = "".join(one["text"] for one in lab.outputs(1) if one["output_type"] == "stream")
    plain = uncolored(stream)
    for worker in ("worker-0", "worker-1"):
        assert re.findall(rf"\[{worker}\] step (\d+)", plain) == [str(i) for i in range(40)]
    assert tables(lab, 1)[0].splitlines()[0].endswith(": Succeeded")


@pytest.mark.second("browser", only="True")
@pytest.mark.second("browser", only="notebook")
@pytest.mark.parametrize("trusted", [True, False])
def test_saved_notebook(home: Server, open_lab: Open, trusted: bool) -> None:
    """It opens with table, log and curves as they were last, also where somebody else made it."""
    enough = home.place.folder / f"enough-{trusted}"
    lab = open_lab(home, [SHORT.format(5), FAILING, PLOT.format(str(enough))])
    for number in (0, 1):
        lab.run(number)
        lab.wait_done(number)
    lab.run(2)
    # While the job runs its curves are one element of the page, which is drawn anew.
    live = lab.cell(2).locator("img[src^='data:image/svg+xml']")
    live.wait_for()
    before = live.get_attribute("src")
    images = "[...document.querySelectorAll(`img[src^='data:image/svg+xml']`)]"
    drawn = f"{images}.map(one => one.src).join()"
    lab.wait(f"![{json.dumps(before)}, ''].includes({drawn})")
    assert lab.status == "busy"
    assert live.count() == 1
    enough.touch()
    lab.wait_done(2)
    lab.save()
    path = home.place.work / lab.notebook
    lab.close()
    if not trusted:
        # A change takes the signature, as another user's or another machine's has none.
        read = nbformat.read(path, as_version=4)
        read.metadata["from"] = "afar"
        nbformat.write(read, path)
    lab.reopen()
    lab.wait_idle()
    first, second = lab.text(0), lab.text(1)
    assert ": Succeeded" in first
    assert re.search(r"worker-1\s+Succeeded", first)
    assert "[worker-1] step 4" in first
    assert lab.cell(0).locator(".jp-Cell-outputArea table").is_visible()
    assert "Cell, line 6, in train" in second
    assert re.search(r"worker-\d\s+Failed \(.*exit code 1\)", second)
    picture = lab.cell(2).locator(".jp-RenderedImage img[src^='data:image/png']")
    picture.wait_for()
    assert lab.cell(2).locator(".jp-OutputArea-output img").count() == 1
    box = picture.bounding_box()
    assert box is not None
    assert box["width"] > 300, "the picture has its size"
    assert box["height"] > 200
