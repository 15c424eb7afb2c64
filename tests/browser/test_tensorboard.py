"""%tensorboard in a page: where the notebook's server has jupyter-server-proxy, it is a frame."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.lab import Lab
from tests.browser.server import Server
from tests.helpers.event_writer import WRITER
from tests.helpers.tensorboard import needs_tensorboard

START = 240.0
"""Seconds for a cell that starts TensorBoard, which imports TensorFlow if there is one."""

CELL = (
    "%framework=python\n%worker=1\n%name=curves\n%tensorboard\n"
    + WRITER
    + """
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.05)
events = Events(os.environ["CIAO_LOGDIR"])
for step in range(1, 4):
    events.scalar("loss", 1 / step, step)
"""
)


@pytest.fixture
def proxied(tmp_path: Path) -> Path:
    """A folder with what pip adds to a server's configuration for jupyter-server-proxy."""
    folder = tmp_path / "jupyter"
    enabled = {"ServerApp": {"jpserver_extensions": {"jupyter_server_proxy": True}}}
    (folder / "jupyter_server_config.d").mkdir(parents=True)
    (folder / "jupyter_server_config.d" / "proxy.json").write_text(json.dumps(enabled))
    return folder


@needs_tensorboard
@pytest.mark.timeout(900)
@pytest.mark.second("browser")
def test_tensorboard_is_a_frame_of_the_page(
    proxied: Path, serve: Callable[..., Server], open_lab: Callable[..., Lab]
) -> None:
    """A page that is loaded before there are event files stays empty: the frame waits for them."""
    # A server of its own: the others have no such extension.
    server = serve("lab", env={"JUPYTER_CONFIG_PATH": str(proxied)})
    lab = open_lab(server, [CELL])
    lab.run(0)
    link = lab.cell(0).get_by_text("TensorBoard of curves:")
    link.wait_for(timeout=START * 1000)
    place = lab.cell(0).locator("iframe[title=TensorBoard]")
    assert place.count() == 0
    (server.place.storage / "jobs/curves/work/go").touch()
    place.wait_for(state="attached", timeout=START * 1000)
    address = place.get_attribute("src")
    assert address is not None
    assert "/proxy/" in address, "the browser reaches no other port of the kernel's machine"
    place.scroll_into_view_if_needed()  # a browser draws no frame outside its window
    frame = place.content_frame
    # The names of the run and of the curve: both are there before anything is drawn.
    frame.get_by_text("curves/worker-0").first.wait_for(state="attached", timeout=START * 1000)
    frame.get_by_text("loss", exact=True).first.wait_for(state="attached", timeout=START * 1000)
    lab.wait_done(0, START)
