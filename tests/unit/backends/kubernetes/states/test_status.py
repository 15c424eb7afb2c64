"""What a job's objects say: states, reasons, and no trust in their form."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from ciao_kernel.backends.kubernetes.apis import job_metadata, operator_v1
from ciao_kernel.backends.kubernetes.following.job_watches import trimmed
from ciao_kernel.backends.kubernetes.object_fields import get
from ciao_kernel.backends.kubernetes.states import job_status, silent_node, status
from ciao_kernel.backends.kubernetes.states.pending_reasons import PendingReasons
from ciao_kernel.kube.client import Client
from ciao_kernel.kube.server_clock import ServerClock
from ciao_kernel.model import Job, Replica, ReplicaStatus, State, Status
from ciao_kernel.plugins import DEFAULT_CONTAINER

WORKER = Replica("worker", 0)
JOB = Job("job", "kubernetes", "tensorflow", (Replica("ps", 0), WORKER), 0.0, "team")


def pod(phase: str, state: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    containers = [{"name": "c", "restartCount": 0, "state": state}] if state else []
    return {
        "metadata": {"name": "p", "uid": "1", "creationTimestamp": "2026-11-21T10:00:00Z"},
        "status": {"phase": phase, "containerStatuses": containers, **more},
    }


def ended(code: int, reason: str = "Error") -> dict[str, Any]:
    at = "2026-11-21T10:00:05Z"
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at}}


@pytest.mark.parametrize(
    ("item", "state", "code", "reason"),
    [
        (pod("Pending"), State.PENDING, None, ""),
        (pod("Running", {"running": {"startedAt": "2026-11-21T10:00:01Z"}}), State.RUNNING, None,
         ""),
        (pod("Succeeded", ended(0, "Completed")), State.SUCCEEDED, 0, ""),
        (pod("Failed", ended(1)), State.FAILED, 1, ""),
        (pod("Failed", ended(137, "OOMKilled")), State.FAILED, -9, "OOMKilled"),
        (pod("Failed", reason="Evicted", message="low on memory"), State.FAILED, None,
         "Evicted: low on memory"),
        (pod("Pending", {"waiting": {"reason": "ErrImagePull", "message": "not\n found"}}),
         State.PENDING, None, "ErrImagePull: not found"),
        (pod("Pending", {"waiting": {"reason": "ContainerCreating"}}), State.PENDING, None, ""),
        (pod("Pending", conditions=[{"type": "PodScheduled", "status": "False",
                                     "reason": "Unschedulable", "message": "0/1 nodes"}]),
         State.PENDING, None, "unschedulable: 0/1 nodes"),
    ],
)  # fmt: skip
def test_a_pod(item: dict[str, Any], state: State, code: int | None, reason: str) -> None:
    one = status.of_pod(item, WORKER)
    assert (one.state, one.exit_code, one.reason) == (state, code, reason)
    assert (one.replica, one.node, one.restarts, one.last_exit) == (WORKER, "", 0, None)


CREATED, STARTED, FINISHED = (status.stamp(f"2026-11-21T10:00:0{n}Z") for n in (0, 1, 5))
RUNNING = {"running": {"startedAt": "2026-11-21T10:00:01Z"}}


@pytest.mark.parametrize(
    ("item", "since"),
    [
        (pod("Pending"), CREATED),
        (pod("Failed", reason="Evicted"), CREATED),
        (pod("Running", RUNNING), STARTED),
        (pod("Running", {"running": {}}), CREATED),
        (pod("Failed", ended(1)), FINISHED),
        (pod("Failed", {"terminated": {"exitCode": 1}}), CREATED),
    ],
)
def test_since_when_a_replica_is_in_its_state(item: dict[str, Any], since: float) -> None:
    assert status.of_pod(item, WORKER).since == since


def test_a_pod_that_succeeded_needs_no_container_to_say_so() -> None:
    assert status.of_pod(pod("Succeeded"), WORKER).state is State.SUCCEEDED
    unsaid = status.of_pod(pod("Succeeded", {"terminated": {}}), WORKER)
    assert (unsaid.state, unsaid.exit_code) == (State.SUCCEEDED, None)


@pytest.mark.parametrize(
    ("policy", "code", "state"),
    [
        ("Never", 0, State.SUCCEEDED),
        ("Never", 3, State.FAILED),
        ("OnFailure", 0, State.SUCCEEDED),
        ("OnFailure", 3, State.PENDING),
        ("Always", 0, State.PENDING),
        ("Always", 3, State.PENDING),
    ],
)
def test_a_program_has_ended_for_good_where_nobody_starts_it_again(
    policy: str, code: int, state: State
) -> None:
    """The phase of its pod says so late, or not at all while another container runs."""
    item = pod("Running", ended(code)) | {"spec": {"restartPolicy": policy}}
    assert status.of_pod(item, WORKER).state is state


@pytest.mark.parametrize("named", ["by its order", "by an annotation"])
def test_what_runs_beside_the_program_says_nothing_of_it(named: str) -> None:
    containers = [
        {"name": "proxy", "restartCount": 4, "state": RUNNING},
        {"name": "train", "restartCount": 1, "state": ended(3)},
    ]
    order = ["train", "proxy"] if named == "by its order" else ["proxy", "train"]
    spec = {"restartPolicy": "Never", "containers": [{"name": one} for one in order]}
    item = pod("Running") | {"spec": spec}
    item["status"]["containerStatuses"] = containers
    if named == "by an annotation":
        item["metadata"]["annotations"] = {DEFAULT_CONTAINER: "train"}
    one = status.of_pod(item, WORKER)
    assert (one.state, one.exit_code, one.restarts) == (State.FAILED, 3, 1)


def test_restarts_of_containers_add_up_where_none_is_known_as_the_program() -> None:
    item = pod("Running") | {"spec": {"nodeName": "node-1"}}
    counts: list[Any] = [1, 2, None]
    item["status"]["containerStatuses"] = [{"name": "a", "restartCount": n} for n in counts]
    one = status.of_pod(item, WORKER)
    assert (one.restarts, one.node) == (3, "node-1")


@pytest.mark.parametrize(("code", "shown"), [(1, 1), (137, -9), (None, None), ("1", None)])
def test_a_restarted_program_keeps_the_exit_code_of_the_run_before(code: Any, shown: Any) -> None:
    item = pod("Running", RUNNING)
    container = item["status"]["containerStatuses"][0]
    container |= {"restartCount": 1, "lastState": {"terminated": {"exitCode": code}}}
    assert (status.of_pod(item, WORKER).restarts, status.of_pod(item, WORKER).last_exit) == (
        1,
        shown,
    )


@pytest.mark.parametrize(
    ("code", "shown"), [(2, 2), (128, 128), (129, -1), (192, -64), (193, 193), (255, 255)]
)
def test_codes_above_128_are_signals_as_a_shell_tells_them(code: int, shown: int) -> None:
    assert status.of_pod(pod("Failed", ended(code)), WORKER).exit_code == shown


def test_an_exit_code_that_is_no_number_is_unknown() -> None:
    one = status.of_pod(pod("Failed", {"terminated": {"exitCode": "3"}}), WORKER)
    assert (one.state, one.exit_code) == (State.FAILED, None)


@pytest.mark.parametrize("reason", ["OOMKilled", "ContainerStatusUnknown", "StartError"])
def test_a_containers_own_reason_is_told(reason: str) -> None:
    assert status.of_pod(pod("Failed", ended(128, reason)), WORKER).reason == reason


@pytest.mark.parametrize(("reason", "shown"), [("Error", ""), ("OOMKilled", "OOMKilled")])
def test_what_a_program_left_as_its_last_words_is_no_reason(reason: str, shown: str) -> None:
    over = ended(137, reason)
    over["terminated"]["message"] = "Epoch 3 of 10"
    assert status.of_pod(pod("Failed", over), WORKER).reason == shown


@pytest.mark.parametrize("reason", ["StartError", "ContainerCannotRun"])
def test_why_a_program_could_not_be_executed_is_told(reason: str) -> None:
    over = ended(128, reason)
    over["terminated"]["message"] = 'exec: "python3": executable file not found in $PATH'
    one = status.of_pod(pod("Failed", over), WORKER)
    assert one.reason == f'{reason}: exec: "python3": executable file not found in $PATH'


@pytest.mark.parametrize(
    ("code", "message", "reason"),
    [
        (
            3,
            "one\nError:  no\tmaster.\n\n",
            "its init container wait ended with exit code 3: Error: no master",
        ),
        (1, None, "its init container wait ended with exit code 1"),
        (0, "fine", ""),
    ],
)
def test_an_init_container_that_failed_is_named(code: int, message: Any, reason: str) -> None:
    before = {"name": "wait", "state": {"terminated": {"exitCode": code, "message": message}}}
    waits = {"waiting": {"reason": "PodInitializing"}}
    one = status.of_pod(pod("Failed", waits, initContainerStatuses=[before]), WORKER)
    assert (one.state, one.exit_code, one.reason) == (State.FAILED, None, reason)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (1, "ended with exit code 1: the master was not ready in time"),
        (2, "ended with exit code 2"),
    ],
)
def test_a_worker_that_waited_for_its_master_in_vain_says_so(code: int, said: str) -> None:
    before = {"name": "init-pytorch", "state": {"terminated": {"exitCode": code}}}
    waits = {"waiting": {"reason": "PodInitializing"}}
    one = status.of_pod(pod("Failed", waits, initContainerStatuses=[before]), WORKER)
    assert (one.state, one.reason) == (State.FAILED, f"its init container init-pytorch {said}")


@pytest.mark.parametrize(
    ("length", "shown"), [(300, "x" * 300), (301, "x" * 299 + "…"), (9999, "x" * 299 + "…")]
)
def test_of_a_long_message_the_first_300_characters_are_told(length: int, shown: str) -> None:
    over = ended(128, "StartError")
    over["terminated"]["message"] = "x" * length
    assert status.of_pod(pod("Failed", over), WORKER).reason == f"StartError: {shown}"


def test_a_native_sidecar_that_was_ended_is_no_reason() -> None:
    beside = {"name": "proxy", "state": {"terminated": {"exitCode": 143, "message": "bye"}}}
    item = pod("Failed", {"waiting": {"reason": "PodInitializing"}}, initContainerStatuses=[beside])
    item["spec"] = {"initContainers": [{"name": "proxy", "restartPolicy": "Always"}]}
    assert status.of_pod(item, WORKER).reason == ""


def test_what_is_said_of_the_pod_is_told_before_what_is_said_of_its_container() -> None:
    item = pod("Failed", ended(137, "OOMKilled"), reason="Evicted", message="low on memory")
    assert status.of_pod(item, WORKER).reason == "Evicted: low on memory"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"reason": "Evicted"}, "Evicted"),
        ({"reason": "", "message": "low on memory"}, "low on memory"),
        ({"reason": 7, "message": None}, ""),
    ],
)
def test_of_a_pods_reason_and_message_one_may_be_missing(said: dict[str, Any], reason: str) -> None:
    assert status.of_pod(pod("Failed", **said), WORKER).reason == reason


@pytest.mark.parametrize("meta", [{}, {"metadata": None}, {"metadata": {"annotations": ["x"]}}])
def test_a_pod_with_odd_metadata_still_says_how_it_ended(meta: dict[str, Any]) -> None:
    one = status.of_pod(meta | {"status": pod("Failed", ended(3))["status"]}, WORKER)
    assert (one.state, one.exit_code) == (State.FAILED, 3)


def leaving(item: dict[str, Any], second: int, grace: int | None) -> dict[str, Any]:
    """The same pod, which was asked to go ``grace`` seconds before this second."""
    item["metadata"]["deletionTimestamp"] = f"2026-11-21T10:00:{second:02d}Z"
    if grace is not None:
        item["metadata"]["deletionGracePeriodSeconds"] = grace
    return item


@pytest.mark.parametrize(
    ("code", "reason", "second", "grace", "state"),
    [
        (143, "Error", 34, 30, State.STOPPED),
        (137, "Error", 35, 30, State.STOPPED),  # in the very second
        (137, "Error", 36, 30, State.FAILED),  # before it was asked to
        (137, "Error", 5, None, State.STOPPED),
        (137, "Error", 6, None, State.FAILED),
        (137, "OOMKilled", 34, 30, State.FAILED),
        (1, "Error", 34, 30, State.FAILED),
        (0, "Completed", 34, 30, State.SUCCEEDED),
    ],
)
@pytest.mark.parametrize("phase", ["Running", "Failed"])
def test_a_program_is_stopped_if_a_signal_ends_it_after_its_pod_was_deleted(
    phase: str, code: int, reason: str, second: int, grace: int | None, state: State
) -> None:
    one = status.of_pod(leaving(pod(phase, ended(code, reason)), second, grace), WORKER)
    assert (one.state, one.since) == (state, FINISHED)
    assert (one.reason == status.DELETED) == (state is State.STOPPED)


def test_a_signal_is_a_failure_where_nobody_deleted_the_pod() -> None:
    one = status.of_pod(pod("Failed", ended(143)), WORKER)
    assert (one.state, one.exit_code, one.reason) == (State.FAILED, -15, "")
    one = status.of_pod(pod("Failed", {"terminated": {"exitCode": 137}}), WORKER)
    assert (one.state, one.exit_code, one.reason) == (State.FAILED, -9, "")


def test_a_program_whose_code_is_lost_with_its_deleted_pod_was_stopped() -> None:
    """As where its node is gone."""
    item = leaving(pod("Failed", {"terminated": {"reason": "ContainerStatusUnknown"}}), 0, None)
    assert status.of_pod(item, WORKER).state is State.STOPPED


def test_an_end_at_no_known_time_is_not_as_old_as_its_pod() -> None:
    """As that of a container that its node has lost (``ContainerStatusUnknown``)."""
    lost = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "finishedAt": None}}
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-11-21T10:00:05Z"}
    one = status.of_pod(pod("Failed", lost, conditions=[ready]), WORKER)
    assert (one.state, one.since) == (State.FAILED, FINISHED)
    item = leaving(pod("Failed", lost, conditions=[ready]), 36, 30)
    one = status.of_pod(item, WORKER)
    assert (one.state, one.reason, one.since) == (State.STOPPED, "deleted", FINISHED + 1)


def unready(**more: str) -> dict[str, Any]:
    """The conditions of a pod whose node is silent: only the node controller has changed one."""
    containers = {"type": "ContainersReady", "status": "True"}
    return {"conditions": [{"type": "Ready", "status": "False", **more}, containers]}


def test_a_replica_on_a_node_that_is_silent_says_so() -> None:
    silent = "its node does not answer"
    assert status.of_pod(pod("Running", RUNNING, **unready()), WORKER).reason == silent
    lost = pod("Running", RUNNING, reason="NodeLost", message="Node n is unresponsive")
    assert status.of_pod(lost, WORKER).reason == silent
    item = leaving(pod("Running", RUNNING, **unready()), 35, 30)
    one = status.of_pod(item, WORKER)
    assert (one.state, one.reason) == (State.RUNNING, silent)
    waits = unready(reason="ReadinessGatesNotReady")  # a load balancer does not know it yet
    assert status.of_pod(pod("Running", RUNNING, **waits), WORKER).reason == ""


def test_a_job_that_failed_with_a_silent_node_says_so() -> None:
    one = ReplicaStatus(WORKER, State.STOPPED, CREATED, None, silent_node.LOST)
    found = job_status.of_job(JOB, job("Failed"), {WORKER: one})
    assert found.message == "the pod of worker-0 was lost with its node, which did not answer."


def test_what_the_cluster_does_to_a_pod_is_told_while_it_ends() -> None:
    item = leaving(pod("Running", RUNNING, **disrupted("PreemptionByScheduler")), 35, 30)
    words = "ending: evicted to make room for a pod of higher priority"
    assert status.of_pod(item, WORKER).reason == words


def test_a_replica_whose_pod_was_deleted_is_shown_as_deleted() -> None:
    assert status.of_pod(leaving(pod("Failed", ended(143)), 34, 30), WORKER).reason == "deleted"


def test_a_program_that_still_runs_in_a_deleted_pod_is_ending() -> None:
    one = status.of_pod(leaving(pod("Running", RUNNING), 35, 30), WORKER)
    assert (one.state, one.reason) == (State.RUNNING, "ending")
    assert status.of_pod(pod("Running", RUNNING), WORKER).reason == ""


INIT = {"name": "fetch", "state": {"running": {}}}


@pytest.mark.parametrize(
    ("said", "word", "words"),
    [
        ({"initContainerStatuses": [INIT]}, "", "its init container fetch runs"),
        ({"initContainerStatuses": [INIT | {"state": ended(2)}]}, "",
         "its init container fetch ended with exit code 2"),
        # The first that is not done is the one that others wait for.
        ({"initContainerStatuses": [{"name": "a", "state": ended(0)}, INIT]}, "",
         "its init container fetch runs"),
        ({"initContainerStatuses": [{"name": "a", "state": ended(0)}]}, "", ""),
        ({"initContainerStatuses": [{"name": "a", "state": {"waiting": {"reason": "ErrImagePull"}}},
                                    INIT]}, "ErrImagePull", "ErrImagePull"),
        ({"initContainerStatuses": [INIT], "containerStatuses": [
            {"name": "c", "state": {"waiting": {"reason": "PodInitializing"}}}]}, "",
         "its init container fetch runs"),
        ({"containerStatuses": [{"name": "c", "state": {"waiting": {"message": "no reason"}}}]},
         "", ""),
        # What keeps a container is said though another one is well.
        ({"containerStatuses": [
            {"name": "a", "state": ended(3)},
            {"name": "b", "state": {"waiting": {"reason": "PodInitializing"}}},
            {"name": "c", "state": {"waiting": {"reason": "ContainerCreating", "message": "x"}}},
            {"name": "d", "state": {"waiting": {"message": "no reason"}}},
            {"name": "e", "state": {"waiting": {"reason": "InvalidImageName"}}}]},
         "InvalidImageName", "InvalidImageName"),
        ({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                          "message": "0/1 nodes"}]}, "Unschedulable", "unschedulable: 0/1 nodes"),
        ({"conditions": [{"type": "PodScheduled", "status": "False"}]}, "", "unschedulable"),
        ({"conditions": [{"type": "PodScheduled", "status": "True"},
                         {"type": "Ready", "status": "False", "reason": "ContainersNotReady"}]},
         "", ""),
    ],
)  # fmt: skip
def test_why_a_pod_does_not_run_yet(said: dict[str, Any], word: str, words: str) -> None:
    item = pod("Pending")
    item["status"] |= said
    assert status.waiting_reason(item) == (word, words)
    assert status.of_pod(item, WORKER).reason == words


PULL = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}
CREATING = {"waiting": {"reason": "PodInitializing"}}
UP = {"running": {}}


@pytest.mark.parametrize(
    ("init", "program", "word", "words"),
    [
        # What runs beside the program keeps nobody waiting.
        ({"mesh": UP}, PULL, "ImagePullBackOff", "ImagePullBackOff: Back-off"),
        ({"mesh": UP, "logs": PULL}, CREATING, "ImagePullBackOff", "ImagePullBackOff: Back-off"),
        ({"mesh": PULL}, CREATING, "ImagePullBackOff", "ImagePullBackOff: Back-off"),
        ({"mesh": ended(1)}, PULL, "ImagePullBackOff", "ImagePullBackOff: Back-off"),
        ({"mesh": {"waiting": {"reason": "CrashLoopBackOff"}}}, PULL, "ImagePullBackOff",
         "ImagePullBackOff: Back-off"),
        ({"mesh": {"waiting": {"reason": "CrashLoopBackOff"}}}, CREATING, "CrashLoopBackOff",
         "CrashLoopBackOff"),
        ({"mesh": UP}, CREATING, "", ""),
        ({"mesh": UP, "fetch": UP}, CREATING, "", "its init container fetch runs"),
        ({"late": UP}, CREATING, "", "its sidecar late is starting"),
        ({"late": ended(1)}, CREATING, "", ""),
    ],
)  # fmt: skip
def test_a_native_sidecar_hides_no_reason(
    init: dict[str, Any], program: dict[str, Any], word: str, words: str
) -> None:
    item = pod("Pending", program)
    always = {"restartPolicy": "Always"}
    item["spec"] = {
        "containers": [{"name": "c"}],
        "initContainers": [{"name": name} | (always if name != "fetch" else {}) for name in init],
    }
    item["status"]["initContainerStatuses"] = [
        {"name": name, "state": state, "started": name != "late"} for name, state in init.items()
    ]
    assert status.waiting_reason(item) == (word, words)
    # What follows a job keeps a part of each pod.
    assert status.waiting_reason(trimmed(item)) == (word, words)


@pytest.mark.parametrize(
    ("word", "given_up"),
    [
        ("ErrImagePull", True),
        ("ImagePullBackOff", True),
        ("ErrImageNeverPull", True),
        ("InvalidImageName", True),
        ("CreateContainerConfigError", True),
        ("CreateContainerError", True),
        ("RunContainerError", True),
        ("CrashLoopBackOff", False),
    ],
)
def test_a_job_is_given_up_for_what_does_not_come_by_waiting(word: str, given_up: bool) -> None:
    class Server:
        async def get(self, path: str, **query: str) -> dict[str, Any]:
            return {"items": []}

    async def main() -> Status:
        reasons = PendingReasons(cast(Client, Server()), JOB, 0.0, lambda: None)
        item = pod("Pending", {"waiting": {"reason": word}})
        now = job_status.of_job(JOB, job("Created"), {WORKER: status.of_pod(item, WORKER)})
        found = reasons.explain(now, {WORKER: item, Replica("ps", 0): None}, "j")
        await reasons.close()
        return found

    found = asyncio.run(main())
    assert (found.state is State.FAILED, found.hopeless) == (given_up, given_up)
    assert found.message == (f"worker-0 cannot start: {word}" if given_up else "")


@pytest.fixture
def far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_east")
def test_times_are_the_servers_wherever_this_machine_is() -> None:
    assert status.text(CREATED + 0.25) == "2026-11-21T10:00:00.250000Z"
    assert status.stamp("2026-11-21T10:00:00Z") == CREATED


def test_times_of_a_status_are_by_this_machines_clock() -> None:
    clock = ServerClock(lambda: 1000.0)
    clock.ahead = 300
    replicas = (ReplicaStatus(WORKER, State.RUNNING, 1310.0), ReplicaStatus(Replica("ps", 0)))
    now = status.at_local_time(Status(State.RUNNING, replicas, 1320.0), clock)
    assert (now.state, now.since) == (State.RUNNING, 1020.0)
    assert [one.replica for one in now.replicas] == [WORKER, Replica("ps", 0)]
    assert [one.since for one in now.replicas] == [1010.0, 0.0]


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ([{"terminated": {"message": "a result"}}], "a result"),
        ([{"terminated": {"exitCode": 0}}], ""),
        ([{"terminated": {"message": 7}}, {"terminated": {"message": "a result"}}], "a result"),
        ([RUNNING], ""),
        ([], ""),
    ],
)
def test_the_last_words_of_a_program(states: list[Any], words: str) -> None:
    item = pod("Running")
    item["status"]["containerStatuses"] = [{"name": "a", "state": one} for one in states]
    assert status.last_words(item) == words


def job(*conditions: str, **more: Any) -> dict[str, Any]:
    at = "2026-11-21T10:00:09Z"
    held = [{"type": c, "status": "True", "lastTransitionTime": at, **more} for c in conditions]
    meta = {"name": "job", "namespace": "team", "annotations": {"ciao-kernel/decider": "worker-0"}}
    return {"metadata": meta, "status": {"conditions": held}}


def test_a_jobs_condition_decides_whatever_its_pods_do() -> None:
    seen = {WORKER: ReplicaStatus(WORKER, State.RUNNING)}
    assert job_status.of_job(JOB, job("Created"), {}).state is State.PENDING
    assert job_status.of_job(JOB, job("Created"), seen).state is State.RUNNING
    done = job_status.of_job(JOB, job("Created", "Running", "Succeeded"), seen)
    assert (done.state, done.decided_by) == (State.SUCCEEDED, WORKER)
    assert job_status.of_job(JOB, job("Suspended"), seen).reason == "Suspended"
    both = job_status.of_job(JOB, job("Succeeded", "Failed", message="why"), seen)
    assert (both.state, both.message) == (State.FAILED, "why")


@pytest.mark.parametrize("condition", ["Succeeded", "Failed"])
def test_a_job_ends_also_if_its_operators_clock_is_behind(condition: str) -> None:
    item = job("Created", condition)
    item["metadata"]["creationTimestamp"] = "2026-11-21T10:00:10Z"
    assert job_status.of_job(JOB, item, {}).state.over
    item["metadata"]["annotations"]["ciao-kernel/try"] = "2"  # it has no JobSet either
    assert job_status.of_job(JOB, item, {}).state.over


AT = "2026-11-21T10:00:07Z"


def test_a_deleted_job_has_ended_though_a_finalizer_keeps_it() -> None:
    """And nothing of it waits: the operator makes no more pods for it."""
    item = job("Created", "Running")
    item["metadata"] |= {"deletionTimestamp": AT, "finalizers": ["example.com/hold"]}
    seen = {WORKER: ReplicaStatus(WORKER, State.SUCCEEDED, 5.0, 0)}
    now = job_status.of_job(JOB, item, seen)
    assert (now.state, now.message, now.since) == (State.STOPPED, status.DELETED, status.stamp(AT))
    assert [one.state for one in now.replicas] == [State.STOPPED, State.SUCCEEDED]
    waits = ReplicaStatus(WORKER, State.PENDING, 5.0, None, "unschedulable")
    (_, one) = job_status.of_job(JOB, item, {WORKER: waits}).replicas
    assert (one.state, one.reason) == (State.STOPPED, "")
    item["status"]["conditions"].append({"type": "Succeeded", "status": "True"})
    assert job_status.of_job(JOB, item, seen).state is State.SUCCEEDED


def test_a_job_whose_replicas_have_all_ended_waits_for_nothing() -> None:
    """Its condition may come late, or never where another container keeps the pods."""
    ends = [ReplicaStatus(one, State.SUCCEEDED, 5.0, 0) for one in JOB.replicas]
    seen = {one.replica: one for one in ends}
    assert job_status.of_job(JOB, job("Created"), seen).state is State.RUNNING
    assert job_status.of_job(JOB, job("Created"), {WORKER: ends[1]}).state is State.PENDING


@pytest.mark.parametrize(
    ("second", "reason", "policy", "state"),
    [
        (10, "", "Running", State.STOPPED),
        (9, "", "Running", State.FAILED),  # by itself, before the job's end
        (10, "OOMKilled", "Running", State.FAILED),
        (10, "", "None", State.FAILED),  # nobody asked it to end
    ],
)
@pytest.mark.parametrize("how", ["Succeeded", "Failed"])
def test_a_replica_that_ends_with_its_job_has_not_failed(
    second: int, reason: str, policy: str, state: State, how: str
) -> None:
    """torchrun ends with 1 when it is asked to end."""
    over = job(how) | {"spec": {"runPolicy": {"cleanPodPolicy": policy}}}
    since = status.stamp(f"2026-11-21T10:00:{second:02d}Z")
    worker = ReplicaStatus(WORKER, State.FAILED, since, 1, reason)
    first = replace(worker, replica=Replica("ps", 0), since=1.0)
    found = job_status.of_job(JOB, over, {WORKER: worker, first.replica: first}).replicas[1]
    assert (found.state, found.exit_code) == (state, 1)


def test_a_replica_that_succeeds_after_its_jobs_end_has_succeeded() -> None:
    late = ReplicaStatus(WORKER, State.SUCCEEDED, CREATED + 30, 0)
    found = job_status.of_job(JOB, job("Succeeded"), {WORKER: late})
    assert found.replicas[1] == late


def test_who_failed_first_has_failed_whatever_its_nodes_clock_says() -> None:
    late = status.stamp("2026-11-21T10:00:30Z")
    seen = {WORKER: ReplicaStatus(WORKER, State.FAILED, late, 1)}
    said = "its operator's own words"
    found = job_status.of_job(JOB, job("Failed", message=said), seen)
    assert (found.replicas[1].state, found.decided_by) == (State.FAILED, WORKER)
    assert found.message == ""


@pytest.mark.parametrize(("code", "second"), [(None, 0), (None, 2), (1, 0)])
def test_replicas_that_the_operator_gives_up_are_not_to_blame(
    code: int | None, second: int
) -> None:
    """Asked to end, one is gone with a signal's code, and another makes 1 of it."""
    late = status.stamp("2026-11-21T10:00:11Z")
    one = ReplicaStatus(WORKER, State.FAILED, late, 1)
    if code is None:
        one = ReplicaStatus(WORKER, State.STOPPED, late - second, None, status.DELETED)
    said = "Job job has failed because it has reached the specified backoff limit"
    found = job_status.of_job(JOB, job("Failed", message=said), {WORKER: one})
    assert (found.replicas[1].state, found.decided_by) == (State.STOPPED, None)
    assert found.message == said


