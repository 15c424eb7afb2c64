"""Suspending and resuming jobs of each API: which requests it takes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.lifecycle import suspension
from ciao_kernel.backends.kubernetes.states import queues
from ciao_kernel.errors import BackendError, ClusterFault
from ciao_kernel.kube.answer_cache import AnswerCache
from ciao_kernel.model import Job, Manifest, Replica

WORKER = Replica("worker", 0)
JOBS = "/apis/kubeflow.org/v1/namespaces/team/tfjobs"


class Server:
    """Records patches; a user may do what it is told.

    Args:
        workload: The Workload of the job; None: there is none.
        pods: The phases of the job's pods at each look.
        rights: Whether the user has all rights.
    """

    def __init__(
        self,
        workload: Manifest | None = None,
        pods: tuple[tuple[str, ...], ...] = ((),),
        *,
        rights: bool = True,
    ) -> None:
        self.workload, self.pods, self.rights = workload, list(pods), rights
        self.patches: list[tuple[str, Any]] = []
        self.cache = AnswerCache()
        self.access = type("Access", (), {"source": "a test"})()

    async def known(self, path: str, body: Any = None) -> Any:
        if path == "/apis/kueue.x-k8s.io":
            return {"preferredVersion": {"version": "v1beta2"}}
        rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        return {"status": {"incomplete": False, "resourceRules": [rule] if self.rights else []}}

    async def find(self, path: str, **_: str) -> Any:
        return None

    async def get(self, path: str, *, labelSelector: str) -> Any:
        if path.endswith("/workloads"):
            return {"items": [self.workload] if self.workload else []}
        phases = self.pods.pop(0) if len(self.pods) > 1 else self.pods[0]
        return {"items": [{"metadata": {}, "status": {"phase": phase}} for phase in phases]}

    async def post(self, path: str, body: Any) -> Any:
        return {}

    async def patch(self, path: str, body: Any) -> Any:
        self.patches.append((path, body))
        return {}


def job(resource: str) -> Job:
    return Job("mnist", "kubernetes", "x", (WORKER,), 0.0, "team", resource=resource, uid="u1")


def item(spec: Manifest, queue: str = "") -> Manifest:
    labels = {queues.LABEL: queue} if queue else {}
    return {"metadata": {"name": "mnist", "uid": "u1", "labels": labels}, "spec": spec}


def run(server: Server, what: Job, found: Manifest, *, suspended: bool) -> None:
    target = Target(server, "team")  # type: ignore[arg-type]
    asyncio.run(suspension.set_suspended(target, what, found, suspended=suspended))


@pytest.mark.parametrize("suspended", [True, False])
@pytest.mark.parametrize(
    ("resource", "policy"),
    [
        ("tfjobs", True),
        ("mpijobs.v2beta1", True),
        ("jobs", False),
        ("trainjobs", False),
    ],
)
def test_the_field_is_that_of_the_api(resource: str, policy: bool, suspended: bool) -> None:
    server, what = Server(), job(resource)
    spec: Manifest = {"suspend": not suspended}
    kinds: Manifest = {"template": {}} if resource == "jobs" else {}
    kinds |= {"runtimeRef": {}} if resource == "trainjobs" else {}
    kinds |= {"mpiReplicaSpecs": {}, "slotsPerWorker": 1} if "mpi" in resource else {}
    found = item({**kinds, **({"runPolicy": spec} if policy else spec)})
    suspension_field = {"suspend": suspended}
    run(server, what, found, suspended=suspended)
    path = job_metadata.path("team", resource, "mnist")
    changed = {"runPolicy": suspension_field} if policy else suspension_field
    assert server.patches == [(path, {"metadata": {"uid": "u1"}, "spec": changed})]


@pytest.mark.parametrize("suspended", [True, False])
def test_a_job_in_a_queue_is_suspended_by_its_workload(suspended: bool) -> None:
    server = Server({"metadata": {"name": "w1"}, "spec": {"active": suspended}})
    # It waits in the queue, so the job itself is suspended, and yet not by a user.
    run(server, job("tfjobs"), item({"runPolicy": {"suspend": True}}, "q"), suspended=suspended)
    at = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/w1"
    assert server.patches == [(at, {"spec": {"active": not suspended}})]


def test_what_is_so_already_is_said() -> None:
    server = Server()
    with pytest.raises(BackendError, match="mnist is suspended already"):
        run(server, job("tfjobs"), item({"runPolicy": {"suspend": True}}), suspended=True)
    with pytest.raises(BackendError, match="mnist is not suspended"):
        run(server, job("tfjobs"), item({"runPolicy": {}}), suspended=False)
    assert server.patches == []


def test_a_resume_waits_for_the_pods_that_still_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspension, "_EVERY", 0.0)
    looks = (("Running", "Succeeded"), ("Running",), ("Succeeded", "Failed"))
    server = Server(pods=looks)
    run(server, job("jobs"), item({"template": {}, "suspend": True}), suspended=False)
    assert len(server.patches) == 1
    assert server.pods == [looks[-1]]


def test_pods_that_never_end_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspension, "_EVERY", 0.0)
    server = Server(pods=(("Running",),))
    with pytest.raises(BackendError, match="cannot be resumed yet: its pods have not ended"):
        run(server, job("tfjobs"), item({"runPolicy": {"suspend": True}}), suspended=False)
    assert server.patches == []


def test_without_the_right_nothing_is_asked() -> None:
    server = Server(rights=False)
    with pytest.raises(ClusterFault, match=r"you may not suspend jobs .* patch tfjobs.kubeflow"):
        run(server, job("tfjobs"), item({"runPolicy": {}}), suspended=True)
    assert server.patches == []


LEAVING = {"deletionTimestamp": "2026-11-28T08:00:00Z"}


@pytest.mark.parametrize(
    ("metadata", "phase", "over"),
    [
        ({}, "Running", False),
        ({}, "Failed", True),
        ({}, "Succeeded", True),
        (LEAVING, "Running", False),
        (LEAVING, "Failed", False),
    ],
)
def test_a_pod_that_is_being_deleted_is_not_over(
    metadata: dict[str, str], phase: str, over: bool
) -> None:
    """The training operator takes its end for a failure of the job that is resumed."""
    assert suspension._is_over({"metadata": metadata, "status": {"phase": phase}}) is over
