"""An index of packages, registries, and a machine whose own settings of pip do not count."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.packages import Index, serving
from tests.integration.oci.conftest import serve as serve


@pytest.fixture
def index() -> Iterator[Index]:
    with serving() as made:
        yield made


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of pip's, no cache of its own, no proxy."""
    for name in list(os.environ):
        if name.startswith("PIP_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "pip"))
    monkeypatch.setenv("PIP_RETRIES", "1")