def test_a_pod_that_somebody_deleted_is_named() -> None:
    at = status.stamp("2026-11-21T10:00:09Z")
    one = ReplicaStatus(WORKER, State.STOPPED, at, None, status.DELETED)
    found = job_status.of_job(JOB, job("Failed"), {WORKER: one})
    assert found.message == "somebody deleted the pod of worker-0."


def test_two_pods_that_were_deleted_in_the_second_of_the_jobs_end_are_both_named() -> None:
    """The operator deletes the others when one is gone, and times have whole seconds."""
    at = status.stamp("2026-11-21T10:00:09Z")
    seen = {
        one: ReplicaStatus(one, State.STOPPED, at, None, status.DELETED) for one in JOB.replicas
    }
    seen[WORKER] = replace(seen[WORKER], since=at + 0.7)  # its end was not seen
    found = job_status.of_job(JOB, job("Failed"), seen)
    assert found.message == "somebody deleted the pod of ps-0 or worker-0."


def disrupted(reason: str) -> dict[str, Any]:
    return {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason}]}


@pytest.mark.parametrize(("code", "state"), [(143, State.STOPPED), (1, State.FAILED)])
def test_an_evicted_pod_is_named_however_it_ended_and_whenever(code: int, state: State) -> None:
    """The operator judges a pod that is told to end; its container ends seconds later."""
    item = leaving(pod("Failed", ended(code), **disrupted("EvictionByEvictionAPI")), 4, None)
    one = replace(status.of_pod(item, WORKER), since=status.stamp("2026-11-21T10:09:00Z"))
    ps = ReplicaStatus(Replica("ps", 0), State.FAILED, one.since, 1)
    found = job_status.of_job(JOB, job("Failed"), {WORKER: one, ps.replica: ps})
    assert one.state is state
    assert found.message == "the pod of worker-0 was evicted, as when its node is drained."


