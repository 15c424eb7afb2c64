"""What describe shows of objects and events, whatever fields they have."""

from __future__ import annotations

from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.existing import details
from ciao_kernel.kube.server_clock import ServerClock
from ciao_kernel.model import Job

CLOCK = ServerClock()
JOB = Job("mnist", "kubernetes", "tensorflow", (), 100.0, "team", uid="u-1")


def event(reason: str, second: int, **more: Any) -> dict[str, Any]:
    return {
        "type": "Normal",
        "reason": reason,
        "message": f"{reason}\n  said",
        "lastTimestamp": f"2026-01-01T00:00:{second:02}Z",
        "involvedObject": {"kind": "Pod", "name": "mnist-worker-0"},
        **more,
    }


def test_repeated_events_are_one_with_their_count() -> None:
    found = details.cluster_events(
        [event("Pulled", 5, count=3), event("Started", 2), event("Pulled", 9)], 0.0, CLOCK
    )
    assert [(one.reason, one.count) for one in found] == [("Started", 1), ("Pulled", 4)]
    assert found[1].about == "pod/mnist-worker-0"
    assert found[1].message == "Pulled said"


def test_the_newest_events_stay_and_those_of_an_earlier_job_go() -> None:
    events = [event(f"R{second}", second) for second in range(60)]
    (one,) = details.cluster_events([event("x", 50)], 0.0, CLOCK)
    found = details.cluster_events(events, one.since, CLOCK)
    assert [one.reason for one in found] == [f"R{second}" for second in range(50, 60)]
    assert len(details.cluster_events(events, 0.0, CLOCK)) == 20


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"involvedObject": None, "lastTimestamp": 5, "count": "many"},
        {"series": {"lastObservedTime": "2026-01-01T00:00:00.5Z", "count": 7}},
        {"eventTime": "2026-01-01T00:00:00.000000Z", "message": None},
    ],
)
def test_odd_events_are_survived(odd: dict[str, Any]) -> None:
    (one,) = details.cluster_events([odd], 0.0, CLOCK)
    assert one.count == (7 if "series" in odd else 1)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"runPolicy": None},
        {"tfReplicaSpecs": {"Worker": {"template": None}}},
        {"tfReplicaSpecs": {"Worker": {"template": {"spec": {"containers": None}}}}},
        {"tfReplicaSpecs": {"Worker": {"template": {"spec": {}}, "replicas": "many"}}},
    ],
)
def test_odd_objects_are_survived(spec: dict[str, Any]) -> None:
    item = {"kind": "TFJob", "metadata": {"managedFields": []}, "spec": spec}
    assert ("uid", "u-1") in details.facts(JOB, item, "context a")
    details.groups(item)
    assert details.conditions({**item, "status": {"conditions": [{}, "odd"]}}, CLOCK)
    assert "managedFields" not in details.shown(item)["metadata"]


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ({}, []),
        ({"deletionTimestamp": "2026-11-21T11:00:00Z"}, ["yes"]),
        (
            {"deletionTimestamp": "2026-11-21T11:00:00Z", "finalizers": ["example.com/hold"]},
            ["yes, but kept by the finalizer example.com/hold"],
        ),
    ],
)
def test_a_deleted_job_that_is_still_there_says_who_keeps_it(
    meta: dict[str, Any], said: list[str]
) -> None:
    facts = details.facts(JOB, {"metadata": meta, "spec": {}}, "test")
    assert [text for name, text in facts if name == "deleted"] == said


def test_the_shown_object_has_its_spec_once() -> None:
    notes = {"ciao-kernel/submitted": "{}", "other": "kept"}
    item = {"kind": "TFJob", "metadata": {"annotations": notes}, "spec": {}}
    assert details.shown(item)["metadata"]["annotations"] == {"other": "kept"}


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"spec": {"runPolicy": {"ttlSecondsAfterFinished": 60}}}, ["60 s"]),
        ({"spec": {"runPolicy": {}}}, []),
        (
            {
                "spec": {
                    "sshAuthMountPath": "/ciao-ssh",
                    "runPolicy": {"ttlSecondsAfterFinished": 60},
                }
            },
            ["until `ciao delete`"],
        ),
        ({"spec": {"runtimeRef": {"name": "mnist"}}}, ["until `ciao delete`"]),
    ],
)
def test_a_job_that_nothing_deletes_after_its_end_says_so(
    item: dict[str, Any], said: list[str]
) -> None:
    facts = details.facts(JOB, {"metadata": {}, **item}, "test")
    assert [text for name, text in facts if name == "kept when over"] == said
