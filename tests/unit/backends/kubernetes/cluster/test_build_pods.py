"""Builds that nobody waits for any more: which of their pods are removed, and which are not."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from ciao_kernel.backends.kubernetes.cluster import build_pods
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.states import status
from ciao_kernel.config import Settings
from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube.answer_cache import AnswerCache
from ciao_kernel.kube.server_clock import ServerClock

SETTINGS = Settings(follow_patience=600.0)


class Server:
    """Has pods, and may refuse to hand them out or to delete them."""

    def __init__(self, *pods: dict[str, Any], fault: Exception | None = None) -> None:
        self.pods, self.fault = pods, fault
        self.gone: list[str] = []
        self.asked = ""
        self.clock = ServerClock()

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        self.asked = f"{path} {query['labelSelector']}"
        if self.fault:
            raise self.fault
        return {"items": list(self.pods)}

    async def delete(self, path: str, *, uid: str) -> None:
        if path.endswith("/refused"):
            raise Refused("no", code=403)
        assert uid == "7"
        self.gone.append(path.rpartition("/")[2])


def pod(name: str, phase: str, *, created: float, ended: float = 0) -> dict[str, Any]:
    """A pod of a build; times are seconds ago."""

    def stamp(ago: float) -> str:
        return status.text(time.time() - ago)

    over = [{"type": "Ready", "status": "False", "lastTransitionTime": stamp(ended)}]
    began = [{"type": "Initialized", "status": "True", "lastTransitionTime": stamp(created)}]
    return {
        "metadata": {"name": name, "uid": "7", "creationTimestamp": stamp(created)},
        "spec": {"activeDeadlineSeconds": 3600},
        "status": {"phase": phase, "conditions": began + (over if ended else [])},
    }


def removed(server: Server) -> list[str]:
    asyncio.run(build_pods.delete_stale_build_pods(Target(server, "team-a"), SETTINGS))  # type: ignore[arg-type]
    return server.gone


@pytest.mark.parametrize(
    ("phase", "created", "ended", "goes"),
    [
        ("Succeeded", 9000, 700, True),
        ("Failed", 9000, 700, True),
        ("Failed", 700, 0, True),  # of an eviction before it began nothing else is known
        ("Succeeded", 9000, 500, False),  # its kernel may still read what it wrote
        ("Running", 90_000, 0, False),  # its deadline ends it
        ("Pending", 4000, 0, False),
        ("Pending", 4300, 0, True),  # no node ever had room for it
    ],
)
def test_what_goes(phase: str, created: float, ended: float, goes: bool) -> None:
    server = Server(pod("a", phase, created=created, ended=ended))
    assert removed(server) == (["a"] if goes else [])
    assert server.asked == (
        "/api/v1/namespaces/team-a/pods app.kubernetes.io/managed-by=ciao,!ciao-kernel/job"
    )


@pytest.mark.parametrize("fault", [Refused("no", code=403), ClusterFault("away")])
def test_who_may_not_or_cannot_leaves_them(fault: Exception) -> None:
    old = pod("refused", "Failed", created=9000, ended=9000)
    assert removed(Server(old)) == []
    assert removed(Server(old, fault=fault)) == []


class Making:
    """A server that makes pods, or says no; and one that nobody may watch."""

    def __init__(self, makes: bool, refusal: str = "exceeded quota") -> None:
        self.makes, self.refusal = makes, refusal
        self.cache = AnswerCache()

    async def create(self, path: str, item: dict[str, Any]) -> dict[str, Any]:
        if not self.makes:
            raise Refused(self.refusal, code=403)
        return {**item, "metadata": {**item["metadata"], "uid": "7"}}

    async def find(self, path: str) -> None:
        return None


@pytest.mark.parametrize("makes", [True, False])
def test_a_no_is_told_for_what_it_was_said(makes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*args: Any) -> None: ...

    async def refused(pod: Any) -> None:
        raise Refused("you may not watch pods", code=403)

    monkeypatch.setattr(build_pods.checks, "require_rights", nothing)
    monkeypatch.setattr(build_pods, "delete_stale_build_pods", nothing)
    monkeypatch.setattr(build_pods.SinglePod, "end", refused)
    target = Target(Making(makes), "team-a")  # type: ignore[arg-type]
    build = {"metadata": {"name": "build"}, "spec": {"containers": [{"name": "build"}]}}
    with pytest.raises(ClusterFault) as raised:
        asyncio.run(build_pods.KubernetesBuildCluster(target, SETTINGS).run(build, [], print))
    said = "cannot be followed to its end: you may not" if makes else "is refused: exceeded quota"
    assert said in raised.value.message


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        ('violates PodSecurity "restricted": CHOWN', 'Pod Security refuses pods that build images '
         'in team-a: "restricted": CHOWN'),
        ("unable to validate against any security context constraint: [provider restricted-v2: "
         '.containers[0].capabilities.add: Invalid value: "CHOWN": capability may not be added]',
         "OpenShift refuses pods that build images in team-a: [provider restricted-v2: "
         '.containers[0].capabilities.add: Invalid value: "CHOWN": capability may not be added]'),
    ],
)  # fmt: skip
def test_where_no_pod_may_build_the_builder_without_one_is_named(
    refusal: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*args: Any) -> None: ...

    monkeypatch.setattr(build_pods.checks, "require_rights", nothing)
    monkeypatch.setattr(build_pods, "delete_stale_build_pods", nothing)
    target = Target(Making(False, refusal), "team-a")  # type: ignore[arg-type]
    build = {"metadata": {"name": "build"}, "spec": {"containers": [{"name": "build"}]}}
    with pytest.raises(ClusterFault) as raised:
        asyncio.run(build_pods.KubernetesBuildCluster(target, SETTINGS).run(build, [], print))
    assert raised.value.message == said
    assert raised.value.hint.startswith("%builder=append needs no pod")


class Closed:
    """A server that hands out no Secret."""

    access = SimpleNamespace(source="a kubeconfig")
    cache = AnswerCache()

    async def find(self, path: str) -> None:
        raise Refused(f"{path} is forbidden", code=403)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return {"status": {"userInfo": {"username": "ada"}}}


def test_the_role_for_a_secret_names_it_and_gives_no_other() -> None:
    target = Target(Closed(), "team-a")  # type: ignore[arg-type]
    with pytest.raises(ClusterFault) as raised:
        asyncio.run(build_pods.KubernetesBuildCluster(target, SETTINGS).secret("push"))
    assert raised.value.message.endswith('missing rights: get secrets "push".')
    role, _ = yaml.safe_load_all(raised.value.hint.partition("\n\n")[2])
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["push"], "verbs": ["get"]}
    ]