def test_an_eviction_after_the_programs_end_is_not_its_reason() -> None:
    """As of a pod that a sidecar keeps until its node is drained."""
    item = pod("Failed", ended(1), **disrupted("EvictionByEvictionAPI"))
    at = get(status.program(item)[0], "state", "terminated", "finishedAt")
    assert status.of_pod(item, WORKER).reason != ""
    item["status"]["conditions"][0]["lastTransitionTime"] = "2036-01-01T00:00:00Z"
    assert at < "2036"
    assert status.of_pod(item, WORKER).reason == ""
    item["status"]["conditions"][0]["lastTransitionTime"] = at  # times are whole seconds
    assert status.of_pod(item, WORKER).reason != ""
    del status.program(item)[0]["state"]["terminated"]["finishedAt"]  # an end at no known time
    assert status.of_pod(item, WORKER).reason != ""


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("EvictionByEvictionAPI", "evicted, as when its node is drained"),
        ("DeletionByTaintManager", "evicted because its node has a taint"),
        ("PreemptionByScheduler", "evicted to make room for a pod of higher priority"),
        ("DeletionByPodGC", "removed because its node is gone"),
    ],
)
def test_what_the_cluster_does_to_a_pod_is_the_reason_of_its_end(reason: str, words: str) -> None:
    item = leaving(pod("Failed", ended(143), **disrupted(reason)), 4, None)
    one = status.of_pod(item, WORKER)
    assert (one.state, one.reason) == (State.STOPPED, words)
    found = job_status.of_job(JOB, job("Failed"), {WORKER: one})
    assert found.message == f"the pod of worker-0 was {words}."


