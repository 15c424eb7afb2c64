"""Which pod's log is read: the replica's by its labels, whatever its name is."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from ciao_kernel.backends.kubernetes.apis import operator_v1, replica_list, trainer
from ciao_kernel.backends.kubernetes.apis.indexed_job import INDEX
from ciao_kernel.backends.kubernetes.existing import logs
from ciao_kernel.errors import BackendError
from ciao_kernel.kube.client import Client
from ciao_kernel.kube.server_clock import ServerClock
from ciao_kernel.model import Job, Replica
from ciao_kernel.model.queries import WHOLE_LOG, LogOptions

ZERO, ONE = Replica("worker", 0), Replica("worker", 1)
JOB = Job("mine", "kubernetes", "tensorflow", (ZERO, ONE), 0.0, "team", uid="j")


def pod(name: str, replica: Replica, *, owner: str = "j", job: str = "mine", at: str = "1") -> Any:
    labels = {
        operator_v1.JOB_LABEL: job,
        operator_v1.ROLE_LABEL: replica.role,
        operator_v1.INDEX_LABEL: str(replica.index),
    }
    if replica.role == "launcher":
        del labels[operator_v1.INDEX_LABEL]
    owners = [{"uid": owner}]
    meta = {"name": name, "labels": labels, "ownerReferences": owners, "creationTimestamp": at}
    return {"metadata": meta, "spec": {"containers": [{"name": "main"}]}}


class Server:
    """Selects pods by their labels, and writes each one's name into its log."""

    def __init__(self, *pods: Any) -> None:
        self.pods = pods
        self.selected: list[int] = []
        self.clock = ServerClock()

    async def get(self, path: str, **query: str) -> Any:
        assert path == "/api/v1/namespaces/team/pods"
        wanted = dict(word.split("=") for word in query["labelSelector"].split(","))
        items = [one for one in self.pods if wanted.items() <= one["metadata"]["labels"].items()]
        self.selected.append(len(items))
        return {"items": items, "metadata": {}}

    async def text(self, path: str, **query: str) -> bytes:
        return path.split("/")[-2].encode()


def read(
    server: Server,
    replica: Replica,
    kept: Path,
    options: LogOptions = WHOLE_LOG,
    job: Job = JOB,
) -> str:
    client = cast(Client, server)
    return asyncio.run(logs.read(client, job, replica, options, kept)).decode()


def test_a_pod_is_found_by_its_labels(tmp_path: Path) -> None:
    launcher = Replica("launcher", 0)
    server = Server(
        pod("mine-7f3a", ZERO),
        pod("odd", ONE),
        pod("mine-worker-0", ZERO, job="other"),
        pod("mine-worker-1", Replica("ps", 1)),
        pod("mine-launch", launcher),
    )
    found = [read(server, replica, tmp_path / "no") for replica in (ZERO, ONE, launcher)]
    assert found == ["mine-7f3a", "odd", "mine-launch"]


def train_pod(index: int, *, shared: bool) -> Any:
    """A worker of a TrainJob, with its own runtime or a shared one."""
    role = trainer.STEP if shared else "worker"
    number = {INDEX: str(index)}
    labels = {trainer.JOB_LABEL: "mine", trainer.ROLE_LABEL: role, **number}
    notes = {**number, **({replica_list.ANNOTATION: "worker=2"} if shared else {})}
    meta = {"name": f"mine-{role}-0-{index}", "labels": labels, "annotations": notes}
    return {"metadata": meta, "spec": {"containers": [{"name": "node"}]}}


@pytest.mark.parametrize(("shared", "selected"), [(False, [1]), (True, [0, 2])])
def test_of_a_train_job_the_pod_of_a_replica_alone_is_read(
    shared: bool, selected: list[int], tmp_path: Path
) -> None:
    server = Server(*(train_pod(index, shared=shared) for index in range(2)))
    job = replace(JOB, resource="trainjobs")
    role = "node" if shared else "worker"
    assert read(server, ONE, tmp_path / "no", job=job) == f"mine-{role}-0-1"
    assert server.selected == selected


def test_the_youngest_pod_of_this_job_counts(tmp_path: Path) -> None:
    pods = [
        pod("old", ZERO, at="2026-11-21T10:00:00Z"),
        pod("new", ZERO, at="2026-11-21T11:00:00Z"),
        pod("of-an-earlier-job", ZERO, owner="other", at="2026-11-21T12:00:00Z"),
    ]
    assert read(Server(*pods), ZERO, tmp_path / "no") == "new"
    assert read(Server(*reversed(pods)), ZERO, tmp_path / "no") == "new"


def test_a_replica_without_a_pod_has_its_saved_log(tmp_path: Path) -> None:
    kept = tmp_path / "worker-0.log"
    server = Server(pod("mine-worker-0", ZERO, owner="other"))
    assert not read(server, ZERO, kept)
    kept.write_text("saved")
    assert read(server, ZERO, kept) == "saved"
    with pytest.raises(BackendError, match="worker-0 of mine has no pod"):
        read(server, ZERO, kept, LogOptions(timestamps=True))
