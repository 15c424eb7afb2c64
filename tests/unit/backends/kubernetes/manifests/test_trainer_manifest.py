"""From a cell to a TrainJob with its own runtime."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.apis import JOB, TRAINER, job_metadata, of_item, of_pod
from ciao_kernel.backends.kubernetes.manifests import (
    job_objects,
    manifest,
    pod_security,
    trainer_manifest,
)
from ciao_kernel.backends.kubernetes.submission import quotas
from ciao_kernel.backends.kubernetes.submission.pod_resources import NO_DEFAULTS
from ciao_kernel.config import Settings
from ciao_kernel.errors import SpecError
from ciao_kernel.model import Job, Manifest, Replica
from tests.unit.backends.kubernetes.manifests.test_indexed_manifest import TF, TORCH, plan_of
from tests.unit.backends.kubernetes.manifests.test_manifest import build, source

IMAGE = "%image=team/image:1\n"
PLAIN = "%framework=python\n%worker=2\n"


def objects(text: str, run: str = "run-1", **options: Any) -> job_objects.Objects:
    plan = plan_of(text)
    job = Job("mnist", "kubernetes", "x", plan.spec.replicas(), 1.0, "team", owner="ada")
    return manifest.objects(
        plan, job, build(source()), Settings(**options), run, sleeps=True, api=TRAINER
    )


def parts(made: job_objects.Objects) -> dict[str, Manifest]:
    """The Job of each role."""
    found = made.holder["spec"]["template"]["spec"]["replicatedJobs"]
    assert all(one["replicas"] == 1 for one in found)
    return {one["name"]: one["template"]["spec"] for one in found}


def told(made: job_objects.Objects, role: str) -> Any:
    """The variables that the pods of a role find in their file."""
    volumes = parts(made)[role]["template"]["spec"]["volumes"]
    (mounted,) = (one["configMap"] for one in volumes if one["name"] == "replicas")
    (item,) = (one for one in made.beside if one["metadata"]["name"] == mounted["name"])
    (file,) = mounted["items"]
    assert file["path"] == "replicas.json"
    return json.loads(item["data"][file["key"]])


def pod(made: job_objects.Objects, role: str, index: int) -> Manifest:
    """A pod as JobSet and the Job controller make it."""
    meta = parts(made)[role]["template"]["metadata"]
    labels = TRAINER.searches("mnist", Replica(role, index))[0]
    labels = {**labels, "jobset.sigs.k8s.io/replicatedjob-name": role}
    notes = {"batch.kubernetes.io/job-completion-index": str(index)}
    owner = {"kind": "Job", "name": f"mnist-{role}-0", "uid": "of the Job"}
    return {
        "metadata": {
            "name": f"mnist-{role}-0-{index}-x",
            "labels": {**meta["labels"], **labels},
            "annotations": {**meta["annotations"], **notes},
            "ownerReferences": [owner],
        }
    }


def test_a_runtime_of_its_own_has_a_part_for_each_role() -> None:
    made = objects(TF)
    assert made.path == "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs"
    assert made.job["spec"] == {
        "runtimeRef": {
            "apiGroup": "trainer.kubeflow.org",
            "kind": "TrainingRuntime",
            "name": made.holder["metadata"]["name"],
        }
    }
    assert [one["kind"] for one in made.beside] == ["ConfigMap", "ConfigMap", "TrainingRuntime"]
    assert {role: one["completions"] for role, one in parts(made).items()} == {"ps": 1, "worker": 2}
    for one in parts(made).values():
        assert one["backoffLimit"] == 0
        assert one["template"]["spec"]["restartPolicy"] == "Never"
        assert one["template"]["spec"]["containers"][0]["name"] == "node"
    other = objects(TF, run="run-2").holder["metadata"]["name"]
    assert other != made.holder["metadata"]["name"]  # the earlier one may still be ending


def test_a_pod_tells_its_replica_and_its_job() -> None:
    made = objects(TF)
    first, other = pod(made, "worker", 1), pod(objects(TF, run="run-2"), "worker", 1)
    assert of_pod(first) is TRAINER
    assert job_metadata.replica(first) == Replica("worker", 1)
    assert job_metadata.job_name(first) == "mnist"
    assert job_metadata.is_part_of(first, "of the TrainJob", "run-1")
    assert not job_metadata.is_part_of(other, "of the TrainJob", "run-1")
    bare = {"metadata": {"labels": {TRAINER.job_label: "mnist"}, "annotations": {}}}
    assert job_metadata.replica(bare) is None


def test_each_replica_gets_the_variables_of_its_framework() -> None:
    made = objects(TF)
    first = told(made, "ps")["replicas"][0]
    assert (first["CIAO_ROLE"], first["CIAO_INDEX"], first["CIAO_REPLICA"]) == ("ps", "0", "ps-0")
    config = json.loads(told(made, "worker")["replicas"][1]["TF_CONFIG"])
    assert config["task"] == {"type": "worker", "index": 1}
    assert config["cluster"] == {
        "ps": ["mnist-ps-0-0.mnist:23456"],
        "worker": ["mnist-worker-0-0.mnist:23456", "mnist-worker-0-1.mnist:23456"],
    }
    assert told(made, "ps")["first"] == told(made, "worker")["first"] == "mnist-worker-0-0.mnist"
    made = objects(TORCH)
    (worker,) = told(made, "worker")["replicas"]
    assert (worker["RANK"], worker["MASTER_ADDR"]) == ("1", "mnist-master-0-0.mnist")
    (single,) = told(objects("%framework=pytorch\n"), "master")["replicas"]
    assert single["MASTER_ADDR"] == "127.0.0.1"


def test_a_program_in_any_language_reads_the_files_of_its_role() -> None:
    made = objects("%framework=custom\n%worker=2\n%command=sh {cell}\n" + IMAGE)
    volumes = parts(made)["worker"]["template"]["spec"]["volumes"]
    (items,) = (one["configMap"]["items"] for one in volumes if one["name"] == "replicas")
    assert [item["path"] for item in items] == ["0.env", "1.env"]


@pytest.mark.parametrize(
    ("text", "roles", "index"),
    [
        (TF, ["worker"], {"worker": "0"}),
        ("%framework=tensorflow\n%ps=2\n%chief=1\n%worker=2\n", ["chief"], {}),
        (TF + "%successPolicy=allWorkers\n", ["worker"], {}),
        ("%framework=tensorflow\n%worker=1\n", ["worker"], {}),
        (TORCH, ["master"], {}),
        (PLAIN + IMAGE, ["worker"], {}),
    ],
)
def test_the_decider_ends_the_job(text: str, roles: list[str], index: dict[str, str]) -> None:
    made = objects(text)
    policy = made.holder["spec"]["template"]["spec"]["successPolicy"]
    assert policy == {"operator": "All", "targetReplicatedJobs": roles}
    rules = {
        role: one["successPolicy"]["rules"][0]["succeededIndexes"]
        for role, one in parts(made).items()
        if "successPolicy" in one
    }
    assert rules == index


def test_what_only_the_runtime_says_is_noted_in_the_job() -> None:
    usual = objects(TF).job
    assert TRAINER.restart_policy(usual, "worker") == "Never"
    assert not TRAINER.needs_all_workers(usual)
    more = "%restartPolicy=OnFailure\n%backoffLimit=3\n%successPolicy=allWorkers\n"
    made = objects(TF + more)
    assert TRAINER.restart_policy(made.job, "worker") == ""
    assert TRAINER.needs_all_workers(made.job)
    assert {one["backoffLimit"] for one in parts(made).values()} == {3}
    assert TRAINER.roles(made.job) == {"ps": {"replicas": 1}, "worker": {"replicas": 2}}
    assert TRAINER.templates(made.job) == {}


def test_time_limits_reach_the_jobs_of_the_set() -> None:
    made = objects(TF + "%deadline=1h\n")
    # Trainer would make the JobSet of a failed job again when its time is over.
    assert "ttlSecondsAfterFinished" not in made.holder["spec"]["template"]["spec"]
    assert {one["activeDeadlineSeconds"] for one in parts(made).values()} == {3600}


def test_a_restricted_namespace_gets_restricted_pods_of_each_role() -> None:
    made = pod_security.secured(objects(TF))
    assert made.secured
    for one in parts(made).values():
        spec = one["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["containers"][0]["securityContext"]["allowPrivilegeEscalation"] is False
    assert "securityContext" not in str(objects(TF).holder)


def test_jobs_alike_have_one_shape_and_others_another() -> None:
    assert manifest.shape(objects(TF)) == manifest.shape(objects(TF, run="run-2"))
    assert manifest.shape(objects(TF)) != manifest.shape(objects(TF + "%cpu=1\n"))


def test_a_quota_counts_the_pods_of_all_roles_and_the_runtime() -> None:
    made = objects("%framework=tensorflow\n%ps=1\n%worker=2;%cpu=1\n")
    asked = quotas._asks(made, NO_DEFAULTS, {})
    assert (asked["pods"], asked["requests.cpu"]) == (3, 2)
    assert asked["count/trainingruntimes.trainer.kubeflow.org"] == 1
    assert asked["count/trainjobs.trainer.kubeflow.org"] == 1


@pytest.mark.parametrize(
    ("more", "said", "directive"),
    [
        ("%restartPolicy=ExitCode\n", "no restart policy ExitCode", "restartPolicy"),
        ("%cleanPolicy=none\n", "%cleanPolicy=none is not", "cleanPolicy"),
        ("%ttl=1h\n", "a TrainJob has no time to live", "ttl"),
        (f"%name={'a' * 43}\n", "63 characters", "name"),
    ],
)
def test_what_a_train_job_cannot_do_is_refused(more: str, said: str, directive: str) -> None:
    with pytest.raises(SpecError, match=said) as caught:
        trainer_manifest.check(plan_of(TF + more), Settings())
    assert caught.value.directive == directive
    assert ("ciao delete --finished --older" in str(caught.value.hint)) == (directive == "ttl")


def test_a_name_that_fits_is_taken_and_roles_may_ask_for_different_resources() -> None:
    text = f"%framework=tensorflow\n%ps=1\n%worker=2;%gpu=1\n%name={'a' * 42}\n"
    trainer_manifest.check(plan_of(text), Settings())


def test_an_object_is_told_from_those_of_other_apis_by_its_form() -> None:
    made = objects(TF)
    assert of_item(made.job) is of_item(made.holder) is TRAINER
    assert of_item({"spec": {"template": {"spec": {"containers": []}}}}) is JOB
    assert of_item({"spec": {"template": {"spec": {"replicatedJobs": "odd"}}}}) is JOB


def test_only_the_program_fails_an_elastic_job() -> None:
    """A sidecar of a lost replica may end with any code; Kubernetes refuses an unknown name."""
    for one in parts(objects("%framework=pytorch\n%worker=2\n%min=1\n")).values():
        _, failed = one["podFailurePolicy"]["rules"]
        (container,) = one["template"]["spec"]["containers"]
        assert failed["onExitCodes"]["containerName"] == container["name"]