def test_a_pod_whose_node_is_gone_tells_it_although_its_program_seems_to_run() -> None:
    """No kubelet is left that could report the end, so only the pod's phase and condition do."""
    item = pod("Failed", RUNNING, **disrupted("DeletionByPodGC"))
    item["status"]["conditions"][0]["lastTransitionTime"] = "2026-11-21T10:00:08Z"
    one = status.of_pod(item, WORKER)
    assert (one.state, one.reason) == (State.FAILED, "removed because its node is gone")
    assert one.since == status.stamp("2026-11-21T10:00:08Z")
    found = job_status.of_job(JOB, job("Failed"), {WORKER: one})
    assert found.message == "the pod of worker-0 was removed because its node is gone."


def test_a_failed_init_container_is_the_reason_although_the_pod_is_removed_later() -> None:
    failed = {"terminated": {"exitCode": 3, "reason": "Error"}}
    item = pod("Failed", **disrupted("DeletionByTaintManager"))
    item["spec"] = {"initContainers": [{"name": "prep"}]}
    item["status"]["initContainerStatuses"] = [{"name": "prep", "state": failed}]
    item["status"]["conditions"][0]["lastTransitionTime"] = "2030-01-01T00:00:00Z"
    one = status.of_pod(item, WORKER)
    assert one.reason == "its init container prep ended with exit code 3"
    assert one.since < status.stamp("2030-01-01T00:00:00Z")


