"""The container that keeps files obeys the rules of a namespace, and keeps the class of its pod."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.output.sidecar_resources import of_sidecar
from ciao_kernel.backends.kubernetes.submission import limit_ranges
from tests.unit.backends.kubernetes.submission.test_cpu_request import Client

MEMORY = {"requests": {"memory": "4Gi"}, "limits": {"memory": "4Gi"}}
BURSTS = {"requests": {"cpu": "1", "memory": "4Gi"}, "limits": {"cpu": "4", "memory": "4Gi"}}
EQUAL = {"requests": {"cpu": "1", "memory": "4Gi"}, "limits": {"cpu": "1000m", "memory": "4Gi"}}


def amounts(program: Any, *rules: Any) -> list[str]:
    """Request and limit of each resource that the sidecar names."""
    found = of_sidecar(program, rules)
    names = ("cpu", "memory")
    kinds = ("requests", "limits")
    return [found[kind][name] for name in names for kind in kinds if name in found.get(kind, {})]


def test_without_rules_it_asks_for_little_of_what_the_program_names() -> None:
    assert amounts({}) == []
    assert amounts({"requests": {"cpu": "100m"}}) == ["10m"]
    assert amounts(MEMORY) == ["32Mi", "256Mi"]
    assert amounts(BURSTS) == ["10m", "500m", "32Mi", "256Mi"]


def test_a_pod_that_is_guaranteed_stays_so() -> None:
    assert amounts(EQUAL) == ["250m", "250m", "256Mi", "256Mi"]
    filled = {"default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}}
    assert amounts(MEMORY, filled) == ["256Mi", "256Mi"]
    filled = {"default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}}
    assert amounts(MEMORY, filled) == ["32Mi", "256Mi"]
    assert amounts(EQUAL, {"min": {"cpu": "300m"}}) == ["300m", "300m", "256Mi", "256Mi"]


@pytest.mark.parametrize(
    ("rule", "cpu", "memory"),
    [
        ({"min": {"cpu": "50m", "memory": "64Mi"}}, ["50m", "500m"], ["64Mi", "256Mi"]),
        ({"min": {"cpu": "1", "memory": "1Gi"}}, ["1", "1"], ["1Gi", "1Gi"]),
        ({"max": {"cpu": "200m", "memory": "128Mi"}}, ["10m", "200m"], ["32Mi", "128Mi"]),
        ({"max": {"memory": "16Mi"}}, ["10m", "500m"], ["16Mi", "16Mi"]),
        ({"maxLimitRequestRatio": {"cpu": "4", "memory": "2"}}, ["125m", "500m"],
         ["128Mi", "256Mi"]),
        ({"maxLimitRequestRatio": {"cpu": "3", "memory": "1"}}, ["167m", "500m"],
         ["256Mi", "256Mi"]),
        ({"min": {"cpu": 1}, "max": "?", "maxLimitRequestRatio": {"memory": "?"}}, ["1", "1"],
         ["32Mi", "256Mi"]),
    ],
)  # fmt: skip
def test_the_rules_of_a_namespace_hold(rule: Any, cpu: list[str], memory: list[str]) -> None:
    assert amounts(BURSTS, rule) == [*cpu, *memory]


def test_a_limit_that_the_namespace_adds_counts_for_the_ratio() -> None:
    asks = {"requests": {"cpu": "100m"}}
    rule = {"default": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "10"}}
    assert amounts(asks, rule) == ["200m"]
    assert amounts({**asks, "limits": {"cpu": "1"}}, rule) == ["50m", "500m"]
    assert amounts(asks, {**rule, "default": {"cpu": "5m"}}) == ["5m"]
    assert amounts(asks, {**rule, "default": {"cpu": "?"}}) == ["50m"]


def test_all_rules_for_containers_count() -> None:
    rules = {"min": {"memory": "64Mi"}}, {"max": {"memory": "200Mi"}}, {"min": {"memory": "48Mi"}}
    assert amounts(MEMORY, *rules) == ["64Mi", "200Mi"]


def test_the_rules_are_those_of_containers_if_they_may_be_read() -> None:
    rule = {"type": "Container", "min": {"memory": "64Mi"}}
    pods = {"type": "Pod", "min": {"memory": "1Gi"}}

    def read(client: Client) -> Any:
        return asyncio.run(limit_ranges.of_containers(Target(client, "team")))  # type: ignore[arg-type]

    assert read(Client(rule, pods)) == (rule,)
    assert read(Client()) == ()
    assert read(Client(rule, may=False)) == ()
