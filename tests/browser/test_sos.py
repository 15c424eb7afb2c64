"""A SoS notebook in JupyterLab: the cells' menu of languages, a job in between, the example."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.kernels import JOB, ROOT, SILENT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.lab import Lab
    from tests.browser.server import Server
    from tests.helpers.installed import Environment

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(installed: Environment, serve: Callable[..., Server]) -> Server:
    """A server of its own, so that SoS is in no other test's launcher."""
    made = serve("lab", env={"CIAO_SOS": "yes"})
    env = {**made.place.env, "HOME": str(made.place.folder)}
    command = [str(installed.python), "-m", "sos_notebook.install", "--user"]
    subprocess.run(command, env=env, check=True, capture_output=True, timeout=60)
    return made


def choose(lab: Lab, number: int, language: str) -> None:
    """Take a language from a cell's menu, which only the cell with the cursor has."""
    lab.click(number)
    menu = lab.cell(number).locator("select")
    menu.locator("option", has_text=language).wait_for(state="attached")
    menu.select_option(label=language)


@pytest.mark.second("browser")
def test_the_menu_of_a_cell_makes_it_ciao(
    server: Server, open_lab: Callable[..., Lab], figure: Callable[[str], None]
) -> None:
    cells = [
        "n = 3",
        "%get n\nprint('n is', n)",
        JOB + "%input=n\nprint('input', open('input/n.json').read(), flush=True)",
        SILENT,
        "print('SoS again', n)",
    ]
    lab = open_lab(server, cells, "sos")
    lab.run(0)
    lab.wait_done(0)
    for number in (1, 2, 3):
        choose(lab, number, "Ciao")

    lab.run(1)
    lab.wait_text(1, "n is 3")
    lab.run(2)
    lab.wait_text(2, "[worker-1] input 3")
    lab.wait_done(2)
    lab.run(3)
    lab.wait_text(3, "ready")
    lab.stop()
    figure(f"stop button to prompt: {lab.wait_done(3):.2f} s")
    lab.run(4)
    lab.wait_text(4, "SoS again 3")

    assert "KeyboardInterrupt" in [one.get("ename") for one in lab.outputs(3)]
    server.place.wait_empty()
    lab.save()
    saved: dict[str, Any] = json.loads((server.place.work / lab.notebook).read_text())
    languages = [cell["metadata"].get("kernel") for cell in saved["cells"][: len(cells)]]
    assert languages == ["SoS", "Ciao", "Ciao", "Ciao", "SoS"]
    kernels = {kernel[0]: kernel[1:4] for kernel in saved["metadata"]["sos"]["kernels"]}
    assert kernels["Ciao"] == ["ciao", "Ciao", "#D5F5E3"]


@pytest.mark.second("docs")  # tests/integration/sos trains it; the test above has such a page
@pytest.mark.frameworks
def test_the_example_runs_in_the_page(browser: Browser, server: Server) -> None:
    from tests.browser.lab import Lab

    needed = ("torch", "sklearn", "matplotlib")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: pip install '.[pytorch,examples]'")
    for name in ("sos.ipynb", "digits_net.py"):
        shutil.copy(ROOT / "notebooks" / name, server.place.work)
    made = json.loads((ROOT / "notebooks" / "sos.ipynb").read_text())["cells"]
    code = [number for number, cell in enumerate(made) if cell["cell_type"] == "code"]
    lab = Lab(browser, server, "sos.ipynb")
    try:
        lab.wait_idle()
        for number in code:
            lab.run(number)
            lab.wait_done(number, 200)
        training = next(n for n in code if "".join(made[n]["source"]).startswith("%framework"))
        assert "[worker-0] epoch 40 loss 0." in lab.text(training)
        pictures = [out for out in lab.outputs(code[-1]) if "image/png" in out.get("data", {})]
        assert len(pictures) == 1
    finally:
        lab.close()