@pytest.mark.parametrize("reason", ["TerminationByKubelet", "New", ""])
def test_a_disruption_of_which_the_pod_itself_says_more(reason: str) -> None:
    words = {**disrupted(reason), "reason": "Evicted", "message": "low on memory"}
    one = status.of_pod(pod("Failed", ended(137), **words), WORKER)
    assert one.reason == "Evicted: low on memory"
    assert status.disruption(pod("Failed", **words)) == ""


def test_an_end_without_a_time_tells_nothing_of_who_was_stopped() -> None:
    over = job("Failed")
    for one in over["status"]["conditions"]:
        del one["lastTransitionTime"]
    failed = [ReplicaStatus(one, State.FAILED, 5.0 + one.index, 1) for one in JOB.replicas]
    found = job_status.of_job(JOB, over, {one.replica: one for one in failed})
    assert [one.state for one in found.replicas] == [State.FAILED] * 2


def test_the_replica_that_failed_first_is_to_blame() -> None:
    first = ReplicaStatus(WORKER, State.FAILED, 5.0, 1)
    later = ReplicaStatus(Replica("ps", 0), State.FAILED, 6.0, 1)
    found = job_status.of_job(JOB, job("Failed"), {WORKER: first, later.replica: later})
    assert found.decided_by == WORKER


