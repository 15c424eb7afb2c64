"""What somebody else changed in a job, in words."""

from __future__ import annotations

from typing import Any

from ciao_kernel.backends.kubernetes.following.spec_changes import author, between


def job(workers: int = 2, image: str = "a", **policy: Any) -> dict[str, Any]:
    worker = {"replicas": workers, "template": {"spec": {"containers": [{"image": image}]}}}
    return {"spec": {"tfReplicaSpecs": {"Worker": worker}, "runPolicy": policy}}


def test_nothing_is_said_of_what_is_the_same_or_no_object() -> None:
    assert between(job(), job()) == []
    assert between(job(), {"spec": None}) == []
    assert between({}, job()) == []


def test_each_change_is_a_sentence() -> None:
    assert between(job(2), job(3)) == ["worker was scaled from 2 to 3"]
    assert between(job(), job(image="b")) == ["the pod template of worker was changed"]
    assert between(job(), job(suspend=True)) == [
        "it is suspended, and its pods are deleted until it is resumed"
    ]
    assert between(job(suspend=True), job(suspend=False)) == ["it is resumed"]
    assert between(job(), job(backoffLimit=3)) == ["backoffLimit was changed from unset to 3"]
    assert between({"spec": {"x": 1}}, {"spec": {"x": "y" * 100}}) == [
        "x was changed from 1 to " + "y" * 59 + "…"
    ]


def test_an_indexed_job_is_scaled_by_two_numbers_that_are_one() -> None:
    def indexed(completions: int, parallelism: int) -> dict[str, Any]:
        return {"spec": {"completions": completions, "parallelism": parallelism}}

    assert between(indexed(2, 2), indexed(3, 3)) == ["it was scaled from 2 to 3 replicas"]
    assert between(indexed(2, 2), indexed(2, 1)) == ["parallelism was changed from 2 to 1"]


def test_a_role_that_comes_or_goes_is_scaled() -> None:
    without: dict[str, Any] = {"spec": {"tfReplicaSpecs": {}, "runPolicy": {}}}
    assert between(job(2), without) == ["worker was scaled from 2 to 0"]
    assert between(without, job(1)) == ["worker was scaled from 0 to 1"]


def test_the_author_is_who_wrote_the_spec_last() -> None:
    fields = [
        {"manager": "ciao", "time": "2026-01-01T00:00:00Z"},
        {"manager": "kubectl-edit", "time": "2026-01-01T00:00:09Z"},
        {"manager": "training-operator", "time": "2026-01-01T00:01:00Z", "subresource": "status"},
    ]
    after = {"metadata": {"managedFields": fields}}
    assert author({}, after) == "kubectl-edit"
    assert author({"metadata": {}}, {"metadata": {}}) == ""
    # Two writers of one second: who was there before is not the one.
    same = [{**one, "time": "2026-01-01T00:00:00Z"} for one in fields]
    before = {"metadata": {"managedFields": same[:1]}}
    assert author(before, {"metadata": {"managedFields": same}}) == "kubectl-edit"


def test_who_loses_fields_to_the_author_is_not_the_author() -> None:
    """The API server shortens the entry of who set these fields before, and keeps its time."""
    second = "2026-01-01T00:00:00Z"
    ours = {"manager": "ciao", "operation": "Update", "time": second, "fieldsV1": {"f:suspend": {}}}
    kueue = {"manager": "kueue", "operation": "Update", "time": second}
    before = {"metadata": {"managedFields": [ours]}}
    for order in ([{**ours, "fieldsV1": {}}, kueue], [kueue, {**ours, "fieldsV1": {}}]):
        assert author(before, {"metadata": {"managedFields": order}}) == "kueue"
    again = {**ours, "fieldsV1": {"f:replicas": {}}}
    assert author(before, {"metadata": {"managedFields": [again]}}) == "ciao"
