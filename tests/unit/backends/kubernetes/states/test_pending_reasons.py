"""Why replicas wait: images that their nodes pull, and for how long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.states import status
from ciao_kernel.backends.kubernetes.states.event_texts import pulling
from ciao_kernel.backends.kubernetes.states.pending_reasons import PendingReasons
from ciao_kernel.model import Job, Replica, ReplicaStatus, State, Status

NOW = 1_800_000_000.0
WORKER = Replica("worker", 0)
JOB = Job("mnist", "kubernetes", "tensorflow", (WORKER,), 0.0, "team")


def event(reason: str, ago: float, kind: str = "Normal") -> Any:
    words = {"Pulling": 'Pulling image "host/tf:2"', "Failed": "Failed to pull image: no such tag"}
    said = words.get(reason, f"{reason}.")
    return {
        "reason": reason, "type": kind, "message": said, "lastTimestamp": status.text(NOW - ago)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([], ""),
        ([event("Pulling", 7)], 'Pulling image "host/tf:2", 7s'),
        ([event("Pulling", 97)], 'Pulling image "host/tf:2", 1m 30s'),
        ([event("Pulling", -3)], 'Pulling image "host/tf:2", 0s'),
        ([event("Pulling", 7), event("Pulled", 2)], ""),
        ([event("Pulled", 2), event("Pulling", 7)], ""),
        ([event("Pulling", 7), event("Pulled", 7)], ""),
        ([event("Scheduled", 9), event("Pulling", 9)], 'Pulling image "host/tf:2", 9s'),
        ([{"reason": "Pulling", "lastTimestamp": status.text(NOW)}], ""),
    ],
)
def test_only_the_newest_event_is_a_pull(events: list[Any], text: str) -> None:
    assert pulling(events, NOW) == text


class Server:
    def __init__(self, *events: Any) -> None:
        self.events = events

    async def get(self, path: str, **query: str) -> Any:
        return {"items": list(self.events)}


def reason(*events: Any, known: str = "") -> str:
    """Return the reason of a pending replica whose pod has these events."""

    async def main() -> str:
        new: list[None] = []
        reasons = PendingReasons(
            Server(*events),  # type: ignore[arg-type]
            JOB, 60.0, lambda: new.append(None), lambda: NOW,
        )  # fmt: skip
        now = Status(State.PENDING, (ReplicaStatus(WORKER, reason=known),))
        pod = {"metadata": {"uid": "1", "name": "mnist-worker-0"}, "spec": {}, "status": {}}
        reasons.explain(now, {WORKER: pod}, "job")
        assert reasons._asking is not None
        await reasons._asking
        assert len(new) == 1
        return reasons.explain(now, {WORKER: pod}, "job").replicas[0].reason

    return asyncio.run(main())


def test_a_replica_shows_the_pull_unless_there_is_a_better_reason() -> None:
    assert reason(event("Pulling", 42)) == 'Pulling image "host/tf:2", 42s'
    assert reason(event("Pulling", 42), known="its init container unpack runs") == (
        "its init container unpack runs"
    )
    # While the node tries again, the reason stays that of its last try.
    known = 'ImagePullBackOff: Back-off pulling image "host/tf:2"'
    assert reason(event("Failed", 9, "Warning"), event("Pulling", 2), known=known) == known
    said = reason(event("Pulling", 9), event("Failed", 2, "Warning"))
    assert said == "Failed: Failed to pull image: no such tag"


REFUSED = 'Error creating: pods "train" is forbidden: serviceaccount "typo" not found'
LAUNCHER = Replica("launcher", 0)


class Events:
    """An API server with the events of some objects, found by field selectors as in Kubernetes."""

    def __init__(self, *events: Any) -> None:
        self.events = events

    async def get(self, path: str, *, fieldSelector: str) -> Any:
        wanted = dict(one.split("=") for one in fieldSelector.split(","))
        return {
            "items": [
                one
                for one in self.events
                if all(
                    one["involvedObject"][field.removeprefix("involvedObject.")] == value
                    for field, value in wanted.items()
                )
            ]
        }


def warning(kind: str, name: str, when: str = "2026-01-01T00:00:05Z", **more: Any) -> Any:
    about = {"kind": kind, "name": name, "uid": f"uid of {kind} {name}"}
    found = {"type": "Warning", "reason": "FailedCreate", "message": REFUSED}
    return {**found, "involvedObject": about, "lastTimestamp": when, **more}


def reasons_without_pods(resource: str, replicas: tuple[Replica, ...], *events: Any) -> list[str]:
    """Return the reasons of replicas that have no pods."""
    job = Job("train", "kubernetes", "pytorch", replicas, 0.0, "team", resource=resource)

    async def main() -> list[str]:
        found = PendingReasons(Events(*events), job, 60.0, lambda: None)  # type: ignore[arg-type]
        now = Status(State.PENDING, tuple(ReplicaStatus(one) for one in replicas))
        nothing: dict[Replica, Any] = dict.fromkeys(replicas)
        found.explain(now, nothing, "uid of TrainJob train", created="2026-01-01T00:00:05Z")
        assert found._asking is not None
        await found._asking
        later = found.explain(now, nothing, "uid of TrainJob train")
        return [one.reason for one in later.replicas]

    return asyncio.run(main())


def test_a_missing_volume_is_shown_once_it_has_lasted() -> None:
    pod = {"metadata": {"uid": "1", "name": "mnist-worker-0"}, "spec": {}, "status": {}}
    now = Status(State.PENDING, (ReplicaStatus(WORKER),))
    mount, pull = event("FailedMount", 2, "Warning"), event("Pulling", 0)

    async def main() -> None:
        server, seconds = Server(mount), 0.0
        found = PendingReasons(
            server,
            JOB,
            60.0,
            lambda: None,
            lambda: NOW,
            lambda: seconds,  # type: ignore[arg-type]
        )

        async def shown() -> str:
            found._asked = float("-inf")  # it is time to ask
            found.explain(now, {WORKER: pod}, "job")
            assert found._asking is not None
            await found._asking
            return found.explain(now, {WORKER: pod}, "job").replicas[0].reason

        assert await shown() == ""
        seconds = 4.9
        assert await shown() == ""
        seconds = 5.0
        assert await shown() == "FailedMount: FailedMount."
        server.events = (mount, pull)
        assert await shown() == 'Pulling image "host/tf:2", 0s'
        server.events = (event("FailedMount", -1, "Warning"),)  # after a restart
        assert await shown() == ""
        server.events = (event("FailedAttachVolume", -1, "Warning"),)
        assert await shown() == "FailedAttachVolume: FailedAttachVolume."
        server.events = (event("FailedMount", -2, "Warning"),)  # both come by turns
        assert await shown() == "FailedAttachVolume: FailedAttachVolume."

    asyncio.run(main())


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("Job", "train-worker-0"),
        ("Job", "train-node-0"),
        ("JobSet", "train"),
        ("TrainJob", "train"),
    ],
)
def test_replicas_of_a_train_job_show_why_their_pods_are_refused(kind: str, name: str) -> None:
    found = reasons_without_pods("trainjobs", (WORKER,), warning(kind, name))
    assert found == [f"FailedCreate: {REFUSED}"]


def test_the_reason_is_that_of_the_replicas_own_role() -> None:
    ps = Replica("ps", 0)
    found = reasons_without_pods("trainjobs", (ps, WORKER), warning("Job", "train-ps-0"))
    assert found == [f"FailedCreate: {REFUSED}", ""]
    event = warning("Job", "train-launcher")
    found = reasons_without_pods("mpijobs.v2beta1.kubeflow.org", (WORKER, LAUNCHER), event)
    assert found == ["", f"FailedCreate: {REFUSED}"]


@pytest.mark.parametrize(
    ("when", "shown"),
    [
        ({"when": "2026-01-01T00:00:04Z"}, False),
        ({"when": "2026-01-01T00:00:05Z"}, True),
        ({"lastTimestamp": None, "eventTime": "2026-01-01T00:00:05.250000Z"}, True),
        ({"lastTimestamp": None, "eventTime": "2026-01-01T00:00:04.750000Z"}, False),
    ],
)
def test_events_of_an_earlier_job_of_the_same_name_are_no_reasons(
    when: dict[str, Any], shown: bool
) -> None:
    event = warning("Job", "train-worker-0", **when)
    assert any(reasons_without_pods("trainjobs", (WORKER,), event)) is shown


SECURITY = 'Error creating: pods "a" is forbidden: violates PodSecurity "restricted:latest": root'


def outcome(resource: str, event: Any, *, pods: bool = False, wait: float = 0.0) -> Status:
    """Return the status of a job that waits, after its events have been read."""
    job = Job("train", "kubernetes", "pytorch", (WORKER,), 0.0, "team", resource=resource)

    async def main() -> Status:
        client: Any = Events(event)
        found = PendingReasons(client, job, wait, lambda: None, lambda: NOW)
        now = Status(State.PENDING, (ReplicaStatus(WORKER),))
        pod = {"metadata": {"uid": "1", "name": "train-worker-0"}, "spec": {}, "status": {}}
        seen = {WORKER: pod if pods else None}
        found.explain(now, {WORKER: None}, "uid of Job train")
        assert found._asking is not None
        await found._asking
        return found.explain(now, seen, "uid of Job train")

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("resource", "event"),
    [
        ("jobs.batch", warning("Job", "train", message=SECURITY)),
        ("pytorchjobs", warning("Job", "train", message=SECURITY, reason="FailedCreatePod")),
        ("trainjobs", warning("Job", "train-worker-0", message=SECURITY)),
    ],
)
def test_a_job_whose_pods_pod_security_refuses_is_given_up(resource: str, event: Any) -> None:
    found = outcome(resource, event)
    assert (found.state, found.hopeless, found.since) == (State.FAILED, True, NOW)
    assert found.reason == event["reason"]
    assert found.message.endswith(f" cannot create its pods: {event['reason']}: {SECURITY}")
    assert outcome(resource, event, wait=60.0).state is State.PENDING


def test_a_job_that_has_a_pod_or_may_get_one_is_not_given_up() -> None:
    refused = warning("Job", "train", message=SECURITY)
    assert outcome("jobs.batch", refused, pods=True).state is State.PENDING
    assert outcome("jobs.batch", warning("Job", "train")).state is State.PENDING


def test_objects_of_others_with_such_a_name_are_no_reasons() -> None:
    assert reasons_without_pods("trainjobs", (WORKER,), warning("Pod", "train-worker-0")) == [""]
