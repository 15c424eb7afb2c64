"""What a whole pod asks for: the examples follow Kubernetes' own rules for quotas."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.submission import pod_resources
from ciao_kernel.backends.kubernetes.submission.pod_resources import Defaults


def container(cpu: str = "", limit: str = "", **more: Any) -> dict[str, Any]:
    asked = {"requests": {"cpu": cpu} if cpu else {}, "limits": {"cpu": limit} if limit else {}}
    return {"resources": asked, **more}


def sidecar(cpu: str) -> dict[str, Any]:
    return container(cpu, restartPolicy="Always")


def cpu(
    containers: list[Any], init: list[Any] | None = None, *, kind: str = "requests", **more: Any
) -> str:
    spec = {"containers": containers, "initContainers": init or []}
    found = pod_resources.of_pod(spec, **more)[kind]
    return str(found["cpu"].normalize()) if "cpu" in found else "none"


@pytest.mark.parametrize(
    ("containers", "init", "sum_"),
    [
        ([container("1"), container("2")], [], "3"),
        ([container("1")], [container("500m")], "1"),
        ([container("1")], [container("4"), container("3")], "4"),
        ([container("1")], [sidecar("2")], "3"),
        # The first init container runs before the sidecar, the second one beside it.
        ([container("1")], [container("5"), sidecar("2"), container("1")], "5"),
        ([container("1")], [container("1"), sidecar("2"), container("5")], "7"),
        ([container("1")], [sidecar("2"), sidecar("3")], "6"),
        ([container()], [container("2")], "2"),
        ([container(limit="3")], [], "3"),
        ([container()], [], "none"),
        ([None, {"resources": None}, {"resources": {"requests": {"cpu": "x"}}}], [7], "none"),
    ],
)
def test_containers_are_added_and_init_containers_run_one_by_one(
    containers: list[Any], init: list[Any], sum_: str
) -> None:
    assert cpu(containers, init) == sum_


def test_the_namespace_fills_in_what_a_container_does_not_name() -> None:
    rules = [
        {"defaultRequest": {"cpu": "500m"}, "default": {"cpu": "2"}},
        {"default": {"cpu": "7"}},
        {"default": "garbage"},
    ]
    added = pod_resources.defaults(rules)
    assert added == Defaults({"cpu": Decimal("0.5")}, {"cpu": Decimal(2)})
    assert cpu([container()], [container()], added=added) == "0.5"
    assert cpu([container()], kind="limits", added=added) == "2"
    assert cpu([container("1")], kind="limits", added=added) == "2"
    # A limit without a request is also the request.
    assert cpu([container(limit="3")], added=added) == "3"


def test_a_runtime_class_adds_to_each_pod_and_creates_no_limit() -> None:
    fixed = {"cpu": "250m", "memory": "120Mi"}
    assert cpu([container("1")], [container("2")], overhead=fixed) == "2.25"
    assert cpu([container("1")], kind="limits", overhead=fixed) == "none"
    assert cpu([container(limit="1")], kind="limits", overhead=fixed) == "1.25"
