"""From a cell to a TrainJob with a runtime of the cluster."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.apis import (
    TRAINER,
    job_metadata,
    of_item,
    of_pod,
    template_holder,
)
from ciao_kernel.backends.kubernetes.existing import details, pod_program
from ciao_kernel.backends.kubernetes.manifests import (
    indexed_start,
    job_objects,
    manifest,
    pod_security,
    runtime_overrides,
    shared_runtime,
)
from ciao_kernel.backends.kubernetes.manifests.runtime_overrides import Fields
from ciao_kernel.backends.kubernetes.submission import quotas
from ciao_kernel.backends.kubernetes.submission.pod_resources import NO_DEFAULTS
from ciao_kernel.config import Settings
from ciao_kernel.errors import SpecError
from ciao_kernel.model import Artifact, Job, Manifest, Replica
from tests.unit.backends.kubernetes.manifests.test_indexed_manifest import TF, TORCH, plan_of
from tests.unit.backends.kubernetes.manifests.test_manifest import build, source
from tests.unit.backends.kubernetes.manifests.test_trainer_manifest import IMAGE, PLAIN

FIELDS = Fields()
OLDER = Fields(patches=False, deadline=False, grace=False)
"""Trainer 2.1."""
MPI = "%framework=mpi\n%worker=2\n" + IMAGE


def objects(
    text: str,
    fields: Fields = FIELDS,
    *,
    run: str = "run-1",
    artifact: Artifact | None = None,
    **options: Any,
) -> job_objects.Objects:
    plan = plan_of(text)
    job = Job("mnist", "kubernetes", "x", plan.spec.replicas(), 1.0, "team", owner="ada")
    return manifest.objects(
        plan,
        job,
        artifact or build(source()),
        Settings(**options),
        run,
        sleeps=True,
        api=TRAINER,
        fields=fields,
    )


def template(made: job_objects.Objects) -> Manifest:
    """What the job changes in the pods of its runtime."""
    (pod,) = template_holder.pod_templates(made.job).values()
    return pod


def pod(made: job_objects.Objects, index: int) -> Manifest:
    """A pod as Trainer, JobSet and the Job controller make it."""
    meta = template(made)["metadata"]
    notes = {"batch.kubernetes.io/job-completion-index": str(index)}
    labels = {"jobset.sigs.k8s.io/jobset-name": "mnist"}
    labels["jobset.sigs.k8s.io/replicatedjob-name"] = "node"
    return {
        "metadata": {
            "name": f"mnist-node-0-{index}-x",
            "labels": {**meta["labels"], **labels},
            "annotations": {**meta["annotations"], **notes},
            "ownerReferences": [{"kind": "Job", "name": "mnist-node-0", "uid": "of the Job"}],
        }
    }


def told(made: job_objects.Objects) -> Any:
    """The variables in the ConfigMap that the pods mount."""
    mounted = {
        one["configMap"]["name"] for one in template(made)["spec"]["volumes"] if "configMap" in one
    }
    (item,) = (one for one in made.beside if "replicas.json" in one.get("data", {}))
    assert item["metadata"]["name"] in mounted
    return json.loads(item["data"]["replicas.json"])


def test_the_job_names_its_runtime_and_creates_none() -> None:
    made = objects(TF)
    assert made.job["spec"]["runtimeRef"] == {
        "apiGroup": "trainer.kubeflow.org",
        "kind": "ClusterTrainingRuntime",
        "name": "ciao-tensorflow",
    }
    assert {one["kind"] for one in made.beside} == {"ConfigMap"}
    assert made.job["spec"]["trainer"]["numNodes"] == 3
    assert of_item(made.job) is TRAINER
    assert TRAINER.restart_policy(made.job, "worker") == "Never"


def test_the_deciding_replica_is_the_first_of_all_roles() -> None:
    made = objects(TF)
    assert of_pod(pod(made, 0)) is TRAINER
    replicas = [job_metadata.replica(pod(made, index)) for index in range(4)]
    assert replicas == [Replica("worker", 0), Replica("worker", 1), Replica("ps", 0), None]
    assert job_metadata.job_name(pod(made, 0)) == "mnist"
    assert job_metadata.is_part_of(pod(made, 0), "of the TrainJob", "run-1")
    assert not job_metadata.is_part_of(pod(objects(TF, run="run-2"), 0), "of it", "run-1")
    first, _, last = told(made)["replicas"]
    assert (first["CIAO_REPLICA"], last["CIAO_REPLICA"]) == ("worker-0", "ps-0")
    assert json.loads(first["TF_CONFIG"])["cluster"] == {
        "ps": ["mnist-node-0-2.mnist:23456"],
        "worker": ["mnist-node-0-0.mnist:23456", "mnist-node-0-1.mnist:23456"],
    }
    assert told(made)["first"] == "mnist-node-0-0.mnist"
    chief = "%framework=tensorflow\n%ps=1\n%worker=1\n%chief=1\n"
    assert told(objects(chief))["replicas"][0]["CIAO_REPLICA"] == "chief-0"


def test_a_launcher_is_the_first_and_workers_run_their_own_command() -> None:
    made = objects(MPI)
    found = told(made)
    assert found["replicas"][0]["CIAO_REPLICA"] == "launcher-0"
    assert set(found["commands"]) == {"0"}
    served = told(objects(TF + "%chief=1\n%serve=ps,worker\n"))
    assert set(served["commands"]) == {"1", "2", "3"}


@pytest.mark.parametrize("text", [TF, TORCH, MPI, PLAIN])
def test_the_runtime_ends_a_job_at_its_first_failure(text: str) -> None:
    framework = plan_of(text).framework
    (part,) = shared_runtime.runtime(framework)["spec"]["template"]["spec"]["replicatedJobs"]
    job = part["template"]["spec"]
    assert (job["backoffLimit"], job["completionMode"]) == (0, "Indexed")
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    by_first = {"rules": [{"succeededIndexes": "0"}]}
    assert job.get("successPolicy") == (None if text == PLAIN else by_first)


def merged(made: job_objects.Objects) -> Manifest:
    """The pods that Trainer makes: a strategic merge of the job's override into the runtime."""
    base = copy.deepcopy(shared_runtime._template())
    over, trainer = template(made), made.job["spec"]["trainer"]
    spec, (container,) = base["spec"], base["spec"]["containers"]
    (patch,) = over["spec"]["containers"]
    container["volumeMounts"] += patch["volumeMounts"]
    container |= {key: patch[key] for key in patch.keys() - {"volumeMounts", "name"}}
    container |= {"image": trainer["image"], "command": trainer["command"], "env": trainer["env"]}
    if "resourcesPerNode" in trainer:
        container["resources"] = trainer["resourcesPerNode"]
    spec["volumes"] += over["spec"]["volumes"]
    spec |= {k: v for k, v in over["spec"].items() if k not in ("containers", "volumes")}
    return {"metadata": over["metadata"], "spec": spec}


