"""The objects of a job's next try: those of the last one, without what the server added."""

from __future__ import annotations

import asyncio
import copy
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ciao_kernel.backends.kubernetes.apis import job_metadata, template_holder
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.lifecycle import next_objects, resubmission, retries
from ciao_kernel.backends.kubernetes.lifecycle.deletion import Deletions
from ciao_kernel.backends.kubernetes.lifecycle.known_tries import KnownTries
from ciao_kernel.backends.kubernetes.lifecycle.resubmission import Resubmission
from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects
from ciao_kernel.config import Settings
from ciao_kernel.model import Job, Manifest, Replica
from tests.unit.backends.kubernetes.manifests import test_indexed_manifest as indexed
from tests.unit.backends.kubernetes.manifests import test_shared_runtime as shared
from tests.unit.backends.kubernetes.manifests import test_trainer_manifest as trained
from tests.unit.backends.kubernetes.manifests.test_manifest import objects

HEAD = "%framework=tensorflow\n%worker=2\n%retries=3\n"


def on_server(item: Manifest) -> Manifest:
    """An object as the server returns it."""
    found = copy.deepcopy(item)
    found["metadata"] |= {
        "uid": "1",
        "resourceVersion": "5",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{}],
    }
    found["status"] = {"conditions": []}
    if item["kind"] == "Job":
        found["spec"]["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": "1"}}
        found["spec"]["template"]["metadata"]["labels"]["controller-uid"] = "1"
    if item["kind"] == "ConfigMap":
        found["metadata"]["ownerReferences"] = [{"uid": "1"}]
    return found


def again(made: Objects) -> Objects:
    resource = made.path.rpartition("/")[2]
    place = made.path.split("/")[-2]
    job = Job("j", "kubernetes", "tensorflow", (), 0.0, place, resource=resource, uid="1")
    beside = [on_server(one) for one in made.beside]
    return next_objects.objects(on_server(made.job), beside, job, "run-2")


def without_times(made: Objects) -> list[Manifest]:
    """The objects without what a try may change."""
    items = copy.deepcopy([made.job, *made.beside])
    for item in items:
        notes = item["metadata"]["annotations"]
        for name in (job_metadata.RUN, job_metadata.TRY, job_metadata.FIRST_UID):
            notes.pop(name, None)
    return items


def test_a_try_of_the_operators_kind_is_the_same_job() -> None:
    first = objects(HEAD)
    second = again(first)
    assert without_times(second) == without_times(first)
    assert second.path == first.path
    notes = second.job["metadata"]["annotations"]
    assert notes[job_metadata.RUN] == "run-2"
    assert (notes[job_metadata.TRY], notes[job_metadata.FIRST_UID]) == ("2", "1")


def test_a_try_of_an_indexed_job_is_the_same_job() -> None:
    first = indexed.objects(HEAD)
    assert without_times(again(first)) == without_times(first)
    rules = first.job["spec"]["podFailurePolicy"]["rules"]
    assert rules == [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    ]


def test_a_try_of_a_train_job_is_the_same_job_with_the_same_runtime() -> None:
    first = trained.objects(HEAD)
    second = again(first)
    assert [one["kind"] for one in second.beside][-1] == "TrainingRuntime"
    assert second.job["spec"] == first.job["spec"]
    assert second.holder["metadata"]["name"] == first.holder["metadata"]["name"]
    (before, after) = (trained.parts(made)["worker"] for made in (first, second))
    assert before["podFailurePolicy"]["rules"]
    assert after["template"]["metadata"]["annotations"][job_metadata.RUN] == "run-2"
    assert after["template"]["spec"] == before["template"]["spec"]
    changed = on_server(next_objects.with_submitted(first).job)
    changed["spec"]["runtimePatches"] = [{"manager": "kueue.x-k8s.io/manager"}]
    changed["spec"]["suspend"] = False
    assert again(replace(first, job=changed)).job["spec"] == first.job["spec"]
    third = next_objects.with_run(second, "run-3")
    assert "run-2" not in json.dumps([third.job, *third.beside])


@pytest.mark.parametrize(
    "of",
    [objects, indexed.objects, shared.objects],
    ids=["operator", "indexed", "shared runtime"],
)
def test_a_try_has_nothing_of_the_admission_of_the_last_one(of: Any) -> None:
    first = of(HEAD)
    known = next_objects.with_submitted(first)
    changed = copy.deepcopy(known.job)
    for template in template_holder.pod_templates(changed).values():
        template["spec"]["nodeSelector"] = {"flavor": "spot"}
        template["spec"]["tolerations"] = [{"key": "spot", "operator": "Exists"}]
        template["metadata"]["labels"]["kueue.x-k8s.io/podset"] = "worker"
    second = again(replace(known, job=changed))
    assert second.job["spec"] == next_objects.with_run(first, "run-2").job["spec"]
    assert "spot" not in json.dumps(second.job)
    # A job of another version of ciao, or that somebody has changed, is made of its object.
    for text in ("", "[]", "{", '{"other": {}}'):
        changed["metadata"]["annotations"][job_metadata.SUBMITTED] = text
        assert "spot" in json.dumps(again(replace(known, job=changed)).job)