def test_a_condition_that_holds_no_more_decides_nothing() -> None:
    item = job("Suspended", "Failed", "Succeeded")
    for one in item["status"]["conditions"]:
        one["status"] = "False"
    assert job_status.of_job(JOB, item, {}).state is State.PENDING


def test_the_end_of_a_job_is_told_with_its_time_and_the_operators_reason() -> None:
    failed = job_status.of_job(JOB, job("Failed", reason="PodFailed"), {})
    assert (failed.since, failed.reason) == (CREATED + 9, "PodFailed")
    unsaid = job_status.of_job(JOB, job("Failed"), {})
    assert (unsaid.reason, unsaid.message) == ("", "")
    assert job_status.of_job(JOB, job("Succeeded"), {}).since == CREATED + 9


def test_a_suspended_job_says_who_suspended_it_if_anybody_said() -> None:
    said = job_status.of_job(JOB, job("Suspended", message="the queue is full"), {})
    assert (said.state, said.message) == (State.PENDING, "the queue is full")
    assert job_status.of_job(JOB, job("Suspended"), {}).message == "someone suspended it"


def test_a_job_is_as_old_as_the_oldest_of_its_replicas() -> None:
    seen = {
        WORKER: ReplicaStatus(WORKER, State.RUNNING, 7.0),
        Replica("ps", 0): ReplicaStatus(Replica("ps", 0), State.PENDING, 6.0),
    }
    assert job_status.of_job(JOB, job("Running"), seen).since == 6.0
    seen[WORKER] = ReplicaStatus(WORKER)  # nothing is known of it
    assert job_status.of_job(JOB, job("Created"), seen).since == 6.0
    assert job_status.of_job(JOB, job("Created"), {}).since == 0.0


