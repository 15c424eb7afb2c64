"""Pods that wait for something that may never come, and for something that is only late."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.cluster.build_pods import KubernetesBuildCluster
from ciao_kernel.backends.kubernetes.cluster.singlepod import SinglePod
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.states import status
from ciao_kernel.config import Settings
from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube.server_clock import ServerClock
from ciao_kernel.model import Notice
from ciao_kernel.plugins import PodResult

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
        "spec": {"containers": [*({"name": one["name"]} for one in beside), {"name": "build"}]},
        "status": {"containerStatuses": [*beside, waiting]},
    }
    said: list[str] = []

    def emit(told: Any) -> None:
        assert isinstance(told, Notice)
        said.append(told.text)

    one = SinglePod(Target(Server(*events), "team"), Settings(**more), pod, "build", emit)  # type: ignore[arg-type]
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


class Content:
    """The bytes of an answer; a watch stays open."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    async def iter_any(self) -> AsyncIterator[bytes]:
        if not self.data:
            await asyncio.Event().wait()
        yield self.data

    async def readany(self) -> bytes:
        data, self.data = self.data, b""
        return data


class Answer:
    status, connection = 200, None

    def __init__(self, data: bytes) -> None:
        self.content = Content(data)


class Meshed(Server):
    """A server whose service mesh puts a container before those of each pod, which runs on."""

    access: Any = None
    clock = ServerClock()

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code
        self.logs: list[str] = []

    async def known(self, path: str, body: Any = None) -> Any:
        every = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        return {"status": {"resourceRules": [every]}}

    async def create(self, path: str, item: Any) -> Any:
        ended = {"exitCode": self.code, "containerID": "c1", "message": "why"}
        self.pod = {
            "metadata": {**item["metadata"], "uid": "1"},
            "spec": {
                **item["spec"],
                "containers": [{"name": "linkerd-proxy"}, *item["spec"]["containers"]],
            },
            "status": {
                "phase": "Running",
                "containerStatuses": [
                    {"name": "linkerd-proxy", "state": {"running": {}}},
                    {"name": "kaniko", "containerID": "c1", "state": {"terminated": ended}},
                ],
            },
        }
        return self.pod

    async def find(self, path: str) -> None: ...

    @contextlib.asynccontextmanager
    async def request(
        self, method: str, path: str, query: Any, timeout: object
    ) -> AsyncIterator[Answer]:
        if path.endswith("/log"):
            self.logs.append(query["container"])
            yield Answer(b"2026-01-01T00:00:01.000000000Z said\n")
        elif "watch" in query:
            yield Answer(b"")
        else:
            listed = {"metadata": {"resourceVersion": "5"}, "items": [self.pod]}
            yield Answer(json.dumps(listed).encode())


BUILD = {
    "metadata": {"name": "build"},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "kaniko"}]},
}


def test_only_the_builders_own_container_counts_where_a_webhook_adds_another() -> None:
    server = Meshed(0)
    cluster = KubernetesBuildCluster(Target(server, "team"), Settings())  # type: ignore[arg-type]
    result = asyncio.run(cluster.run(BUILD, [], lambda _: None))
    assert (result.code, result.first, set(server.logs)) == (0, ("said",), {"kaniko"})


def test_a_failed_build_ends_although_the_phase_never_follows() -> None:
    server = Meshed(1)

    async def main() -> PodResult:
        pod = await server.create("", BUILD)
        target = Target(server, "team")  # type: ignore[arg-type]
        one = SinglePod(target, Settings(), pod, "kaniko", lambda _: None, phase_patience=0.0)
        return await one.end()

    result = asyncio.run(main())
    assert (result.code, result.message, result.first) == (1, "why", ("said",))
