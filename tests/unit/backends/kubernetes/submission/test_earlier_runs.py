"""Which pods a new run of a name waits for, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.submission import earlier_runs
from ciao_kernel.errors import Refused
from ciao_kernel.model import Event, Notice

JOB_LABEL = "training.kubeflow.org/job-name"
Pods = list[dict[str, Any]]


def pod(job: str, *, deleted: bool = True, ended: bool = False, grace: int = 5) -> dict[str, Any]:
    state = {"terminated": {"exitCode": 143}} if ended else {"running": {}}
    labels = {
        JOB_LABEL: job,
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "0",
    }
    when = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}
    return {
        "metadata": {"name": f"{job}-worker-0", "labels": labels, **when},
        "spec": {
            "containers": [{"name": "tensorflow"}],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": grace,
        },
        "status": {"containerStatuses": [{"name": "tensorflow", "state": state}]},
    }


class Server:
    """A client; each list shows the next pods, and the last ones for ever."""

    def __init__(self, *lists: Pods | Exception) -> None:
        self.lists, self.looks = lists, 0

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        assert path == "/api/v1/namespaces/team/pods"
        found = self.lists[min(self.looks, len(self.lists) - 1)]
        self.looks += 1
        if isinstance(found, Exception):
            raise found
        return {"items": found}


def waited(
    server: Server,
    deleting: Callable[[], list[str]] = list,
    clock: Callable[[], float] = lambda: 0.0,
) -> list[str]:
    """Wait for runs of mnist, and return the notices."""
    said: list[Event] = []
    target = Target(server, "team")  # type: ignore[arg-type]
    asyncio.run(earlier_runs.wait(target, "mnist", deleting, said.append, clock))
    return [one.text for one in said if isinstance(one, Notice)]


def test_a_run_with_a_number_is_waited_for_until_its_program_has_ended() -> None:
    server = Server([pod("mnist-2")], [pod("mnist-2")], [pod("mnist-2", ended=True)])
    assert waited(server) == ["waiting until stopped jobs of this name have ended: mnist-2 …"]
    assert server.looks == 3


def test_nothing_else_is_waited_for() -> None:
    others = [
        pod("mnist-2", deleted=False),
        pod("mnist-big"),
        pod("my-mnist"),
        pod("mnist", ended=True),
    ]
    assert waited(Server(others)) == []


def test_a_deletion_whose_pods_are_not_told_yet_is_waited_for() -> None:
    answers = iter([["mnist", "other"], ["mnist"], []])
    server = Server([pod("mnist", deleted=False)])
    assert waited(server, lambda: next(answers)) == [
        "waiting until stopped jobs of this name have ended: mnist …"
    ]
    assert server.looks == 3


def test_pods_that_never_end_are_waited_for_beyond_their_own_grace_period() -> None:
    def seconds() -> Iterator[float]:
        yield 0.0
        yield from (50.0, 89.0, 91.0)

    times = seconds()
    server = Server([pod("mnist-7", grace=60)])
    *_, last = waited(server, clock=lambda: next(times))
    assert last == (
        "replicas still end after 91 s, and may save meanwhile: mnist-7. The new job starts "
        "beside them."
    )
    assert server.looks == 3


def test_a_user_who_may_not_list_pods_waits_for_the_deletions_of_this_process_alone() -> None:
    assert waited(Server(Refused("forbidden", code=403))) == []
    answers = iter([["mnist"], ["mnist"], []])
    refused = Server(Refused("forbidden", code=403))
    assert waited(refused, lambda: next(answers)) == [
        "waiting until stopped jobs of this name have ended: mnist …"
    ]
    assert refused.looks == 3


def test_another_refusal_is_an_error() -> None:
    with pytest.raises(Refused, match="unprocessable"):
        waited(Server(Refused("unprocessable", code=422)), lambda: ["mnist"])


def test_a_deletion_without_pods_is_not_said_to_save() -> None:
    """A finalizer may keep the job's object."""
    times = iter([0.0, 10.0, 31.0])
    assert waited(Server([]), lambda: ["mnist"], lambda: next(times)) == [
        "waiting until stopped jobs of this name have ended: mnist …"
    ]
