"""notebooks/sos.ipynb, as a program without a page runs it."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(400)]


@pytest.mark.second("gateway")
def test_the_notebook_prepares_trains_and_plots(place: Any) -> None:
    from tests.helpers.sos import run_example

    needed = ("torch", "sklearn", "matplotlib")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: pip install '.[pytorch,examples]'")

    (_, brought, trained, _, plotted) = run_example(place)

    assert "(1797, 64) {'epochs': 40, 'rate': 0.01}" in brought[0]
    inputs = "input/images.npy, input/labels.npy, input/settings.json"
    assert f"included, because %input names them: {inputs}" in trained[0]
    for replica in ("master-0", "worker-0"):
        losses = re.findall(rf"\[{replica}\] epoch \d+ loss (\d\.\d+)", trained[0])
        assert len(losses) == 40
        assert float(losses[-1]) < 0.2
    pictures = [out for out in plotted[1].outputs if "image/png" in out.get("data", {})]
    assert len(pictures) == 1
