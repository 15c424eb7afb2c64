"""Manifests of jobs that another scheduler starts as a whole, for each API."""

from __future__ import annotations

from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.apis import (
    JOB,
    MPI_OPERATOR,
    OPERATOR_V1,
    TRAINER,
    Api,
    template_holder,
)
from ciao_kernel.backends.kubernetes.manifests import gangs, job_objects
from ciao_kernel.config import Settings
from ciao_kernel.errors import SettingError, SpecError, UsageError
from tests.unit.backends.kubernetes.manifests.test_indexed_manifest import plan_of
from tests.unit.backends.kubernetes.manifests.test_manifest import objects

TF = "%framework=tensorflow\n%ps=1\n%worker=2\n"
ELASTIC = "%framework=pytorch\n%worker=4\n%min=2\n%max=6\n"
MPI = "%framework=mpi\n%worker=2\n%image=team/image:1\n"
NAMED = "scheduler-plugins-scheduler"


def made(text: str, api: Api, scheduler: str, queue: str = "") -> job_objects.Objects:
    return objects(text, api=api, gang_scheduler=scheduler, gang_queue=queue)


def pods(of: job_objects.Objects) -> list[Any]:
    return list(template_holder.pod_templates(of.holder).values())


@pytest.mark.parametrize(("text", "members"), [
    ("%framework=python\n%worker=1\n", 1), (TF, 3), (ELASTIC, 2),
    ("%framework=pytorch\n%worker=4\n%max=6\n", 1), (MPI, 3),
])  # fmt: skip
def test_the_members_are_the_replicas_without_which_nothing_begins(text: str, members: int) -> None:
    assert gangs.members(plan_of(text).spec) == members


@pytest.mark.parametrize("scheduler", ["volcano", NAMED])
@pytest.mark.parametrize(("api", "text", "members"), [
    (OPERATOR_V1, TF, 3), (OPERATOR_V1, ELASTIC, 2), (OPERATOR_V1, MPI, 3),
    (MPI_OPERATOR, MPI, 3),
])  # fmt: skip
def test_a_kind_of_an_operator_has_a_scheduling_policy(
    api: Api, text: str, members: int, scheduler: str
) -> None:
    found = made(text, api, scheduler)
    assert found.job["spec"]["runPolicy"]["schedulingPolicy"] == {"minAvailable": members}
    assert {one["spec"]["schedulerName"] for one in pods(found)} == {scheduler}


def test_an_operator_tells_volcano_the_queue() -> None:
    policy = made(TF, OPERATOR_V1, "volcano", "team").job["spec"]["runPolicy"]["schedulingPolicy"]
    assert policy == {"minAvailable": 3, "queue": "team"}


def test_an_operator_tells_volcano_the_priority_of_the_pods() -> None:
    found = made(TF + "%priorityClass=low\n", OPERATOR_V1, "volcano")
    policy = found.job["spec"]["runPolicy"]["schedulingPolicy"]
    assert policy == {"minAvailable": 3, "priorityClass": "low"}
    assert {one["spec"]["priorityClassName"] for one in pods(found)} == {"low"}


@pytest.mark.parametrize(("scheduler", "policy"), [("volcano", "volcano"), (NAMED, "coscheduling")])
def test_a_runtime_of_trainer_has_a_pod_group_policy(scheduler: str, policy: str) -> None:
    found = made(TF, TRAINER, scheduler)
    assert found.holder["spec"]["podGroupPolicy"] == {policy: {}}
    assert "metadata" not in found.holder["spec"]["template"]
    assert len(pods(found)) == 2
    assert {one["spec"]["schedulerName"] for one in pods(found)} == {scheduler}


def test_trainer_reads_volcanos_queue_from_the_template_of_the_jobset() -> None:
    template = made(TF, TRAINER, "volcano", "team").holder["spec"]["template"]
    notes = {"scheduling.volcano.sh/queue-name": "team"}
    assert template["metadata"] == {"annotations": notes}
    assert len(template["spec"]["replicatedJobs"]) == 2


def test_volcano_reads_the_gang_of_an_indexed_job_from_annotations() -> None:
    found = made(TF, JOB, "volcano", "team")
    (pod,) = pods(found)
    assert found.job["metadata"]["annotations"]["scheduling.volcano.sh/group-min-member"] == "3"
    assert pod["metadata"]["annotations"]["scheduling.volcano.sh/queue-name"] == "team"
    assert pod["spec"]["schedulerName"] == "volcano"


def test_the_users_annotations_count() -> None:
    own = {"scheduling.volcano.sh/group-min-member": "2", "scheduling.volcano.sh/queue-name": "own"}
    words = " ".join(f"{key}={value}" for key, value in own.items())
    found = made(f"{TF}%annotations={words}\n", JOB, "volcano", "team")
    (pod,) = pods(found)
    for meta in (found.job["metadata"], pod["metadata"]):
        assert own.items() <= meta["annotations"].items()


@pytest.mark.parametrize("api", [OPERATOR_V1, TRAINER, JOB], ids=lambda api: api.name)
def test_without_the_setting_nothing_names_a_scheduler(api: Api) -> None:
    found = objects(TF, api=api)
    text = repr([found.job, *found.beside])
    for word in ("schedul", "podGroup", "volcano"):
        assert word not in text


@pytest.mark.parametrize(
    ("scheduler", "queue", "api", "runtime", "kind", "message"),
    [
        (NAMED, "", JOB, "", SpecError, "an Indexed Job has no field for the scheduler"),
        ("volcano", "", TRAINER, "torch-distributed", SpecError, "that runtime alone says how"),
        (NAMED, "team", OPERATOR_V1, "", SettingError, "gangQueue is team, a queue of Volcano"),
        ("", "team", OPERATOR_V1, "", SettingError, "the setting gangScheduler is empty"),
    ],
)
def test_what_has_no_field_is_refused(
    scheduler: str, queue: str, api: Api, runtime: str, kind: type[UsageError], message: str
) -> None:
    settings = Settings(gang_scheduler=scheduler, gang_queue=queue)
    with pytest.raises(kind) as error:
        gangs.check(settings, api, runtime)
    assert message in error.value.message
    assert "ciao config gang" in error.value.hint


@pytest.mark.parametrize(
    ("scheduler", "api"),
    [("", JOB), ("volcano", JOB), (NAMED, TRAINER), (NAMED, OPERATOR_V1), (NAMED, MPI_OPERATOR)],
)
def test_what_has_a_field_is_accepted(scheduler: str, api: Api) -> None:
    gangs.check(Settings(gang_scheduler=scheduler), api, "")
