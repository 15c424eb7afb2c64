"""What pods use: whom it asks, and what it says where nobody answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.existing import usage
from ciao_kernel.backends.kubernetes.existing.pod_program import EnteredPods
from ciao_kernel.errors import BackendError, Refused
from ciao_kernel.model import Job, Manifest, Replica
from ciao_kernel.model.usage import Usage, UsageReport

MI = 1024 * 1024
REPLICAS = tuple(Replica("worker", number) for number in range(17))
JOB = Job("mine", "kubernetes", "tensorflow", REPLICAS, 0.0, "team", kind_of_place="namespace")


class Server:
    """Has metrics, or refuses them.

    Args:
        items: The metrics.
        code: Status code of a refusal; 0: it answers.
        enters: Whether the user may enter pods.
    """

    def __init__(self, items: list[Manifest], code: int = 0, *, enters: bool = False) -> None:
        self.items, self.code, self.enters = items, code, enters
        self.asked: list[str] = []

    async def known(self, path: str, body: Any = None) -> Any:
        rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods/exec"]}
        return {"status": {"incomplete": False, "resourceRules": [rule] if self.enters else []}}

    async def get(self, path: str, **query: str) -> Any:
        self.asked.append(path)
        if self.code:
            raise Refused("no", code=self.code)
        return {"items": self.items}


def pod(replica: Replica, limit: str = "256Mi") -> Manifest:
    return {
        "metadata": {"name": f"mine-{replica}", "labels": {}},
        "spec": {
            "containers": [{"name": "program", "resources": {"limits": {"memory": limit}}}],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "program", "state": {"running": {}}, "ready": True}],
        },
    }


def metrics(replica: Replica, memory: str = "93184Ki", cpu: str = "250000000n") -> Manifest:
    used = {"name": "program", "usage": {"cpu": cpu, "memory": memory}}
    other = {"name": "beside", "usage": {"cpu": "7", "memory": "7Gi"}}
    return {"metadata": {"name": f"mine-{replica}"}, "containers": [other, used]}


def ask(server: Server, *replicas: Replica) -> UsageReport:
    pods = {one: pod(one) for one in replicas if one.index != 3}
    entered = EnteredPods(server, JOB, pods, "python3")  # type: ignore[arg-type]
    return asyncio.run(usage.usage(entered, replicas))


def test_many_replicas_are_one_request() -> None:
    many = [*REPLICAS, Replica("worker", 17)]
    server = Server([metrics(one) for one in many if one.index != 5], enters=True)
    report = ask(server, *many)
    assert server.asked == ["/apis/metrics.k8s.io/v1beta1/namespaces/team/pods"]
    assert report.replicas[0] == Usage(REPLICAS[0], 0.25, 91 * MI, None, 256 * MI)
    assert report.replicas[3] == Usage(REPLICAS[3], fault="it has no pod")
    assert report.replicas[5] == Usage(REPLICAS[5], fault="it is not measured yet", awaited=True)
    assert report.remark.startswith("By metrics.k8s.io:")


def test_metrics_replace_the_right_to_enter_pods() -> None:
    report = ask(Server([metrics(REPLICAS[0])]), REPLICAS[0])
    assert report.replicas == (Usage(REPLICAS[0], 0.25, 91 * MI, None, 256 * MI),)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (404, "the cluster has no metrics (metrics.k8s.io)"),
        (403, "you may not list pods.metrics.k8s.io in team"),
        (503, "the cluster's metrics do not answer (503)"),
    ],
)
def test_one_sentence_says_why_nothing_is_known(code: int, why: str) -> None:
    with pytest.raises(BackendError) as few:
        ask(Server([], code), REPLICAS[0])
    obstacle = "you may not enter pods, as you lack the right to get pods/exec"
    assert (
        few.value.message == f"what the replicas of mine use is not known: {obstacle}, and {why}."
    )
    assert "exec-role.yaml" in few.value.hint
    with pytest.raises(BackendError) as many:
        ask(Server([], code, enters=True), *REPLICAS, Replica("worker", 17))
    assert "17 replicas are too many to enter each of them, and " in many.value.message
    assert many.value.hint == f"`ciao top {JOB.reference} --replica worker-0` asks one alone."


def test_replicas_that_do_not_run_need_no_right() -> None:
    server = Server([], 403)
    report = ask(server, REPLICAS[3])
    assert report.replicas == (Usage(REPLICAS[3], fault="it has no pod"),)
    assert server.asked == []


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"[1]", b"7", b'"x"', b"Warning: odd", b"{", b"\xff", b"null", b"[" * 60_000],
    ids=lambda line: repr(line[:12]),
)
def test_what_is_no_reading_is_none(line: bytes) -> None:
    assert usage._reading(REPLICAS[0], line) is None


def test_odd_numbers_of_a_pod_are_left_out() -> None:
    line = b'{"memory": "many", "peak": -1, "limit": true, "cpu": 1e300, "gpus": [7, ["x", 5]]}'
    (gpu,) = usage._reading(REPLICAS[0], line).gpus  # type: ignore[union-attr]
    assert (gpu.share, gpu.memory, gpu.total) == (None, 5, None)
    assert usage._reading(REPLICAS[0], b'{"memory": NaN}') == Usage(REPLICAS[0])