def plain(pod: Manifest) -> Manifest:
    """A pod whose mounts name their volumes' sources: volumes may have other names."""
    spec = copy.deepcopy(pod["spec"])
    volumes = {one["name"]: {**one, "name": ""} for one in spec.pop("volumes")}
    for container in spec["containers"]:
        for mount in container["volumeMounts"]:
            mount["name"] = json.dumps(volumes[mount["name"]])
        container["volumeMounts"].sort(key=lambda one: str(one["mountPath"]))
        if not container.get("resources"):
            container.pop("resources", None)
    return {"metadata": pod["metadata"], "spec": spec}


@pytest.mark.parametrize(
    "more",
    [
        "",
        "%cpu=1\n%memory=1Gi\n%gpu=1\n",
        "%grace=60s\n",
        "%nodeSelector=disk=ssd\n%toleration=gpu=yes:NoSchedule\n%imagePullSecret=registry\n",
        "%labels=team=vision\n%annotations=note=x\n%envvar=A='$(B) $$'\n",
        "%volume=data:in\n%volume=team/runs:runs\n%args=a b\n",
    ],
)
def test_the_runtime_with_what_the_job_changes_has_the_pods_of_a_runtime_of_its_own(
    more: str,
) -> None:
    made = objects(TF + more)
    wanted = next(iter(template_holder.pod_templates(made.holder).values()))
    assert plain(merged(made)) == plain(wanted)


