"""For which nodes images are made: what the user says, else what the nodes are."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.states.workloads import GROUP
from ciao_kernel.backends.kubernetes.submission import architecture
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, ClusterFault, Refused
from ciao_kernel.kube.answer_cache import AnswerCache
from ciao_kernel.magics import parse
from ciao_kernel.model import Owner, Source, SourceFile
from ciao_kernel.plugins import Plan
from ciao_kernel.session.plugin_registry import Registry

REGISTRY = Registry(third_party={})
TAINT = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
QUEUES = {
    "apiGroups": [GROUP],
    "resources": ["localqueues"],
    "verbs": ["get", "list"],
}
LIST = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}


def node(kind: str = "", **labels: str) -> dict[str, Any]:
    own = {"kubernetes.io/os": "linux", **({"kubernetes.io/arch": kind} if kind else {})}
    return {"metadata": {"labels": {**own, **labels}}}


def plane(**spec: Any) -> dict[str, Any]:
    """A node of amd64 on which a job may not run."""
    return {**node("amd64"), "spec": spec}


def with_gpus(kind: str, count: str, *taints: Any) -> dict[str, Any]:
    allocatable = {"cpu": "64", "nvidia.com/gpu": count}
    return {**node(kind), "spec": {"taints": [*taints]}, "status": {"allocatable": allocatable}}


class Client:
    """Has nodes, gives few in each answer, and may refuse to list them."""

    def __init__(self, *nodes: Any, may: bool = True, fault: BackendError | None = None) -> None:
        self.nodes, self.may, self.fault = nodes, may, fault
        self.cache = AnswerCache()
        self.asked = 0
        self.limits: list[str] = []
        self.queue = ""
        """The namespace that has a default queue."""

    async def known(self, path: str, body: Any = None) -> Any:
        if path == f"/apis/{GROUP}":
            if not self.queue:
                raise Refused("no", code=404)
            return {"preferredVersion": {"version": "v1beta1"}}
        return {
            "status": {"resourceRules": [LIST, QUEUES] if self.may else [], "incomplete": False}
        }

    async def get(self, path: str, **query: str) -> Any:
        assert (path, int(query["limit"]) <= 50) == ("/api/v1/nodes", True)
        self.asked += 1
        self.limits.append(query["limit"])
        assert not query.get("continue") or len({*self.limits[-2:]}) == 1
        if self.fault:
            raise self.fault
        terms = query["labelSelector"].split(",")
        found = [one for one in self.nodes if all(has(one["metadata"]["labels"], t) for t in terms)]
        start = int(query.get("continue", "0"))
        more = {"continue": str(start + 1)} if start + 1 < len(found) else {}
        return {"metadata": more, "items": found[start : start + 1]}

    async def find(self, path: str) -> Any:
        wanted = f"/apis/{GROUP}/v1beta1/namespaces/{self.queue}/localqueues/default"
        return {} if path == wanted else None


def has(labels: dict[str, str], term: str) -> bool:
    """Whether labels fulfil one term of a selector."""
    if "!=" in term:
        name, _, value = term.partition("!=")
        return labels.get(name) != value
    name, equals, value = term.partition("=")
    return name in labels and (not equals or labels[name] == value)


def found(
    client: Client,
    text: str = "",
    patch: Any = None,
    *,
    shared: bool = False,
    namespace: str = "team",
    **settings: Any,
) -> str:
    spec = parse.parse(f"%framework=tensorflow\n{text}\nprint()\n", REGISTRY.table).spec
    entry = SourceFile("cell.py", b"", size=0)
    framework = REGISTRY.framework("tensorflow")
    spec = framework.complete(spec)
    plan = Plan("", spec, framework, Source(entry, (), ()), Path(), "", Owner("ada"))
    target = Target(client, namespace)  # type: ignore[arg-type]
    chosen = replace(Settings(), **settings)
    return asyncio.run(architecture.of_nodes(plan, target, chosen, patch or {}, shared=shared))


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


@pytest.mark.parametrize(
    "other",
    [
        plane(taints=[TAINT]),
        plane(taints=[{**TAINT, "effect": "NoExecute"}]),
        plane(unschedulable=True),
    ],
)
def test_a_node_that_cannot_run_the_job_does_not_count(other: Any) -> None:
    assert found(Client(other, other, node("arm64"))) == "arm64"
    assert found(Client(other, node("arm64"), node("amd64"))) == "amd64"
    assert found(Client(other, {**node("arm64"), "spec": other["spec"]})) == "amd64"


def test_a_soft_taint_and_a_tolerated_one_do_not_matter() -> None:
    soft = plane(taints=[{"key": "spot", "effect": "PreferNoSchedule"}])
    assert found(Client(soft, node("arm64"))) == "amd64"
    tainted = plane(taints=[{"key": "pool", "value": "ml", "effect": "NoSchedule"}])
    client = Client(tainted, node("arm64"))
    assert found(client) == "arm64"
    assert found(client, "%toleration=pool=other") == "arm64"
    assert found(client, "%toleration=pool=ml:NoExecute") == "arm64"
    assert found(client, "%toleration=pool=ml:NoSchedule") == "amd64"
    patch = {"spec": {"tolerations": [{"operator": "Exists"}]}}
    assert found(client, patch=patch) == "amd64"


def test_a_job_with_gpus_takes_nodes_that_have_so_many() -> None:
    own = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    client = Client(node("amd64"), with_gpus("amd64", "2"), with_gpus("arm64", "4", own))
    assert found(client) == "amd64"
    assert found(client, "%gpu=2") == "amd64"
    assert found(client, "%gpu=4") == "arm64"
    assert found(client, "%gpu=8") == "amd64"


def test_a_queue_or_a_runtime_may_tolerate_what_the_cell_does_not() -> None:
    pool = plane(taints=[{"key": "pool", "value": "ml", "effect": "NoSchedule"}])
    client = Client(pool, node("arm64"))
    assert found(client) == "arm64"
    assert found(client, "%queue=gpus") == "amd64"
    assert found(client, queue="gpus") == "amd64"
    assert found(client, shared=True) == "amd64"
    client.queue = "other"
    assert found(client, namespace="other") == "amd64"
    assert found(client, namespace="third") == "arm64"
    few = Client(with_gpus("amd64", "0"), with_gpus("arm64", "4", {**TAINT, "key": "pool"}))
    assert found(few, "%gpu=4", namespace="third") == "amd64"
    few.queue = "other"
    assert found(few, "%gpu=4", namespace="other") == "arm64"


@pytest.mark.parametrize("spec", [{"unschedulable": True}, {"taints": [TAINT]}])
def test_no_queue_sends_a_job_to_a_cordoned_node_or_the_control_plane(spec: Any) -> None:
    client = Client(plane(**spec), node("arm64"))
    assert found(client, "%queue=gpus") == "arm64"
    assert found(Client(plane(**spec), plane(), node("arm64")), "%queue=gpus") == "amd64"


def test_a_large_cluster_is_not_read_whole() -> None:
    client = Client(*[plane(taints=[TAINT])] * 200, node("arm64"))
    assert found(client) == "arm64"
    assert client.asked == 5


def test_one_node_is_enough_if_neither_taints_nor_devices_matter() -> None:
    client = Client(*[plane()] * 3)
    everything = {"spec": {"tolerations": [{"operator": "Exists"}]}}
    assert found(client, "%queue=gpus") == found(client, patch=everything) == "amd64"
    assert client.limits == ["1", "1"]
    assert found(client) == found(client, "%gpu=1\n%queue=gpus") == "amd64"
    assert client.limits[2] == client.limits[3] == "50"
