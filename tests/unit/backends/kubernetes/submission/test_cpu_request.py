"""A replica for which nobody names processors requests a few, unless the namespace has rules."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.submission import cpu_request
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, Refused, SettingError
from ciao_kernel.magics import parse
from ciao_kernel.model import Owner, Source, SourceFile
from ciao_kernel.plugins import Plan
from ciao_kernel.session.plugin_registry import Registry

REGISTRY = Registry(third_party={})


class Client:
    """Has LimitRanges, and may refuse to list them."""

    def __init__(self, *rules: Any, may: bool = True, fault: BackendError | None = None) -> None:
        self.items = [{"spec": {"limits": [rule]}} for rule in rules]
        self.may, self.fault = may, fault
        self.listed = 0

    async def known(self, path: str, body: Any = None) -> Any:
        if body is not None:
            right = {"apiGroups": [""], "resources": ["limitranges"], "verbs": ["list"]}
            return {"status": {"resourceRules": [right] if self.may else [], "incomplete": False}}
        assert path == "/api/v1/namespaces/team/limitranges"
        self.listed += 1
        if self.fault:
            raise self.fault
        return {"items": self.items}


def request(client: Client, text: str = "", **settings: Any) -> str:
    spec = parse.parse(f"%framework=tensorflow\n{text}\nprint()\n", REGISTRY.table).spec
    framework = REGISTRY.framework("tensorflow")
    source = Source(SourceFile("cell.py", b"", size=0), (), ())
    plan = Plan("", framework.complete(spec), framework, source, Path(), "", Owner("ada"))
    target = Target(client, "team")  # type: ignore[arg-type]
    found = Settings().with_values(settings, "the test")
    return asyncio.run(cpu_request.of_replicas(plan, target, found))


def test_the_setting_applies_where_the_namespace_has_no_rules() -> None:
    assert request(Client()) == "100m"
    memory = {"type": "Container", "default": {"memory": "1Gi"}, "defaultRequest": None}
    assert request(Client(memory), cpuRequest="0.25") == "0.25"
    assert request(Client(), "%ps=1;%cpu=1\n%worker=2") == "100m"  # for the workers


@pytest.mark.parametrize(
    "rule",
    [
        {"type": "Container", "defaultRequest": {"cpu": "500m"}},
        {"type": "Container", "default": {"cpu": "50m"}},
        {"type": "Container", "maxLimitRequestRatio": {"cpu": "4"}},
        {"type": "Pod", "min": {"cpu": "1"}},
        {"type": "Pod", "max": {"cpu": "50m"}},
    ],
)
def test_a_rule_of_the_namespace_takes_precedence(rule: dict[str, Any]) -> None:
    other = {"type": "Container", "default": {"memory": "1Gi"}}
    assert request(Client(other, rule)) == ""


def test_what_is_not_known_is_not_assumed() -> None:
    unasked = Client(may=False)
    assert request(unasked) == ""
    assert unasked.listed == 0
    assert request(Client(fault=Refused("no", code=403))) == ""


@pytest.mark.parametrize("value", ["", "0", 0])
def test_it_can_be_turned_off_and_then_nothing_is_asked(value: object) -> None:
    client = Client()
    assert request(client, cpuRequest=value) == ""
    assert request(client, "%cpu=1\n%ps=1\n%worker=2") == ""  # every role has its own
    assert request(client, "%ps=0\n%worker=2;%cpu=1") == ""
    assert client.listed == 0


@pytest.mark.parametrize("value", ["much", "4Gi", "-1", "100m 200m", True, "0m"])
def test_another_value_is_an_error(value: object) -> None:
    with pytest.raises(SettingError, match=r"cpuRequest cannot be .*such as 100m or 0.5; empty or"):
        request(Client(), cpuRequest=value)
