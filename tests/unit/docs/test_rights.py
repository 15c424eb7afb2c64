"""The Roles of deploy/rbac and the tables of their rules: made from the rights of the code."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from types import ModuleType

import pytest

from ciao_kernel.backends.kubernetes.apis import JOB, OPERATOR_V1, TRAINER, Api
from ciao_kernel.backends.kubernetes.rights import Right
from tests.integration.docs.blocks import ROOT


@pytest.fixture(scope="module")
def rights() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rights", ROOT / "docs" / "rights.py")
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    sys.modules["rights"] = made  # its dataclass looks there
    spec.loader.exec_module(made)
    return made


def test_they_are_fresh(rights: ModuleType) -> None:
    assert rights.stale(ROOT) == {}, "run: python docs/generate.py"


def test_with_a_runtime_of_the_cluster_a_role_names_no_runtimes(rights: ModuleType) -> None:
    own, shared = (rights.role(api, "rules:\nrules:\n") for api in (TRAINER, rights.SHARED))
    assert "trainingruntimes" in own
    assert "trainingruntimes" not in shared
    assert shared.split("Optional")[0].count("verbs: [create, get]") == 1  # of ConfigMaps


def test_the_role_has_the_kind_of_every_framework(rights: ModuleType) -> None:
    assert rights.kinds(OPERATOR_V1) == OPERATOR_V1.plurals


@pytest.mark.parametrize("api", [JOB, TRAINER], ids=lambda api: api.name)
def test_a_right_without_a_row_is_found(rights: ModuleType, api: Api) -> None:
    rights.table(api)
    with pytest.raises(AssertionError, match=r"rows and rights .* differ: .*'patch'"):
        rights.table(replace(api, rights=(*api.rights, Right("patch", "pods"))))


def test_the_rules_follow_the_rights_and_the_lines_before_them_stay(rights: ModuleType) -> None:
    changed = rights.role(
        replace(JOB, rights=(Right("watch", "services"),)), "# mine\nname: x\nrules:\n  old\n"
    )
    assert changed.startswith("# mine\nname: x\nrules:\n  # The jobs themselves")
    assert "    resources: [services]\n    verbs: [watch]\n" in changed
    assert "old" not in changed
