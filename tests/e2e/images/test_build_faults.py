"""What may happen to a pod that builds: to its kernel, to its node, beside another one."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.states.status import stamp
from ciao_kernel.errors import ClusterFault, RegistryFault
from tests.cluster.faults import policies
from tests.cluster.waiting import until
from tests.e2e.images.conftest import Maker
from tests.e2e.jobs.test_kernel import ciao
from tests.helpers.jobs import Ended, Recorder, wait
from tests.integration.oci.fake_registry import Behaviour, Handler, serving

pytestmark = pytest.mark.slow
second = pytest.mark.second("builders")
CELL = "print(open('/opt/built').read().strip())"
COUNTED = "for i in $(seq 30); do echo line $i; done"
LAST_LINES = "\n".join(f"line {number}" for number in range(16, 31))
"""Of the twenty that are told; the executor may have said something behind them."""


def build_pod(maker: Maker) -> dict[str, Any]:
    """The pod that builds."""
    pods: list[dict[str, Any]] = maker.team.namespace.get("pods")["items"]
    return next(pod for pod in pods if pod["metadata"]["name"].startswith("ciao-build-"))


def over(pod: dict[str, Any]) -> float:
    """When a pod ended; infinity where it has not."""
    ends = [one["state"].get("terminated") for one in pod["status"].get("containerStatuses", ())]
    return stamp(ends[0]["finishedAt"]) if ends and ends[0] else float("inf")


@pytest.mark.second("builders")
def test_a_killed_kernel_leaves_a_build_that_ends_and_that_the_next_one_removes(
    maker: Maker, place: Any, start_kernel: Callable[..., Any]
) -> None:
    lines = "RUN echo begun && sleep 12 && echo first > /opt/built"
    maker.dockerfile(lines)
    (place.work / "Dockerfile").write_bytes((maker.team.folder / "Dockerfile").read_bytes())
    kernel = start_kernel(env=maker.variables())
    head = "%framework=tensorflow\n%worker=1\n%dockerfile=Dockerfile\n"
    running = kernel.execute(head + CELL)
    kernel.wait(lambda: "[build] begun" in running.text, "the build", 120)

    kernel.kill()

    assert build_pod(maker)["spec"]["activeDeadlineSeconds"] == 3600
    until(lambda: time.time() > over(build_pod(maker)) + 2, "the build to be over", 90)
    assert len(maker.builds()) == 2  # the pod, and its context
    # What it built counts all the same.
    again = maker.run(CELL, "%dockerfile=Dockerfile")
    assert maker.lines(again) == ["first"]
    assert "[build] " not in again.display.notices
    assert len(maker.builds()) == 2
    maker.dockerfile("RUN echo second > /opt/built")
    ended = maker.run(CELL, "%dockerfile=Dockerfile", follow_patience=1.0)
    assert maker.lines(ended) == ["second"]
    assert maker.left() == []


@pytest.mark.second("builders")
def test_deleting_a_job_removes_builds_that_were_left_and_nothing_else(
    maker: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = maker.cluster.image("tools")

    def pod(name: str, command: str, **labels: str) -> dict[str, Any]:
        container = {"name": "a", "image": tools, "command": ["sh", "-c", command]}
        meta = {"name": name, "labels": {"app.kubernetes.io/managed-by": "ciao", **labels}}
        spec = {"restartPolicy": "Never", "containers": [container]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}

    job = {"ciao-kernel/job": "another"}
    maker.team.namespace.create_objects(
        pod("left", "exit 1"),
        pod("builds", "sleep 600"),
        pod("replica", "true", **job),
        pod("somebody", "true", **{"app.kubernetes.io/managed-by": "helm"}),
    )
    assert maker.run("print(1)", "%name=done").error is None
    names = ("left", "replica", "somebody")
    until(
        lambda: all(
            time.time() > over(maker.team.namespace.get(f"pod/{name}")) + 2 for name in names
        ),
        "the pods to be over",
        60,
    )
    monkeypatch.setenv("CIAO_FOLLOW_PATIENCE", "1")
    assert "was deleted" in ciao(maker.team, "delete", "done")

    until(lambda: not maker.team.namespace.find("pod/left"), "what was left to be gone", 90)
    for name in ("builds", "replica", "somebody"):
        found = maker.team.namespace.get(f"pod/{name}")
        assert "deletionTimestamp" not in found["metadata"], name


@pytest.mark.second("builders")
def test_two_kernels_that_build_the_same_do_not_collide(maker: Maker, tmp_path: Path) -> None:
    maker.dockerfile("RUN echo begun && sleep 3 && echo built > /opt/built")
    with ThreadPoolExecutor() as threads:
        runs = [threads.submit(maker.run, CELL, "%dockerfile=Dockerfile") for _ in range(2)]
        ended = [run.result() for run in runs]

    assert [maker.lines(one) for one in ended] == [["built"], ["built"]]
    assert all("[build] begun" in one.display.notices for one in ended)
    assert len([tag for tag in maker.tags() if tag.startswith("ciao-env-")]) == 1
    assert maker.left() == []


@second
def test_a_pod_that_is_evicted_is_said_with_the_last_lines(maker: Maker) -> None:
    maker.dockerfile(f"RUN {COUNTED} && sleep 600")
    namespace = maker.team.namespace

    async def evict(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await wait(lambda: "[build] line 30" in display.notices)
        name = build_pod(maker)["metadata"]["name"]
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        path = f"/api/v1/namespaces/{namespace.name}/pods/{name}/eviction"
        namespace.kubectl("create", "--raw", path, "-f", "-", text=json.dumps(eviction))

    ended = maker.run(CELL, "%dockerfile=Dockerfile", during=evict)

    assert isinstance(ended.error, ClusterFault)
    assert "was removed from" in ended.error.message
    assert "evicting" in ended.error.message
    assert "The last lines of the build:" in ended.error.hint
    assert LAST_LINES in ended.error.hint
    assert maker.left() == []
    assert maker.tags() == []


@pytest.mark.second("builders")
@second
def test_a_pod_that_fills_its_node_is_evicted(maker: Maker) -> None:
    policies.put_limits(maker.team.namespace, default={"ephemeral-storage": "250Mi"})
    maker.dockerfile(f"RUN {COUNTED} && dd if=/dev/zero of=/big bs=1M count=400 && sleep 600")

    ended = maker.run(CELL, "%dockerfile=Dockerfile")

    assert isinstance(ended.error, ClusterFault)
    assert "the pod that built the image was ended in" in ended.error.message
    assert "torage usage exceeds" in ended.error.message
    assert "line 30" in ended.error.hint
    assert maker.left() == []
    assert maker.tags() == []


@pytest.mark.second("builders")
def test_a_build_that_takes_more_memory_than_it_may(maker: Maker) -> None:
    maker.dockerfile(f"RUN {COUNTED} && python3 -c 'bytearray(500 << 20)'")

    ended = maker.run(CELL, "%dockerfile=Dockerfile", build_memory="200Mi")

    assert isinstance(ended.error, ClusterFault)
    assert ended.error.message == "the build was killed because it used more memory than allowed."
    assert "buildMemory" in ended.error.hint
    assert "line 30" in ended.error.hint
    assert maker.left() == []
    assert maker.tags() == []


@pytest.mark.second("builders")
@second
def test_a_build_that_takes_longer_than_it_may(maker: Maker) -> None:
    maker.dockerfile("RUN sleep 600")

    async def late(display: Recorder, work: asyncio.Task[Ended]) -> None:
        """End its time when it has begun, which may take longer on a busy node."""
        await wait(lambda: "[build] " in display.notices or work.done(), 120)
        pod = build_pod(maker)
        assert pod["spec"]["activeDeadlineSeconds"] == 600
        name, sooner = pod["metadata"]["name"], '{"spec": {"activeDeadlineSeconds": 1}}'
        kubectl = maker.team.namespace.kubectl
        await asyncio.to_thread(kubectl, "patch", "pod", name, "--patch", sooner)

    ended = maker.run(CELL, "%dockerfile=Dockerfile", build_deadline=600.0, during=late)

    assert isinstance(ended.error, ClusterFault)
    assert ended.error.message == "the build took longer than allowed."
    assert "buildDeadline" in ended.error.hint
    assert "The last lines of the build:\n" in ended.error.hint
    assert maker.left() == []
    assert maker.tags() == []


def asked(handler: Handler) -> bool:
    """Whether a build asks for the right to push."""
    return handler.command == "POST"


def sent(handler: Handler) -> bool:
    """Whether a part of an image comes."""
    return handler.command == "PATCH"


FULL = b"""{"errors": [{"code": "UNKNOWN", "message": "unknown error", "detail":
{"DriverName": "filesystem", "Enclosed": {"Op": "write", "Path": "/x", "Err": 28}}}]}"""
BUSY = b'{"errors": [{"code": "TOOMANYREQUESTS", "message": "slow down"}]}'


@pytest.mark.second("builders", only="dying")
@pytest.mark.parametrize(
    ("at", "status", "body", "says", "helps"),
    [
        pytest.param(
            asked, 405, b"Method not allowed\n", "accepts no images: it is read-only", "%registry",
            id="read-only", marks=second,
        ),
        pytest.param(
            asked, 429, BUSY, "accepts no more requests for now", "in some minutes",
            id="busy", marks=second,
        ),
        pytest.param(
            sent, 500, FULL, "has no space left", "Remove images there",
            id="full", marks=pytest.mark.stands_for("builders"),
        ),
        pytest.param(
            sent, 0, b"", "does not answer the build", "Is it up", id="dying", marks=second
        ),
    ],
)  # fmt: skip
def test_a_registry_that_does_not_take_the_image(
    maker: Maker, at: Callable[[Handler], bool], status: int, body: bytes, says: str, helps: str
) -> None:
    """As registries say it, by one that the test plays: a pod pushes there."""

    def answer(handler: Handler) -> bool:
        if handler.path == "/v2/":
            handler.say(200)
            return True
        if at(handler):
            handler.say(status, body) if status else handler.reset()
        return at(handler)

    image = maker.cluster.image("tools")
    (maker.team.folder / "Dockerfile").write_text(f"FROM {image}\nENV A=b\n")
    with serving(Behaviour(before=answer), address=maker.cluster.at.host_address) as fake:
        ended = maker.run(
            CELL,
            "%dockerfile=Dockerfile",
            registry=f"{fake.host}/team/cells",
            plain_registries=(maker.cluster.at.registry, fake.host),
        )
        assert fake.manifests == {}

    assert isinstance(ended.error, RegistryFault), ended.error
    assert ended.error.message == f"the registry {fake.host} {says}."
    assert helps in ended.error.hint
    assert "The last lines of the build:" in ended.error.hint
    assert maker.left() == []
