"""Which pod owns a job that is to end with its kernel: this one, or none at all."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.lifecycle import kernel_pod
from ciao_kernel.errors import ClusterFault, Refused

POD = {"metadata": {"name": "ada-1", "uid": "u1"}}


class Server:
    """A client in the namespace `team` that answers one question in one way."""

    def __init__(self, answer: Any, context: str = "") -> None:
        self.access = SimpleNamespace(context=context, namespace="team")
        self.answer = answer
        self.asked: list[str] = []

    async def find(self, path: str) -> Any:
        self.asked.append(path)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def owner(server: Server, namespace: str = "team") -> dict[str, Any] | None:
    return asyncio.run(kernel_pod.owner(Target(server, namespace)))  # type: ignore[arg-type]


def ends(server: Server, namespace: str = "team") -> bool:
    return asyncio.run(kernel_pod.ends(Target(server, namespace)))  # type: ignore[arg-type]


@pytest.mark.parametrize("variable", ["ada-1", ""])
def test_the_kernels_own_pod_owns_it(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv("KERNEL_POD_NAME", variable)
    name = variable or socket.gethostname()
    server = Server(POD)
    assert owner(server) == {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u1"}
    assert server.asked == [f"/api/v1/namespaces/team/pods/{name}"]


@pytest.mark.parametrize("answer", [None, {}, Refused("no", code=403), ClusterFault("silence")])
def test_a_pod_that_cannot_be_seen_owns_nothing(answer: Any) -> None:
    assert owner(Server(answer)) is None


@pytest.mark.parametrize(("deleted", "context"), [("", ""), ("", "laptop"), ("now", "laptop")])
def test_a_pod_that_stays_and_anything_but_a_pod_do_not_end(deleted: str, context: str) -> None:
    pod = {"metadata": {**POD["metadata"], **({"deletionTimestamp": deleted} if deleted else {})}}
    assert not ends(Server(pod, context))


@pytest.mark.parametrize("namespace", ["team", "other"])
def test_a_pod_that_is_being_deleted_ends(namespace: str) -> None:
    """Wherever its jobs are."""
    server = Server({"metadata": {**POD["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert ends(server, namespace)
    assert server.asked[0].startswith("/api/v1/namespaces/team/pods/")


def test_a_server_that_is_silent_does_not_delay_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_pod, "_SOON", 0.05)
    server = Server(None)
    monkeypatch.setattr(server, "find", lambda path: asyncio.sleep(60))
    assert not ends(server)
    assert not ends(Server(ClusterFault("silence")))


def test_no_owner_is_named_for_another_namespace_or_cluster() -> None:
    """The cluster would find none of that name there, and delete the job at once."""
    for server, namespace in ((Server(POD), "other"), (Server(POD, "laptop"), "team")):
        assert owner(server, namespace) is None
        assert server.asked == []
