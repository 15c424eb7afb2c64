"""The script that makes a layer of the test cluster's images changes nothing of this machine."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cluster import debian


def test_a_layer_writes_into_its_own_tree_alone() -> None:
    merged = Path("/cache/layer/merged")
    layer = debian.Layer("some", packages=("ca-certificates",), pip=("torch",), shell="apt-get")
    script = debian._script(layer, "/below", Path("/part"), Path("/work"), merged)
    bound = re.findall(r"mount --bind (\S+) (\S+)", script)
    assert len(bound) == 2
    assert all(place.startswith(f"{merged}/") for pair in bound for place in pair)
    written = re.findall(r"(?:>|mkdir -p|rm|chmod \+x|cp -r?L \S+) (/\S+)", script)
    assert written
    assert all(place.startswith(f"{merged}/") for place in written)