def test_replicas_that_somebody_added_come_behind_the_jobs_own() -> None:
    added = [Replica("worker", index) for index in range(6, 0, -1)]
    seen = {one: ReplicaStatus(one, State.RUNNING) for one in added}
    found = job_status.of_job(JOB, job("Running"), seen)
    assert [one.replica for one in found.replicas] == [*JOB.replicas, *reversed(added)]


def test_what_still_runs_when_a_job_is_over_is_being_stopped() -> None:
    states = (State.RUNNING, State.FAILED)
    replicas = tuple(map(ReplicaStatus, JOB.replicas, states))
    last = job_status.settled(Status(State.FAILED, replicas))
    assert last.settled
    assert [one.state for one in last.replicas] == [State.STOPPED, State.FAILED]


@pytest.mark.parametrize(
    ("state", "job_end", "began", "end"),
    [
        (State.RUNNING, CREATED + 16, CREATED + 2, CREATED + 16),
        (State.PENDING, CREATED + 16, CREATED + 2, 0.0),  # it never ran
        (State.RUNNING, CREATED + 16, CREATED + 17, CREATED + 17),  # its node's clock is ahead
        (State.RUNNING, 0.0, CREATED + 2, 0.0),
        (State.SUCCEEDED, CREATED + 16, CREATED + 9, CREATED + 9),
    ],
)
def test_a_replica_that_the_jobs_end_stops_has_run_until_then(
    state: State, job_end: float, began: float, end: float
) -> None:
    one = ReplicaStatus(WORKER, state, began)
    (told,) = job_status.settled(Status(State.SUCCEEDED, (one,), job_end)).replicas
    assert told.since == end


