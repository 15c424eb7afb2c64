"""The values for JupyterHub's chart, which is not part of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

VALUES = Path(__file__).parents[3] / "deploy/jupyterhub/values.yaml"
CHART: dict[str, type] = {
    "hub.config.KubeSpawner.container_security_context": dict,
    "hub.config.KubeSpawner.pod_security_context": dict,
    "singleuser.image.name": str,
    "singleuser.image.tag": str,
    "singleuser.cmd": list,
    "singleuser.uid": int,
    "singleuser.fsGid": int,
    "singleuser.serviceAccountName": str,
    "singleuser.extraEnv": dict,
    "singleuser.networkPolicy.egress": list,
    "singleuser.cloudMetadata.blockWithIptables": bool,
}
"""What the chart takes in its releases 4, and KubeSpawner in its releases 7."""


def leaves(values: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Each setting with its path; what the chart takes as it is counts as one."""
    for name, value in values.items():
        path = f"{above}{name}"
        if isinstance(value, dict) and path not in CHART:
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


@pytest.mark.parametrize("advice", [False, True], ids=["as-they-are", "with-what-comments-offer"])
def test_the_chart_knows_each_value(advice: bool) -> None:
    text = VALUES.read_text()
    if advice:
        for line in ("# cloudMetadata:", "#   blockWithIptables: false"):
            assert line in text
            text = text.replace(line, line.removeprefix("# ").removeprefix("#"))
    found = dict(leaves(yaml.safe_load(text)))
    assert {name: type(value) for name, value in found.items()}.items() <= CHART.items()
    assert ("singleuser.cloudMetadata.blockWithIptables" in found) is advice
