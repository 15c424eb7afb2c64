"""The images install ciao's dependencies in a layer of their own, below the wheel."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("folder", ["enterprise-gateway", "jupyterhub"])
def test_the_layer_below_the_wheel_has_every_dependency(folder: str) -> None:
    """Otherwise each new wheel downloads the missing one, or fails without an index."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    needed = {
        Requirement(line).name
        for line in setup["options"]["install_requires"].splitlines()
        if line and not line.startswith("#")
    }
    text = (ROOT / "deploy" / folder / "Dockerfile").read_text()
    below = text.partition("COPY *.whl")[0]
    named = {Requirement(word).name for word in re.findall(r"'([^'\s]+)'", below)}
    assert needed <= named