def test_a_replica_of_a_deleted_job_has_run_until_the_deletion() -> None:
    item = job("Running")
    item["metadata"]["deletionTimestamp"] = status.text(CREATED + 16)
    seen = {WORKER: ReplicaStatus(WORKER, State.RUNNING, CREATED + 2)}
    found = job_status.of_job(JOB, item, seen)
    told = {one.replica: (one.state, one.since) for one in found.replicas}
    assert told[WORKER] == (State.STOPPED, CREATED + 16)


@pytest.mark.parametrize(
    ("second", "told"), [(8, "somebody deleted the pod of worker-0."), (10, "the operator's")]
)
def test_pods_that_go_after_the_jobs_end_were_deleted_by_the_operator(
    second: int, told: str
) -> None:
    one = ReplicaStatus(WORKER, State.STOPPED, CREATED + second, None, status.DELETED)
    found = job_status.of_job(JOB, job("Failed", message="the operator's"), {WORKER: one})
    assert found.message == told


def test_replicas_that_a_deadline_ends_are_not_to_blame() -> None:
    one = ReplicaStatus(WORKER, State.FAILED, CREATED + 10, 1)
    said = "Job job has failed because it was active longer than specified deadline"
    found = job_status.of_job(JOB, job("Failed", message=said), {WORKER: one})
    assert (found.replicas[1].state, found.decided_by) == (State.STOPPED, None)


def test_a_deadline_is_named() -> None:
    failed = ReplicaStatus(WORKER, State.FAILED, 5.0, None, "DeadlineExceeded: too long")
    found = job_status.of_job(JOB, job("Failed"), {WORKER: failed})
    assert found.message == "the job ran longer than its %deadline."
    said = "Job job has failed because it was active longer than specified deadline"
    assert job_status.of_job(JOB, job("Failed", message=said), {}).message == found.message
    assert (
        job_status.of_job(JOB, job("Failed", reason="DeadlineExceeded"), {}).message
        == found.message
    )


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (
            {operator_v1.ROLE_LABEL: "worker", operator_v1.INDEX_LABEL: "3"},
            Replica("worker", 3),
        ),
        ({operator_v1.ROLE_LABEL: "launcher"}, Replica("launcher", 0)),
        ({operator_v1.ROLE_LABEL: "worker"}, None),
        ({operator_v1.ROLE_LABEL: "worker", operator_v1.INDEX_LABEL: "x"}, None),
        ({}, None),
    ],
)
def test_which_replica_a_pod_is(labels: dict[str, str], found: Replica | None) -> None:
    assert job_metadata.replica({"metadata": {"labels": labels}}) == found


def _broken(item: Any, chance: random.Random) -> Any:
    """The same object with some of its parts missing or of another type."""
    if chance.random() < 0.08:
        return chance.choice([None, 7, "text", [], {}, [None], {"a": 1}, True])
    if isinstance(item, dict):
        return {k: _broken(v, chance) for k, v in item.items() if chance.random() > 0.05}
    if isinstance(item, list):
        return [_broken(one, chance) for one in item]
    return item


def test_no_form_of_an_object_breaks_it() -> None:
    chance = random.Random(20261121)
    pods = [pod("Failed", ended(1)), pod("Running", {"running": {}}, conditions=[{"type": "x"}]),
            pod("Pending", {"waiting": {"reason": "ErrImagePull"}})]  # fmt: skip
    for _ in range(3000):
        item = {"metadata": {"uid": "1"}, "status": None}
        broken = _broken(chance.choice(pods)["status"], chance)
        one = status.of_pod({**item, "status": broken}, WORKER)
        assert isinstance(one.state, State)
        whole = {**job("Failed"), "status": _broken(job("Created", "Failed")["status"], chance)}
        assert isinstance(job_status.of_job(JOB, whole, {WORKER: one}).state, State)
