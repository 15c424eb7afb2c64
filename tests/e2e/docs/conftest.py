"""The cluster of the documentation's reader."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.namespace import Namespace
from tests.e2e.docs.ground import Ground, Shelf
from tests.helpers import debs, packages


@pytest.fixture(scope="module")
def shelf(local_cluster: Cluster, with_kaniko: None, with_kernel: None) -> Iterator[Shelf]:
    """Images and packages that the examples ask for, as long as the module's tests run."""
    host, name = local_cluster.at.host_address, f"docs/{secrets.token_hex(4)}"
    with packages.serving(host) as index, debs.serving(host) as repository:
        made = Shelf(local_cluster, name, index, repository)
        made.fill()
        yield made


@pytest.fixture
def ground(shelf: Shelf, tmp_path: Path) -> Iterator[Ground]:
    """The namespace of an example's team, which the page makes itself; it goes in the end."""
    namespace = Namespace(shelf.cluster, "team-a")
    folder = tmp_path / "ada"
    folder.mkdir()
    yield Ground(shelf, folder, namespace)
    namespace.delete()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """Add to a failure what the cluster knew at that moment: the namespace goes right after."""
    report = yield
    arguments = getattr(item, "funcargs", {})
    if report.when == "call" and report.failed and "ground" in arguments:
        report.sections.extend(arguments["ground"].namespace.evidence().items())
    return report
