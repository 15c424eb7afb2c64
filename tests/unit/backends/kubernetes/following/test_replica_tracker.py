"""Which pod is which replica, and what is known of those that are gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.apis import job_metadata, operator_v1
from ciao_kernel.backends.kubernetes.following import replica_tracker
from ciao_kernel.backends.kubernetes.following.job_watches import trimmed
from ciao_kernel.backends.kubernetes.following.log_files import LogFiles
from ciao_kernel.backends.kubernetes.following.replica_tracker import ReplicaTracker
from ciao_kernel.model import Job, Notice, Replica, State

ZERO, ONE = Replica("worker", 0), Replica("worker", 1)
JOB = Job("mine", "kubernetes", "tensorflow", (ZERO, ONE), 0.0, "team", uid="j")


def kept(folder: Path) -> LogFiles:
    return LogFiles(folder, write=True)


class Pods:
    """What a watched list shows of itself."""

    def __init__(self) -> None:
        self.items: dict[str, dict[str, Any]] = {}


def pod(uid: str, index: int, phase: str, second: int = 0, **state: Any) -> dict[str, Any]:
    labels = {operator_v1.ROLE_LABEL: "worker", operator_v1.INDEX_LABEL: str(index)}
    status: dict[str, Any] = {"phase": phase}
    if state:
        status["containerStatuses"] = [{"name": "c", "restartCount": 1, "state": state}]
    return {
        "metadata": {
            "name": f"mine-worker-{index}",
            "uid": uid,
            "labels": labels,
            "creationTimestamp": f"2026-11-21T10:00:0{second}Z",
            "ownerReferences": [{"uid": "j"}],
        },
        "spec": {"containers": [{"name": "c"}]},
        "status": status,
    }


def test_a_pod_that_goes_with_its_node_says_so(tmp_path: Path) -> None:
    """An older cluster does not say who deleted it."""
    pods = Pods()
    members = ReplicaTracker(None, JOB, pods, kept(tmp_path), None, lambda: None)  # type: ignore[arg-type]
    silent = pod("a", 0, "Running", running={"startedAt": "2026-11-21T10:00:02Z"})
    silent["status"]["reason"] = "NodeLost"
    pods.items["a"] = silent
    members.update({"a": silent}, "j")
    pods.items.clear()
    members.update({"a": silent}, "j")
    one = members.statuses()[ZERO]
    assert (one.state, one.reason) == (State.STOPPED, "lost with its node, which did not answer")


def test_states_of_pods_that_come_change_and_go(tmp_path: Path) -> None:
    pods = Pods()
    members = ReplicaTracker(None, JOB, pods, kept(tmp_path), None, lambda: None)  # type: ignore[arg-type]

    def now(*touched: dict[str, Any], gone: tuple[str, ...] = ()) -> list[State]:
        by_uid = {one["metadata"]["uid"]: one for one in touched}
        pods.items |= by_uid
        for uid in gone:
            pods.items.pop(uid)
        members.update(by_uid, "j")
        return [one.state for one in members.statuses().values()]

    assert now() == [State.PENDING, State.PENDING]
    running = {"startedAt": "2026-11-21T10:00:02Z"}
    first = pod("a", 0, "Running", running=running)
    assert now(first) == [State.RUNNING, State.PENDING]
    # Its end and its removal come together: the last word counts.
    ended = pod("a", 0, "Failed", terminated={"exitCode": 3})
    assert now(ended, gone=("a",)) == [State.FAILED, State.PENDING]
    assert members.statuses()[ZERO].exit_code == 3
    assert members.statuses()[ZERO].restarts == 1
    assert members.present()[ZERO] is None
    # Made again under the same name.
    assert now(pod("b", 0, "Running", 4, running=running)) == [State.RUNNING, State.PENDING]
    assert members.statuses()[ZERO].restarts == 3  # 1 in each pod, and the pod itself
    # Deleted by somebody while it ran.
    assert now(pods.items["b"], gone=("b",)) == [State.STOPPED, State.PENDING]
    assert members.statuses()[ZERO].reason == "deleted"


EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}


def test_a_pod_that_was_evicted_and_whose_end_nobody_saw(tmp_path: Path) -> None:
    pods = Pods()
    members = ReplicaTracker(None, JOB, pods, kept(tmp_path), None, lambda: None)  # type: ignore[arg-type]
    one = pod("a", 0, "Running", running={})
    one["status"]["conditions"] = [EVICTED]
    one["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:40Z"
    pods.items = {"a": one}
    members.update(pods.items, "j")
    pods.items = {}
    members.update({"a": one}, "j")
    status = members.statuses()[ZERO]
    assert (status.state, status.reason) == (State.STOPPED, "evicted, as when its node is drained")


@pytest.mark.parametrize("conditions", [[], [EVICTED]])
@pytest.mark.parametrize("state", [{}, {"terminated": {"exitCode": 137}}])
def test_the_last_word_of_a_deleted_pod_makes_no_failure_of_it(
    tmp_path: Path, state: dict[str, Any], conditions: list[dict[str, str]]
) -> None:
    """A look at the list comes before each change, and the pod may be gone from it by then."""
    pods = Pods()
    members = ReplicaTracker(None, JOB, pods, kept(tmp_path), None, lambda: None)  # type: ignore[arg-type]
    ended = {"exitCode": 137, "finishedAt": "2026-11-21T10:00:12Z"}
    leaving = {"deletionTimestamp": "2026-11-21T10:00:40Z", "deletionGracePeriodSeconds": 30}
    for one, listed in (
        (pod("a", 0, "Running", terminated=ended), True),
        (pod("a", 0, "Failed", **state), False),
    ):
        one["metadata"] |= leaving
        one["status"]["conditions"] = conditions
        pods.items = {"a": one} if listed else {}
        members.renew(pods)  # type: ignore[arg-type]
        members.update({"a": one}, "j")
        status = members.statuses()[ZERO]
        why = "evicted, as when its node is drained" if conditions else "deleted"
        assert (status.state, status.reason) == (State.STOPPED, why)


def test_a_leaving_pod_does_not_hide_its_successor(tmp_path: Path) -> None:
    pods = Pods()
    members = ReplicaTracker(None, JOB, pods, kept(tmp_path), None, lambda: None)  # type: ignore[arg-type]
    old, new = pod("a", 0, "Running"), pod("b", 0, "Pending")
    old["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:05Z"
    pods.items = {"a": old, "b": new}
    members.update({"b": new, "a": old}, "j")
    assert members.present()[ZERO] is new
    pods.items.pop("a")
    members.update({"a": old}, "j")
    assert members.present()[ZERO] is new
    assert members.statuses()[ZERO].state is State.PENDING


def test_foreign_pods_are_left_out_and_added_ones_are_taken(tmp_path: Path) -> None:
    pods = Pods()
    members = ReplicaTracker(None, JOB, pods, kept(tmp_path), None, lambda: None)  # type: ignore[arg-type]
    foreign = pod("x", 0, "Running")
    foreign["metadata"]["ownerReferences"] = [{"uid": "an earlier job"}]
    pods.items = {"x": foreign, "y": pod("y", 7, "Pending")}
    members.update(pods.items, "j")
    assert members.present()[ZERO] is None
    assert members.statuses()[Replica("worker", 7)].state is State.PENDING


def test_a_log_that_cannot_be_read_is_told_and_does_not_end_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Client:
        access = None

        @property
        def request(self) -> Callable[..., AsyncIterator[Any]]:
            raise LookupError("the disk of the node is gone")

    async def main() -> str:
        pods, woken = Pods(), asyncio.Event()
        members = ReplicaTracker(Client(), JOB, pods, kept(tmp_path), None, woken.set)  # type: ignore[arg-type]
        one = pod("a", 0, "Running", running={})
        one["spec"]["nodeName"] = "n"
        one["status"]["containerStatuses"][0] |= {"containerID": "c://1", "restartCount": 0}
        pods.items = {"a": one}
        members.update(pods.items, "j")
        async with asyncio.timeout(10):
            await woken.wait()
        said = [event.text for event in members.output() if isinstance(event, Notice)]
        assert members.drained(lambda _: True)
        assert not members.read()
        await members.close()
        return said[0]

    said = asyncio.run(main())
    assert said == "reading the log of worker-0 failed: the disk of the node is gone"


@pytest.mark.parametrize("saved", ["zero\nfirst\n", ""])
def test_readers_end_though_nobody_takes_their_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: str
) -> None:
    """As after an interrupt: the first lines of a saved log were joined, or the reader fails."""

    class Answer:
        status, connection = 200, None

        def __init__(self) -> None:
            self.content = self
            self._lines = ["first"] if saved else ["zero", "first"]

        async def readany(self) -> bytes:
            if not self._lines:
                await asyncio.Event().wait()
            name = self._lines.pop(0)
            return f"2026-11-21T10:00:0{len(self._lines)}.000000001Z {name}\n".encode()

    class Client:
        access = None

        @contextlib.asynccontextmanager
        async def request(self, *_: object, **__: object) -> AsyncIterator[Answer]:
            try:
                yield Answer()
            finally:
                if not saved:
                    raise LookupError("the connection cannot be closed")

    monkeypatch.setattr(replica_tracker, "_WAITING", 1)
    if saved:
        (tmp_path / "worker-0.log").write_text(saved)

    async def main() -> None:
        pods = Pods()
        members = ReplicaTracker(Client(), JOB, pods, kept(tmp_path), None, lambda: None)  # type: ignore[arg-type]
        one = pod("a", 0, "Running", running={})
        one["spec"]["nodeName"] = "n"
        one["status"]["containerStatuses"][0] |= {"containerID": "c://1", "restartCount": 0}
        pods.items = {"a": one}
        members.update(pods.items, "j")
        async with asyncio.timeout(10):
            while not members._output._putters:  # type: ignore[attr-defined]
                await asyncio.sleep(0.01)
            await members.close()
        assert not asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]

    asyncio.run(main())


def test_the_log_of_an_earlier_pod_is_waited_for_though_its_successor_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = asyncio.Event()

    async def copy(self: ReplicaTracker, replica: Replica, uid: str, pod: object) -> None:
        await (read.wait() if uid == "a" else asyncio.Event().wait())

    monkeypatch.setattr(ReplicaTracker, "_copy", copy)

    async def main() -> tuple[bool, bool]:
        pods = Pods()
        members = ReplicaTracker(None, JOB, pods, kept(tmp_path), None, lambda: None)  # type: ignore[arg-type]
        for uid, second in (("a", 0), ("b", 4)):
            one = pod(uid, 0, "Running", second, running={})
            one["spec"]["nodeName"] = "n"
            last, pods.items = pods.items, {uid: one}
            members.update({**last, uid: one}, "j")
        before = members.drained(lambda _: False)
        read.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        after = members.drained(lambda _: False)
        await members.close()
        return before, after

    assert asyncio.run(main()) == (False, True)


def test_what_nobody_asks_for_is_not_kept() -> None:
    whole = pod("a", 0, "Running")
    whole["metadata"]["managedFields"] = ["much"]
    whole["spec"] |= {"nodeName": "n", "volumes": ["more"]}
    kept = trimmed(whole)
    assert "managedFields" not in kept["metadata"]
    assert kept["spec"] == {"nodeName": "n", "containers": [{"name": "c"}]}
    assert job_metadata.replica(kept) == ZERO
    assert trimmed({"metadata": None, "spec": 3}) == {"metadata": None, "spec": 3}
