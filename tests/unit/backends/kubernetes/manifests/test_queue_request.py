"""``%queue`` and ``%priority``: labels, and what is wrong with them before a job exists."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.apis import trainer
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.manifests import queue_request
from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects
from ciao_kernel.backends.kubernetes.states import queues
from ciao_kernel.config import Settings
from ciao_kernel.errors import Refused, SpecError
from ciao_kernel.model import ClusterSpec

KUEUE = "/apis/kueue.x-k8s.io"
QUEUES = f"{KUEUE}/v1beta2/namespaces/team/localqueues"
CLASSES = f"{KUEUE}/v1beta2/workloadpriorityclasses"


class Server:
    """A cluster with the queues ``small`` and ``large`` and the priority ``high``."""

    def __init__(self, *, kueue: bool = True, rights: bool = True) -> None:
        self.kueue, self.rights = kueue, rights
        self.access = SimpleNamespace(source="~/.kube/config")

    async def known(self, path: str, body: Any = None) -> Any:
        if path == KUEUE:
            if not self.kueue:
                raise Refused("not found", "", code=404, reason="NotFound")
            return {"preferredVersion": {"version": "v1beta2"}}
        rule = {"verbs": ["*"], "apiGroups": ["kueue.x-k8s.io"], "resources": ["localqueues"]}
        return {"status": {"incomplete": False, "resourceRules": [rule] if self.rights else []}}

    async def find(self, path: str) -> Any:
        assert path.startswith((QUEUES, CLASSES))
        if path.startswith(CLASSES) and not self.rights:
            raise Refused("forbidden", "", code=403, reason="Forbidden")
        return {} if path.rpartition("/")[2] in {"small", "large", "high"} else None

    async def get(self, path: str) -> Any:
        assert path == QUEUES
        return {"items": [{"metadata": {"name": name}} for name in ("small", "large")]}


def check(server: Server, setting: str = "", **cluster: str) -> None:
    target: Any = Target(server, "team")  # type: ignore[arg-type]
    spec = ClusterSpec(**cluster)  # type: ignore[arg-type]
    asyncio.run(queue_request.check(spec, target, Settings(queue=setting)))


def test_labels_are_those_of_kueue() -> None:
    cell = ClusterSpec(queue="small", queue_priority="high")
    assert queue_request.labels(cell, Settings(queue="large")) == {
        "kueue.x-k8s.io/queue-name": "small",
        "kueue.x-k8s.io/priority-class": "high",
    }
    assert queue_request.labels(ClusterSpec(), Settings(queue="large")) == {
        "kueue.x-k8s.io/queue-name": "large"
    }
    assert queue_request.labels(ClusterSpec(), Settings()) == {}


def test_what_exists_is_accepted() -> None:
    check(Server(), queue="small", queue_priority="high")
    check(Server(), "large")


def test_without_a_queue_nobody_asks() -> None:
    check(Server(kueue=False))


@pytest.mark.parametrize(
    ("cell", "message", "hint"),
    [
        (
            {"queue": "nosuch"},
            "the namespace team has no queue nosuch.",
            "It has large, small; an administrator makes a LocalQueue.",
        ),
        (
            {"queue_priority": "nosuch"},
            "the cluster has no WorkloadPriorityClass nosuch.",
            "Name another with %priority=…",
        ),
    ],
)
def test_what_is_missing_is_named(cell: dict[str, str], message: str, hint: str) -> None:
    with pytest.raises(SpecError) as found:
        check(Server(), **cell)
    assert found.value.message == message
    assert found.value.hint.startswith(hint)


def test_without_the_rights_the_cluster_decides_later() -> None:
    check(Server(rights=False), queue="nosuch", queue_priority="nosuch")


def test_a_cluster_without_kueue_has_no_queues() -> None:
    with pytest.raises(SpecError, match="has no Kueue, so no job can wait in a queue"):
        check(Server(kueue=False), queue="small")


@pytest.mark.parametrize(
    ("labels", "kueue", "default", "holds"),
    [
        ({queues.LABEL: "team"}, False, False, True),
        ({}, False, False, False),
        ({}, True, False, False),
        ({}, True, True, True),
    ],
)
@pytest.mark.parametrize(
    "refusal", [f"the runtime {trainer.RUNTIME_FIRST}", 'webhook "a" does not support dry run']
)
def test_a_job_without_a_dry_run_waits_by_its_label_or_the_default_queue(
    refusal: str, labels: dict[str, str], kueue: bool, default: bool, holds: bool
) -> None:
    """The runtime of a TrainJob does not exist yet, or a webhook has effects."""

    class WithoutRuntime(Server):
        async def create(self, path: str, item: Any, *, dry_run: bool) -> Any:
            raise Refused(refusal, code=403)

        async def find(self, path: str) -> Any:
            assert path == f"{QUEUES}/default"
            return {} if default else None

    target: Any = Target(WithoutRuntime(kueue=kueue), "team")  # type: ignore[arg-type]
    made = Objects((), {"metadata": {"labels": labels}}, "/trainjobs")
    assert asyncio.run(queue_request.holds(target, made)) == holds


@pytest.mark.parametrize("suspend", [True, False])
def test_a_job_that_kueue_does_not_suspend_is_not_in_a_queue(suspend: bool) -> None:
    item = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"namespace": "team"},
        "spec": {"suspend": suspend, "template": {}},
    }
    said = queue_request.ignored(item, ClusterSpec(queue="small"), Settings())
    assert bool(said) is not suspend
    if said:
        assert said.startswith("queue small has no effect: Kueue does not manage Jobs in the ")
    assert queue_request.ignored(item, ClusterSpec(), Settings()) == ""