def test_a_volume_has_one_mount_each() -> None:
    """The API keys the mounts of an override by their names."""
    mounts = template(objects(TF + "%volume=data:in\n%volume=team/runs:runs\n"))
    names = [one["name"] for one in mounts["spec"]["containers"][0]["volumeMounts"]]
    assert len(names) == len(set(names))
    assert {one["name"] for one in mounts["spec"]["volumes"]} == set(names)


def test_a_claim_in_two_places_needs_a_runtime_of_its_own() -> None:
    """As one volume the API has no second mount, and as two volumes no kubelet mounts it."""
    with pytest.raises(SpecError, match="cannot set the volume volume-0 of"):
        objects(TF + "%volume=data:in\n%volume=data/runs:runs\n")


def test_files_are_unpacked_before_the_program() -> None:
    """No override can add an init container."""
    made = build(source())
    mount = {"name": "source", "mountPath": "/ciao-packed/files.tar.gz", "subPath": "files.tar.gz"}
    first = {"name": "unpack", "command": ["python", "-c", "print('a b')"], "volumeMounts": [mount]}
    packed = replace(made, init_containers=(first,))
    job = objects(PLAIN + IMAGE, artifact=packed)
    command = job.job["spec"]["trainer"]["command"]
    assert command[:4] == [
        "sh",
        "-c",
        "python -c 'print('\"'\"'a b'\"'\"')' && exec \"$@\"",
        "before",
    ]
    assert command[4:] == objects(PLAIN + IMAGE).job["spec"]["trainer"]["command"]
    (container,) = template(job)["spec"]["containers"]
    running = {**container, "command": command}
    entered = indexed_start.enter(running, ("bash",))
    assert entered == indexed_start.enter({**running, "command": command[4:]}, ("bash",))
    assert mount["mountPath"] in [one["mountPath"] for one in container["volumeMounts"]]
    other = replace(made, init_containers=({**first, "env": [{"name": "A", "value": "b"}]},))
    with pytest.raises(SpecError, match="cannot set the container unpack of"):
        objects(PLAIN + IMAGE, artifact=other)


def test_a_field_that_no_override_has_is_refused() -> None:
    made = objects(TF)
    body = copy.deepcopy(made.holder)
    (pod,) = template_holder.pod_templates(body).values()
    pod["spec"]["runtimeClassName"] = "gvisor"
    pod["spec"]["containers"][0]["stdin"] = True
    with pytest.raises(SpecError) as caught:
        made.with_holder(body)
    assert "cannot set stdin, runtimeClassName of the ClusterTrainingRuntime" in str(caught.value)
    many = "".join(f"%envvar=V{number}=1\n" for number in range(130))
    with pytest.raises(SpecError, match="more than 128 variables"):
        objects(TF + many)


def test_a_restricted_namespace_gets_restricted_pods() -> None:
    made = pod_security.secured(objects(TF))
    assert made.secured
    spec = template(made)["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["containers"][0]["securityContext"]["allowPrivilegeEscalation"] is False
    with pytest.raises(SpecError, match="cannot set securityContext"):
        pod_security.secured(objects(TF, OLDER))


def test_an_older_trainer_has_other_fields() -> None:
    made = objects(TF, OLDER)
    assert "runtimePatches" not in made.job["spec"]
    (override,) = made.job["spec"]["podTemplateOverrides"]
    assert override["targetJobs"] == [{"name": "node"}]
    assert template(made) is override
    assert job_metadata.replica(pod(made, 2)) == Replica("ps", 0)
    with pytest.raises(SpecError, match="activeDeadlineSeconds"):
        objects(TF + "%deadline=1h\n", OLDER)
    assert objects(TF + "%deadline=1h\n").job["spec"]["activeDeadlineSeconds"] == 3600
    with pytest.raises(SpecError, match="cannot set terminationGracePeriodSeconds of"):
        objects(TF, OLDER, stop_grace=300.0)
    objects(TF, OLDER, stop_grace=1.0)


def test_the_answer_to_a_probe_tells_the_version() -> None:
    asked = runtime_overrides.probe("ciao-jax", "team")
    assert runtime_overrides.known(asked) == FIELDS
    assert shared_runtime.name(plan_of("%framework=jax\n").framework) == "ciao-jax"

    def without(*names: str) -> Manifest:
        spec = {key: value for key, value in asked["spec"].items() if key not in names}
        return {**asked, "spec": spec}

    assert runtime_overrides.known(without("podTemplateOverrides")) == FIELDS
    assert runtime_overrides.known(without("runtimePatches", "activeDeadlineSeconds")) == OLDER
    assert runtime_overrides.known(without("runtimePatches", "podTemplateOverrides")) is None
    two = copy.deepcopy(asked)
    (patch,) = two["spec"]["runtimePatches"]
    (job,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    del job["template"]["spec"]["template"]["spec"]
    assert runtime_overrides.known(two) == Fields(grace=False)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ("", ""),
        ("%deadline=1h\n%grace=90s\n%volume=a:b\n%queue=q\n", ""),
        ("%restartPolicy=OnFailure\n", "%restartPolicy"),
        ("%ttl=1h\n", "%ttl"),
        ("%cleanPolicy=none\n", "%cleanPolicy=none"),
        ("%envsecret=a\n", "%envsecret"),
        ("%serviceAccount=a\n", "%serviceAccount"),
        ("%priorityClass=a\n", "%priorityClass"),
        ("%podPatch=a.yaml\n", "%podPatch"),
        ("%warm\n", "%warm"),
        ("%output=a/\n", "%output of files"),
        ("%successPolicy=allWorkers\n", "a success of several replicas that is not that of all"),
        (f"%name={'a' * 45}\n", "a name of that length"),
    ],
)
def test_what_a_runtime_of_others_does_not_allow(more: str, what: str) -> None:
    plan = plan_of(TF + more)
    assert shared_runtime.obstacle(plan, Settings(), FIELDS, restricted=True) == what


