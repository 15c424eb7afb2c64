"""Pods that wait for something that may never come, and for something that is only late."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.cluster.singlepod import SinglePod
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.states import status
from ciao_kernel.config import Settings
from ciao_kernel.errors import ClusterFault
from ciao_kernel.model import Notice

MISSING = 'MountVolume.SetUp failed for volume "wishes": configmap "ciao-build-1" not found'


def mount(first: float, last: float) -> Any:
    """The kubelet's word so many seconds ago, and again."""
    ago = {"firstTimestamp": first, "lastTimestamp": last}
    times = {key: status.text(time.time() - seconds) for key, seconds in ago.items()}
    return {"message": MISSING, "type": "Warning", "reason": "FailedMount", **times}


class Server:
    """A client that knows events."""

    def __init__(self, *events: Any) -> None:
        self.events = list(events)

    async def get(self, path: str, **query: str) -> Any:
        return {"items": self.events}


def look(
    *events: Any, waited: float, reason: str = "ContainerCreating", beside: Any = (), **more: Any
) -> list[str]:
    """What is said of a pod that was made so many seconds ago, and whose container waits.

    Args:
        events: Of the pod.
        waited: Seconds.
        reason: Why its container waits.
        beside: Other containers.
        more: Settings.
    """
    made = {"name": "build", "uid": "1", "creationTimestamp": status.text(time.time() - waited)}
    waiting = {"name": "build", "state": {"waiting": {"reason": reason}}}
    pod = {
        "metadata": made,
        "spec": {"containers": [{"name": "build"}]},
        "status": {"containerStatuses": [*beside, waiting]},
    }
    said: list[str] = []

    def emit(told: Any) -> None:
        assert isinstance(told, Notice)
        said.append(told.text)

    one = SinglePod(Target(Server(*events), "team"), Settings(**more), pod, emit)  # type: ignore[arg-type]
    one._began -= waited
    asyncio.run(one._look(pod))
    return said


def test_a_volume_that_was_missing_for_a_moment_ends_no_build() -> None:
    """Ours is made after the pod; then nothing is said while the node makes the pod's network."""
    (text,) = look(mount(11.5, 11), waited=12)
    assert "waits: FailedMount: MountVolume.SetUp failed" in text


def test_a_volume_that_stays_missing_ends_it() -> None:
    with pytest.raises(ClusterFault, match=r"cannot start: FailedMount.*not found"):
        look(mount(11.5, 4), waited=12)


def test_a_container_that_was_added_to_the_pod_hides_no_image_that_is_missing() -> None:
    proxy = {"name": "istio-proxy", "state": {"running": {}}}
    with pytest.raises(ClusterFault, match="cannot start: ImagePullBackOff"):
        look(waited=12, reason="ImagePullBackOff", beside=[proxy], hopeless_wait=0.0)


def test_a_pull_of_the_image_is_named_once_it_takes_long() -> None:
    now = status.text(time.time())
    pull = {"reason": "Pulling", "type": "Normal", "message": 'Pulling image "host/kaniko:1"'}
    assert look(pull | {"lastTimestamp": now}, waited=5) == [
        'the pod that builds the image waits: Pulling image "host/kaniko:1"'
    ]
    pulled = {"reason": "Pulled", "type": "Normal", "message": "Successfully pulled image"}
    both = (pull | {"lastTimestamp": now}, pulled | {"lastTimestamp": now})
    assert look(*both, waited=5) == []
