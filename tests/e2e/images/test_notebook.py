"""notebooks/images.ipynb as it stands: a cell by each builder, run by a user with both Roles."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.e2e.images.conftest import Maker
from tests.helpers.colors import uncolored
from tests.helpers.packages import serving

pytestmark = pytest.mark.slow
NOTEBOOKS = Path(__file__).parents[3] / "notebooks"
TABULATE = """
def tabulate(rows, headers):
    return "\\n".join(" ".join(map(str, row)) for row in [headers, *rows])
"""


@pytest.mark.second("docs")
def test_it_runs_as_it_stands(
    maker: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What differs from a user's place is said by settings: ciao's own, and pip's."""
    host = maker.cluster.at.host_address
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    with serving(host) as index:
        index.add("tabulate", "0.9.0", code=TABULATE)
        # The builder image's script calls pip, and its Python is Debian's.
        conf = f"index-url = {index.url}\ntrusted-host = {host}\nbreak-system-packages = true\n"
        maker.secret("pip", **{"pip.conf": f"[global]\n{conf}"})
        variables = {
            **maker.variables(),
            "CIAO_PIP_SECRET": "pip",
            "CIAO_S2I_BUILDER": maker.cluster.image("s2i-python"),
            "PIP_INDEX_URL": index.url,
            "PIP_TRUSTED_HOST": host,
            "PIP_CONFIG_FILE": os.devnull,
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        folder = tmp_path / "notebooks"
        shutil.copytree(NOTEBOOKS, folder)
        made = nbformat.read(folder / "images.ipynb", as_version=4)
        resources = {"metadata": {"path": str(folder)}}
        NotebookClient(made, kernel_name="ciao", timeout=200, resources=resources).execute()

    cells = [cell for cell in made.cells if cell.source.startswith("%framework")]
    texts = [uncolored("".join(out.get("text", "") for out in cell.outputs)) for cell in cells]
    assert len(cells) == 4
    for text in texts:
        assert "included, because the code imports them: images/" in text
        assert "[worker-0] y = 3.00 x + 2.00\n" in text
    assert ["[build] " in text for text in texts] == [False, False, True, True]
    assert all("[worker-0] pass error\n[worker-0] 1 1.28" in text for text in texts[1:])
    jobs = maker.team.namespace.get("tfjobs", "--sort-by=.metadata.creationTimestamp")["items"]
    images = [
        job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["image"]
        for job in jobs
    ]
    assert images[0] == maker.cluster.image("python")
    repository = maker.settings["registry"]
    for image, text in zip(images[1:], texts[1:], strict=True):
        assert image.startswith(f"{repository}@sha256:")
        assert f"image {image}\n" in text
    names = [job["metadata"]["name"] for job in jobs]
    assert all(maker.team.namespace.condition(f"tfjob/{name}", "Succeeded") for name in names)
    assert made.cells[-1].outputs[0].text == f"{names[-1]} Succeeded\n"
    assert maker.left() == []


@pytest.mark.second("builders")
def test_it_is_kept_without_outputs() -> None:
    made = nbformat.read(NOTEBOOKS / "images.ipynb", as_version=4)
    for cell in made.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)
    nbformat.validate(made)
