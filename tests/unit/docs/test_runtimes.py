"""The ClusterTrainingRuntimes of deploy/trainer: made from the frameworks of the code."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest
import yaml

from ciao_kernel.session.plugin_registry import Registry
from tests.integration.docs.blocks import ROOT


@pytest.fixture(scope="module")
def runtimes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("runtimes", ROOT / "docs" / "runtimes.py")
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_they_are_fresh_and_nothing_else_is_there(runtimes: ModuleType) -> None:
    assert runtimes.stale(ROOT) == {}, "run: python docs/generate.py"
    folder = ROOT / runtimes.FOLDER
    assert {one.name for one in folder.glob("*.yaml")} == set(runtimes.files())


def test_each_framework_has_one(runtimes: ModuleType) -> None:
    listed = yaml.safe_load(runtimes.files()["kustomization.yaml"])["resources"]
    made = [yaml.safe_load(runtimes.files()[name]) for name in listed]
    assert [one["metadata"]["name"] for one in made] == [
        f"ciao-{name}" for name in sorted(Registry(third_party={}).table.names.frameworks)
    ]
    assert {one["kind"] for one in made} == {"ClusterTrainingRuntime"}


def test_one_replica_decides_where_the_framework_says_so(runtimes: ModuleType) -> None:
    decided = {
        name.removesuffix(".yaml")
        for name, text in runtimes.files().items()
        if "succeededIndexes" in text
    }
    assert decided == {"tensorflow", "pytorch", "xgboost", "mpi"}
