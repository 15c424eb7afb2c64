"""The wait for the pod that reads a claim."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.output import reader_start
from ciao_kernel.backends.kubernetes.output.reader_start import Patience
from ciao_kernel.errors import BackendError, Refused
from ciao_kernel.kube.client import Object

POD: Object = {"metadata": {"name": "reader", "uid": "u"}}
PATH = "/api/v1/namespaces/team/pods/reader"
NOW = Patience(60.0, told=0.0, hopeless=60.0, look=0.0)


def pending(message: str = "", reason: str = "Unschedulable") -> Object:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    status = {"phase": "Pending", "conditions": [condition] if message else []}
    return {**POD, "status": status}


RUNNING: Object = {**POD, "status": {"phase": "Running"}}
MOUNT = {"type": "Warning", "reason": "FailedMount", "message": "no such export.", "count": 1}


class Cluster:
    """A pod that is another one at each look, and its events."""

    def __init__(self, *pods: Object | None, events: Sequence[Any] | Exception = ()) -> None:
        self.pods, self.events = list(pods), events
        self.looks, self.asked = 0, 0

    async def find(self, path: str) -> Object | None:
        assert path == PATH
        self.looks += 1
        return self.pods.pop(0) if len(self.pods) > 1 else self.pods[0]

    async def get(self, path: str, **query: str) -> Object:
        assert path == "/api/v1/namespaces/team/events"
        assert query == {"fieldSelector": "involvedObject.uid=u"}
        self.asked += 1
        if isinstance(self.events, Exception):
            raise self.events
        return {"items": list(self.events)}


def wait(cluster: Cluster, patience: Patience, tell: Callable[[str], None]) -> Object:
    return asyncio.run(reader_start.wait(cluster, PATH, POD, patience, tell))


def test_a_pod_that_starts_soon_needs_no_word() -> None:
    told: list[str] = []
    found = wait(Cluster(pending(), RUNNING), Patience(look=0.0), told.append)
    assert (found, told) == (POD, [])


def test_a_long_wait_is_told_once_in_the_clusters_words() -> None:
    told: list[str] = []
    waits = pending("0/3 nodes are available: 3 Insufficient memory.")
    cluster = Cluster(waits, waits, RUNNING)
    assert wait(cluster, NOW, told.append) == POD
    (said,) = told
    assert said == (
        "the pod that reads the claim waits: unschedulable: 0/3 nodes are available: 3 "
        "Insufficient memory."
    )


def test_the_events_tell_why_a_node_does_not_start_it() -> None:
    told: list[str] = []
    cluster = Cluster(pending(), RUNNING, events=[MOUNT])
    assert wait(cluster, NOW, told.append) == POD
    assert told == ["the pod that reads the claim waits: FailedMount: no such export."]
    # Who may not read events is told nothing.
    cluster = Cluster(pending(), RUNNING, events=Refused("no", code=403))
    told.clear()
    assert wait(cluster, NOW, told.append) == POD
    assert told == []


@pytest.mark.parametrize(
    "words",
    [
        'persistentvolumeclaim "results" not found',
        '0/1 nodes are available: persistentvolumeclaim "results" is being deleted.',
    ],
)
def test_a_pod_that_no_node_can_take_is_not_waited_for(words: str) -> None:
    cluster = Cluster(pending(words))
    with pytest.raises(BackendError, match=r"did not start: unschedulable: .*results"):
        wait(cluster, Patience(look=0.0), lambda _: None)
    assert cluster.looks == 1


def test_an_image_that_cannot_be_pulled_ends_the_wait_early() -> None:
    waits = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}
    stuck = {**POD, "status": {"phase": "Pending", "containerStatuses": [waits]}}
    patience = Patience(60.0, told=60.0, hopeless=0.0, look=0.0)
    with pytest.raises(BackendError, match="did not start: ImagePullBackOff: not found"):
        wait(Cluster(pending(), stuck), patience, lambda _: None)


def test_the_last_known_reason_is_that_of_the_end() -> None:
    patience = Patience(0.05, told=0.0, look=0.0)
    with pytest.raises(BackendError, match="did not start: FailedMount: no such export"):
        wait(Cluster(pending(), events=[MOUNT]), patience, lambda _: None)
    with pytest.raises(BackendError, match="did not start: its node has not started it"):
        wait(Cluster(pending()), patience, lambda _: None)