def test_what_an_older_trainer_does_not_allow() -> None:
    def obstacle(text: str, fields: Fields = OLDER, *, restricted: bool = False) -> str:
        return shared_runtime.obstacle(plan_of(text), Settings(), fields, restricted=restricted)

    assert obstacle(TF) == obstacle(TF + "%grace=1s\n") == ""
    assert obstacle(TF + "%deadline=1h\n") == "%deadline before Trainer 2.2"
    longer = "a longer grace period before Trainer 2.3"
    assert obstacle(TF + "%grace=1m\n") == longer
    long = Settings(stop_grace=300.0)
    cell = plan_of(TF)
    assert shared_runtime.obstacle(cell, long, OLDER, restricted=False) == longer
    assert shared_runtime.obstacle(cell, long, FIELDS, restricted=False) == ""
    brief = plan_of(TF + "%grace=1s\n")
    assert shared_runtime.obstacle(brief, long, OLDER, restricted=False) == ""
    assert obstacle(TF, restricted=True).startswith("Pod Security's level restricted")
    roles = "%framework=tensorflow\n%ps=1\n%worker=2;%gpu=1\n"
    assert obstacle(roles, FIELDS) == "different resources for each role"
    roles = "%framework=tensorflow\n%ps=1\n%worker=2;%volume=a:b\n"
    assert obstacle(roles, FIELDS) == "different volumes for each role"
    assert obstacle("%framework=pytorch\n%worker=2\n%min=1\n", FIELDS) == "an elastic job"


def test_a_job_is_described_and_counted_like_others() -> None:
    made = objects("%framework=tensorflow\n%ps=1\n%worker=2\n%cpu=1\n")
    groups = {group.role: group for group in details.groups(made.job)}
    assert {role: group.replicas for role, group in groups.items()} == {"ps": 1, "worker": 2}
    assert groups["ps"].image == made.job["spec"]["trainer"]["image"]
    assert groups["ps"].restart_policy == "Never"
    asked = quotas._asks(made, NO_DEFAULTS, {})
    assert (asked["pods"], asked["requests.cpu"]) == (3, 3)
    assert "count/trainingruntimes.trainer.kubeflow.org" not in asked
    assert manifest.shape(made) == manifest.shape(
        objects("%framework=tensorflow\n%ps=1\n%worker=2\n%cpu=1\n", run="run-2")
    )


def test_a_program_in_a_pod_that_unpacks_first_has_the_pods_interpreter() -> None:
    def found(*command: str) -> str:
        container = {"name": "node", "command": list(command)}
        return pod_program._interpreter({"metadata": {}, "spec": {"containers": [container]}}, "?")

    assert found("/opt/python3", "-I") == found("sh", "-c", "x", "before", "/opt/python3", "-I")
    assert found("sh", "-c", "x", "before", "Rscript") == "?"
