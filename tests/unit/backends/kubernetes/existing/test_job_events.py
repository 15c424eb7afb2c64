"""Events that describe shows: of a job, its pods, and the objects between them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.existing import job_events
from ciao_kernel.model import Job, Replica

REPLICAS = (Replica("worker", 0), Replica("launcher", 0))


class Server:
    """An API server with one event for each object that it is asked for."""

    async def get(self, path: str, **query: str) -> Any:
        name = query["fieldSelector"].removeprefix("involvedObject.name=")
        return {"metadata": {}, "items": [{"involvedObject": {"name": name}}]}


@pytest.mark.parametrize(
    ("resource", "names"),
    [
        ("jobs", {"train", "pod"}),
        (
            "trainjobs",
            {"train", "train-node-0", "train-worker-0", "train-launcher-0", "pod"},
        ),
        (
            "mpijobs.v2beta1.kubeflow.org",
            {"train", "train-worker-0", "train-launcher", "train-launcher-0", "pod"},
        ),
        ("mpijobs", {"train", "train-worker-0", "train-launcher", "train-launcher-0", "pod"}),
    ],
)
def test_events_of_all_objects_of_a_job_are_read(resource: str, names: set[str]) -> None:
    job = Job("train", "kubernetes", "mpi", REPLICAS, 0.0, "team", resource=resource)
    pods = {REPLICAS[0]: {"metadata": {"name": "pod"}}}
    server: Any = Server()
    events, missing = asyncio.run(job_events.read(server, job, pods))
    assert {one["involvedObject"]["name"] for one in events} == names
    assert not missing
