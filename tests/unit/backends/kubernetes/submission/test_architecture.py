"""For which nodes images are made: what the user says, else what the nodes are."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.submission import architecture
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, ClusterFault, Refused
from ciao_kernel.kube.answer_cache import AnswerCache
from ciao_kernel.magics import parse
from ciao_kernel.model import Owner, Source, SourceFile
from ciao_kernel.plugins import Plan
from ciao_kernel.session.plugin_registry import Registry

REGISTRY = Registry(third_party={})
LIST = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}


def node(kind: str = "", **labels: str) -> dict[str, Any]:
    own = {"kubernetes.io/os": "linux", **({"kubernetes.io/arch": kind} if kind else {})}
    return {"metadata": {"labels": {**own, **labels}}}


class Client:
    """Has nodes, and may refuse to list them."""

    def __init__(self, *nodes: Any, may: bool = True, fault: BackendError | None = None) -> None:
        self.nodes, self.may, self.fault = nodes, may, fault
        self.cache = AnswerCache()
        self.asked = 0

    async def known(self, path: str, body: Any = None) -> Any:
        return {"status": {"resourceRules": [LIST] if self.may else [], "incomplete": False}}

    async def get(self, path: str, labelSelector: str, limit: str) -> Any:
        assert (path, limit) == ("/api/v1/nodes", "1")
        self.asked += 1
        if self.fault:
            raise self.fault
        terms = [term.partition("=") for term in labelSelector.split(",")]
        found = [
            one
            for one in self.nodes
            if all(
                name in one["metadata"]["labels"]
                and (not equals or one["metadata"]["labels"][name] == value)
                for name, equals, value in terms
            )
        ]
        return {"items": found[:1]}


def found(client: Client, text: str = "", **settings: Any) -> str:
    spec = parse.parse(f"%framework=tensorflow\n{text}\nprint()\n", REGISTRY.table).spec
    entry = SourceFile("cell.py", b"", size=0)
    framework = REGISTRY.framework("tensorflow")
    plan = Plan("", spec, framework, Source(entry, (), ()), Path(), "", Owner("ada"))
    target = Target(client, "team")  # type: ignore[arg-type]
    return asyncio.run(architecture.of_nodes(plan, target, replace(Settings(), **settings)))


@pytest.mark.parametrize(
    ("nodes", "kind"),
    [
        ([node("amd64")], "amd64"),
        ([node("arm64")], "arm64"),
        ([node("arm64"), node("amd64")], "amd64"),
        ([], "amd64"),
        ([node()], "amd64"),
        ([{"metadata": {"labels": {"kubernetes.io/os": "windows",
                                   "kubernetes.io/arch": "arm64"}}}], "amd64"),
    ],
)  # fmt: skip
def test_the_nodes_tell_and_amd64_comes_first(nodes: list[Any], kind: str) -> None:
    client = Client(*nodes)
    assert found(client) == kind
    asked = client.asked
    assert found(client) == kind
    assert client.asked == asked


def test_only_nodes_that_the_cell_selects_count() -> None:
    client = Client(node("amd64"), node("arm64", pool="gh200"))
    assert found(client, "%nodeSelector=pool=gh200") == "arm64"
    assert found(client) == "amd64"


def test_what_the_user_says_needs_no_question() -> None:
    client = Client(node("amd64"))
    assert found(client, "%nodeSelector=kubernetes.io/arch=arm64") == "arm64"
    assert found(client, architecture="s390x") == "s390x"
    assert client.asked == 0


@pytest.mark.parametrize("fault", [Refused("no", code=403), ClusterFault("away")])
def test_who_may_not_ask_gets_what_was_always_built(fault: BackendError) -> None:
    client = Client(node("arm64"), may=False)
    assert found(client) == "amd64"
    assert client.asked == 0
    assert found(Client(node("arm64"), fault=fault)) == "amd64"
