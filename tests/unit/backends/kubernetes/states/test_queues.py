"""What a cell says of a job that waits in a queue of Kueue."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.states import job_status, queues, workloads
from ciao_kernel.backends.kubernetes.states.queues import QueueReasons
from ciao_kernel.errors import Refused
from ciao_kernel.model import Job, Replica, ReplicaStatus, State, Status

WORKER = Replica("worker", 0)
JOB = Job("mnist", "kubernetes", "tensorflow", (WORKER,), 0.0, "team")
MADE = {
    "reason": "CreatedWorkload",
    "message": "Created Workload: team/tfjob-mnist-1a2b3",
    "lastTimestamp": "2026-01-01T00:00:00Z",
}
FULL = "couldn't assign flavors to pod set worker: insufficient unused quota for memory"


def job(suspend: bool, queue: str = "team", condition: str = "Suspended") -> Any:
    labels = {queues.LABEL: queue} if queue else {}
    said = {"type": condition, "status": "True", "message": f"TFJob mnist is {condition}"}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "mnist", "labels": labels},
        "spec": {"runPolicy": {"suspend": suspend}, "tfReplicaSpecs": {}},
        "status": {"conditions": [said]},
    }


WAITS, RUNS = job(suspend=True), job(suspend=False, condition="Running")


def status_of(item: Any) -> Status:
    state = State.RUNNING if item is RUNS else State.PENDING
    return job_status.of_job(JOB, item, {WORKER: ReplicaStatus(WORKER, state)})


class Server:
    """Answers requests for events, and for Workloads and places if it has some.

    Args:
        answer: Returns events by their selector.
        workloads: What users may list; None: they may not.
        place: The job's place in its queue; None: places are not told.
    """

    def __init__(
        self,
        answer: Callable[[str], list[Any]],
        workloads: list[Any] | None = None,
        place: int | None = None,
    ) -> None:
        self.answer, self.workloads, self.place = answer, workloads, place
        self.asked: list[str] = []
        self.clock = Clock()

    async def known(self, path: str, body: Any = None) -> Any:
        if path == "/apis/kueue.x-k8s.io":
            return {"preferredVersion": {"version": "v1beta2"}}
        if path == "/apis/visibility.kueue.x-k8s.io":
            if self.place is None:
                raise Refused("not found", "", code=404, reason="NotFound")
            return {"versions": [{"version": "v1beta2"}]}
        assert path.endswith("selfsubjectrulesreviews")
        rule = {"verbs": ["get", "list"], "apiGroups": ["*"], "resources": ["workloads"]}
        more = {**rule, "resources": ["localqueues/pendingworkloads"]}
        rules = [rule] if self.workloads is not None else []
        return {"status": {"incomplete": False, "resourceRules": [*rules, more]}}

    async def text(self, path: str) -> bytes:
        assert path.endswith("/localqueues/team/pendingworkloads")
        meta = {"ownerReferences": [{"uid": "j"}]}
        return json.dumps(
            {"items": [{"metadata": meta, "positionInLocalQueue": self.place}]}
        ).encode()

    async def get(self, path: str, *, fieldSelector: str = "", labelSelector: str = "") -> Any:
        if labelSelector:
            assert path == "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads"
            assert labelSelector == "kueue.x-k8s.io/job-uid=j"
            return {"items": self.workloads}
        self.asked.append(fieldSelector)
        assert path == "/api/v1/namespaces/team/events"
        return {"items": self.answer(fieldSelector)}


class Clock:
    def now(self) -> float:
        return 1000.0


def events(selector: str) -> list[Any]:
    if selector == "involvedObject.uid=j":
        return [MADE]
    assert selector == "involvedObject.kind=Workload,involvedObject.name=tfjob-mnist-1a2b3"
    times = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:03Z", "2026-01-01T00:00:02Z")
    said = ("old", f"{FULL}, \n 28Mi more needed", "older")
    return [{"message": m, "lastTimestamp": t} for m, t in zip(said, times, strict=True)]


def told(
    server: Server, *looks: Any, certain: float = 0.0
) -> tuple[list[Status | None], list[str]]:
    """The statuses and the notices of several looks; all answers arrive between two looks."""

    async def main() -> tuple[list[Status | None], list[str]]:
        client: Any = server
        reasons = QueueReasons(client, JOB, lambda: None, certain, certain)
        found, notices = [], []
        for item in looks:
            reasons._asked = 0.0
            found.append(reasons.explain(status_of(item), item, "j"))
            notices += [text] if (text := reasons.notice()) else []
            for asking in (reasons._asking, reasons._place._asking):
                if asking:
                    await asyncio.gather(asking, return_exceptions=True)
        await reasons.close()
        return found, notices

    return asyncio.run(main())


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "_SOON", -1.0)


def test_a_waiting_job_has_the_queues_word_and_reason() -> None:
    (first, then), _ = told(Server(events), WAITS, WAITS)
    assert first
    assert then
    assert (first.state, first.reason, first.message) == (
        State.PENDING, "Queued", "waits in queue team",
    )  # fmt: skip
    assert then.message == f"waits in queue team: {FULL}, 28Mi more needed"


def test_jobs_outside_queues_keep_their_words() -> None:
    server = Server(events)
    found, notices = told(server, job(True, queue=""), RUNS)
    assert (found, notices, server.asked) == ([None, None], [], [])


@pytest.mark.usefixtures("at_once")
def test_the_cell_says_once_that_it_waits_and_when_it_is_admitted() -> None:
    looks = [WAITS] * 3 + [job(False, condition="Created"), RUNS]
    _, notices = told(Server(events), *looks)
    assert notices == [
        "mnist waits in queue team.",
        "queue team admitted mnist after 0s.",
    ]


def test_a_short_wait_is_not_told() -> None:
    _, notices = told(Server(events), WAITS, RUNS)
    assert notices == []


def test_a_job_that_loses_its_place_says_so_at_once() -> None:
    looks = [RUNS, WAITS, RUNS]
    _, notices = told(Server(events), *looks)
    assert notices == [
        "mnist has lost its place, and its pods are deleted; it waits in queue team.",
        "queue team admitted mnist after 0s.",
    ]


def test_without_the_right_to_events_the_queue_is_named_and_nobody_asks_for_ever() -> None:
    def refuse(_: str) -> list[Any]:
        raise Refused("events are forbidden", "", code=403, reason="Forbidden")

    server = Server(refuse)
    found, _ = told(server, *[WAITS] * 9)
    assert found[-1]
    assert found[-1].message == "waits in queue team"
    assert len(server.asked) == 3


def test_a_job_that_is_over_does_not_wait() -> None:
    assert told(Server(events), job(True, condition="Failed"))[0] == [None]


def test_lists_name_the_queue_too_and_other_suspended_jobs_keep_their_words() -> None:
    assert status_of(WAITS).message == "waits in queue team"
    assert status_of(job(True, queue="")).message == "TFJob mnist is Suspended"


def workload(message: str) -> Any:
    return {"status": {"conditions": [
        {"type": "Admitted", "status": "False", "message": "no"},
        {"type": "QuotaReserved", "status": "False", "message": message},
    ]}}  # fmt: skip


def test_who_may_read_workloads_gets_the_reason_from_them() -> None:
    server = Server(events, [workload("couldn't assign flavors:\n busy.")])
    (_, then), _ = told(server, WAITS, WAITS)
    assert then
    assert then.message == "waits in queue team: couldn't assign flavors: busy"
    assert server.asked == []


def test_the_place_in_line_stands_before_the_reason() -> None:
    (_, then, ran, again), notices = told(Server(events, place=2), WAITS, WAITS, RUNS, WAITS)
    assert then
    assert then.message == f"waits in queue team, 3rd in line: {FULL}, 28Mi more needed"
    assert ran is None
    assert again
    assert again.message == "waits in queue team"  # it is at another place now
    assert notices == [
        "mnist has lost its place, and its pods are deleted; it waits in queue team."
    ]


def test_a_workload_that_does_not_tell_yet_leaves_the_events() -> None:
    (_, then), _ = told(Server(events, [{"status": {}}]), WAITS, WAITS)
    assert then
    assert then.message == f"waits in queue team: {FULL}, 28Mi more needed"


LARGE = (
    "couldn't assign flavors to pod set worker: insufficient quota for memory in flavor any, "
    "previously considered podsets requests (0) + current podset request (3Gi) > maximum capacity "
    "(1Gi)"
)


@pytest.mark.parametrize(
    ("why", "vain"),
    [
        ("", False),
        (FULL, False),
        (LARGE, True),
        (f"{FULL}; {LARGE}", True),
        (f"{LARGE}, insufficient unused quota for memory in flavor spot, 1Gi more needed", False),
        (f"{LARGE}, {LARGE}, {FULL}", False),
        (f"{LARGE}, {LARGE}, insuffi ...", False),
        (
            f'{LARGE}, topology "racks" fits only 1. Total nodes: 6; excluded: resource "cpu": 5',
            False,
        ),
        ("LocalQueue nosuch doesn't exist", True),
        ("ClusterQueue team is inactive", False),
    ],
)
def test_some_reasons_never_go_away(why: str, vain: bool) -> None:
    assert workloads.waits_in_vain(why) is vain


def test_a_job_that_its_queue_can_never_hold_fails_and_is_to_be_removed() -> None:
    (_, then), _ = told(Server(events, [workload(LARGE)]), WAITS, WAITS)
    assert then
    assert (then.state, then.hopeless, then.since) == (State.FAILED, True, 1000.0)
    assert then.message == f"mnist can never run in queue team: {LARGE}"


def test_what_may_pass_counts_where_the_text_is_cut_before_it() -> None:
    why = f"{LARGE}, {LARGE}, {FULL}"
    assert why.index(FULL) > 300
    _, then = told(Server(events, [workload(why)]), WAITS, WAITS)[0]
    assert then
    assert then.state is State.PENDING
    assert then.message.startswith("waits in queue team: couldn't assign flavors")
    assert len(then.message) < 350


def test_a_queue_that_seems_too_small_gets_another_round() -> None:
    found, _ = told(Server(events, [workload(LARGE)]), WAITS, WAITS, WAITS, certain=60.0)
    assert [one.state for one in found if one] == [State.PENDING] * 3
    missing = workload("LocalQueue nosuch doesn't exist")
    found, _ = told(Server(events, [missing]), WAITS, WAITS, certain=60.0)
    assert found[-1]
    assert found[-1].state is State.FAILED


def test_a_job_that_ran_is_not_given_up() -> None:
    found, _ = told(Server(events, [workload(LARGE)]), RUNS, WAITS, WAITS)
    assert found[-1]
    assert found[-1].state is State.PENDING


def active(value: bool, message: str = "waits") -> Any:
    return {**workload(message), "spec": {"active": value}}


def test_a_job_whose_workload_is_inactive_is_suspended_until_it_is_resumed() -> None:
    server = Server(events, [active(value=False, message="The workload is deactivated")])
    (_, first, then), notices = told(server, RUNS, WAITS, WAITS)
    assert first
    assert then
    assert (then.state, then.reason, then.word) == (State.PENDING, "Suspended", "Suspended")
    assert then.message == "is suspended until `ciao resume mnist`: The workload is deactivated"
    assert notices == ["mnist is suspended, and its pods are deleted until `ciao resume mnist`."]


def test_a_job_that_never_ran_and_is_suspended_has_no_pods_to_lose() -> None:
    server = Server(events, [active(value=False)])
    _, notices = told(server, WAITS, WAITS, WAITS)
    assert notices == ["mnist is suspended until `ciao resume mnist`."]


def checked(state: str, message: str) -> Any:
    """A Workload with quota, of whose checks one is not ready."""
    checks = [
        {"name": "budget", "state": "Ready", "message": "fine"},
        {"name": "nodes", "state": state, "message": message},
        {"name": "more", "state": "Pending", "message": "later"},
    ]
    reserved = {"type": "QuotaReserved", "status": "True", "message": "Quota reserved in team"}
    return {"status": {"conditions": [reserved], "admissionChecks": checks}}


@pytest.mark.parametrize(
    ("state", "message", "shown"),
    [
        ("Pending", "ETA:\n 20 minutes.", "admission check nodes: ETA: 20 minutes"),
        ("Retry", "no nodes", "admission check nodes: no nodes"),
        ("Pending", "", "admission check nodes is Pending"),
        ("Pending", "> maximum capacity (8)", "admission check nodes: > maximum capacity (8)"),
        ("Ready", "", "admission check more: later"),
    ],
)
def test_a_job_with_quota_waits_for_its_admission_checks(
    state: str, message: str, shown: str
) -> None:
    server = Server(events, [checked(state, message)])
    found, _ = told(server, WAITS, WAITS, WAITS)
    assert found[-1]
    assert found[-1].state is State.PENDING
    assert found[-1].message == f"waits in queue team: {shown}"
    assert server.asked == []


def test_checks_of_a_job_without_quota_are_no_reason() -> None:
    item = checked("Pending", "ETA: 20 minutes.")
    assert workloads.condition(item)
    item["status"]["conditions"] = []
    assert workloads.condition(item) == ""


REJECTED = "The workload is deactivated due to Admission check(s): nodes, were rejected"


def deactivated(*, admitted: bool = False, evicted: str = "True") -> Any:
    """A Workload that Kueue has made inactive."""
    conditions = [
        {"type": "QuotaReserved", "status": "False", "message": "The workload is deactivated"},
        {"type": "Evicted", "status": evicted, "reason": "Deactivated", "message": REJECTED},
        *([{"type": "Admitted", "status": "False"}] if admitted else []),
    ]
    checks = [{"name": "nodes", "state": "Pending", "message": "Reset to Pending after eviction"}]
    status = {"conditions": conditions, "admissionChecks": checks}
    return {"spec": {"active": False}, "status": status}


def test_a_job_that_kueue_gives_up_before_it_ran_fails() -> None:
    (_, then), notices = told(Server(events, [deactivated()]), WAITS, WAITS)
    assert then
    assert (then.state, then.hopeless, then.since) == (State.FAILED, True, 1000.0)
    assert then.message == f"mnist can never run in queue team: {REJECTED}"
    assert notices == []


def test_a_job_that_kueue_gives_up_after_it_ran_is_suspended_by_kueue() -> None:
    (*_, then), notices = told(Server(events, [deactivated()]), RUNS, WAITS, WAITS)
    assert then
    assert (then.state, then.reason) == (State.PENDING, "Suspended")
    assert then.message == f"is suspended by Kueue until `ciao resume mnist`: {REJECTED}"
    assert notices == [
        "mnist is suspended by Kueue, and its pods are deleted until `ciao resume mnist`: "
        f"{REJECTED}."
    ]


def test_a_job_that_may_have_run_before_it_was_followed_is_kept() -> None:
    (_, then), notices = told(Server(events, [deactivated(admitted=True)]), WAITS, WAITS)
    assert then
    assert (then.state, then.reason) == (State.PENDING, "Suspended")
    assert notices == [f"mnist is suspended by Kueue until `ciao resume mnist`: {REJECTED}."]


def test_what_kueue_said_before_somebody_suspended_the_job_does_not_count() -> None:
    (_, then), notices = told(Server(events, [deactivated(evicted="False")]), WAITS, WAITS)
    assert then
    assert then.state is State.PENDING
    assert notices == ["mnist is suspended until `ciao resume mnist`."]


class Resumed(Server):
    """Has a Workload that is active again when it is read for the second time."""

    async def get(self, path: str, *, fieldSelector: str = "", labelSelector: str = "") -> Any:
        found = await super().get(path, fieldSelector=fieldSelector, labelSelector=labelSelector)
        self.workloads = [active(value=True)]
        return found


def test_a_job_that_is_resumed_waits_again_and_has_lost_no_place() -> None:
    server = Resumed(events, [active(value=False)])
    found, notices = told(server, RUNS, WAITS, WAITS, WAITS, RUNS)
    assert [one.reason if one else "" for one in found] == ["", "Queued", "Suspended", "Queued", ""]
    assert notices == [
        "mnist is suspended, and its pods are deleted until `ciao resume mnist`.",
        "queue team admitted mnist after it was resumed.",
    ]


@pytest.mark.usefixtures("at_once")
def test_a_job_that_is_resumed_and_has_no_place_yet_says_that_it_waits() -> None:
    _, notices = told(Resumed(events, [active(value=False)]), WAITS, WAITS, WAITS, RUNS)
    assert notices == [
        "mnist waits in queue team.",
        "mnist is suspended until `ciao resume mnist`.",
        "mnist waits in queue team: waits.",
        "queue team admitted mnist after 0s.",
    ]


def test_a_job_that_loses_its_place_says_so_when_its_workload_is_known() -> None:
    server = Server(events, [active(value=True)])
    _, notices = told(server, RUNS, WAITS, WAITS)
    assert notices == [
        "mnist has lost its place, and its pods are deleted; it waits in queue team: waits."
    ]


def test_a_job_that_kueue_does_not_manage_is_suspended_by_somebody() -> None:
    """The change of its own field is told by whoever follows it."""
    found, notices = told(Server(events, []), RUNS, WAITS, WAITS, RUNS)
    assert [one.reason if one else "" for one in found] == ["", "Queued", "Suspended", ""]
    assert found[2]
    assert found[2].message == "is suspended until `ciao resume mnist`"
    assert notices == []


def test_a_job_without_a_workload_gets_some_seconds_for_it() -> None:
    found, notices = told(Server(events, []), RUNS, WAITS, WAITS, certain=60.0)
    assert [one.reason for one in found if one] == ["Queued", "Queued"]
    assert notices == []