def test_a_further_try_is_found_with_its_number_and_its_first_uid() -> None:
    second = again(objects(HEAD))
    item = on_server(second.job)
    item["metadata"]["uid"] = "2"
    item["metadata"]["annotations"]["ciao-kernel/header"] = HEAD
    job = job_metadata.job(item, 0.0)
    assert (job.retries, job.tries, job.uid, job.first_uid) == (3, 2, "2", "1")


class Slow:
    """A server on which another follower deletes the failed try, and then creates the next.

    Args:
        looks: What it answers, one by one; the last one stays.
    """

    def __init__(self, *looks: Manifest | None) -> None:
        self.looks = list(looks)

    async def find(self, _: str) -> Manifest | None:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


def follower(job: Job, *looks: Manifest | None) -> Job | None:
    """What a follower finds that comes too late to make the next try."""
    target = cast("Target", SimpleNamespace(client=Slow(*looks)))
    work: Any = Resubmission(Deletions(), KnownTries()).again
    settings = Settings(stop_grace=0.0)
    return cast("Job | None", asyncio.run(work(target, job, "/jobs/j", settings, print)))


def test_a_slower_follower_waits_for_the_next_try_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resubmission, "_LOOK", 0.01)
    made = objects(HEAD)
    place, resource = made.path.split("/")[-2:]
    job = Job("j", "kubernetes", "tensorflow", (), 0.0, place, resource=resource, uid="1")
    ending = on_server(made.job)
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:05Z"
    second = on_server(again(made).job)
    second["metadata"]["uid"] = "2"
    found = follower(job, ending, ending, None, None, second)
    assert found is not None
    assert (found.uid, found.tries, found.identity) == ("2", 2, "1")
    third = replace(found, uid="2")
    ending = copy.deepcopy(second)
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:05Z"
    last = copy.deepcopy(second)
    last["metadata"]["uid"] = "3"
    last["metadata"]["annotations"][job_metadata.TRY] = "3"
    found = follower(third, ending, ending, last)
    assert found is not None
    assert (found.uid, found.tries) == ("3", 3)


def test_a_deleted_job_is_not_awaited_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resubmission, "_LOOK", 0.01)
    monkeypatch.setattr(resubmission, "_OTHERS", 0.05)
    place, resource = objects(HEAD).path.split("/")[-2:]
    job = Job("j", "kubernetes", "tensorflow", (), 0.0, place, resource=resource, uid="1")
    assert follower(job, None) is None


def test_a_slow_follower_finds_the_try_whose_record_is_gone() -> None:
    made = objects(HEAD)
    place, resource = made.path.split("/")[-2:]
    job = Job("j", "kubernetes", "tensorflow", (), 0.0, place, resource=resource, uid="1")
    second = on_server(again(made).job)
    second["metadata"]["uid"] = "2"
    removed = list[str]()

    class Gone(Deletions):
        async def remove(self, *args: Any, **_: Any) -> bool:
            removed.append(args[1].uid)
            return False

    class Server:
        def __init__(self, there: Manifest | None) -> None:
            self.there = there

        async def find(self, path: str) -> Manifest | None:
            return None if "configmaps" in path else self.there

    def found(there: Manifest | None) -> Job | None:
        target = cast("Target", SimpleNamespace(client=Server(there)))
        record: Any = SimpleNamespace(before=made.job)
        work: Any = Resubmission(Gone(), KnownTries())._create
        return cast(
            "Job | None",
            asyncio.run(work(target, job, "/jobs/j", again(made), record, Settings(), print)),
        )

    assert (one := found(second)) is not None
    assert (one.uid, one.tries) == ("2", 2)
    assert found(None) is None  # a user has deleted it
    assert removed == ["1", "1"]


def test_each_creation_is_a_submission_of_its_own() -> None:
    made = again(objects(HEAD))
    one, two = (next_objects.with_run(made, run) for run in ("a", "b"))
    assert [job_metadata.run(item) for item in (one.job, *one.beside)] == ["a"] * 2
    assert one != two
    assert without_times(one) == without_times(two) == without_times(made)
    assert job_metadata.run(made.job) == "run-2"


def test_the_logs_of_a_try_are_kept_and_files_of_the_program_stay(tmp_path: Path) -> None:
    for name in ("worker-0.log", "train.log"):
        (tmp_path / name).write_text(name)
    job = Job("j", "kubernetes", "x", (Replica("worker", 0), Replica("worker", 1)), 0.0, tries=2)
    retries._keep_logs(tmp_path, job)
    retries._keep_logs(tmp_path, job)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["train.log", "worker-0.try-2.log"]
