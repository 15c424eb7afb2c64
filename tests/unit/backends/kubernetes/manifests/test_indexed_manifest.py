"""From a cell to an Indexed Job."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.apis import JOB, OPERATOR_V1, job_metadata, of_item
from ciao_kernel.backends.kubernetes.manifests import (
    indexed_manifest,
    indexed_rules,
    indexed_start,
    job_objects,
    manifest,
    pod_security,
    replica_variables,
)
from ciao_kernel.backends.kubernetes.submission import quotas
from ciao_kernel.backends.kubernetes.submission.pod_resources import NO_DEFAULTS
from ciao_kernel.config import Settings
from ciao_kernel.errors import DirectiveError, SpecError
from ciao_kernel.magics import parse
from ciao_kernel.model import Job, Manifest, Owner, Replica
from ciao_kernel.plugins import Plan
from tests.unit.backends.kubernetes.manifests.test_manifest import REGISTRY, build, source

TF = "%framework=tensorflow\n%ps=1\n%worker=2\n"
TORCH = "%framework=pytorch\n%worker=1\n"


def plan_of(text: str) -> Plan:
    parsed = parse.parse(text + "print()\n", REGISTRY.table)
    framework = REGISTRY.framework(parsed.spec.framework)
    spec = framework.complete(parsed.spec)
    return Plan(spec.name, spec, framework, source(), Path("/"), "header\n", Owner("ada"))


def objects(text: str, **options: Any) -> job_objects.Objects:
    plan = plan_of(text)
    job = Job("mnist", "kubernetes", "x", plan.spec.replicas(), 1.0, "team", owner="ada")
    return manifest.objects(
        plan, job, build(source()), Settings(**options), "run-1", sleeps=True, api=JOB
    )


def told(made: job_objects.Objects) -> Any:
    """The variables in the ConfigMap that the pods mount."""
    spec = made.job["spec"]["template"]["spec"]
    mounted = {one["configMap"]["name"] for one in spec["volumes"] if "configMap" in one}
    (item,) = (one for one in made.beside if "replicas.json" in one.get("data", {}))
    assert item["metadata"]["name"] in mounted
    return json.loads(item["data"]["replicas.json"])


def pod(made: job_objects.Objects, index: int) -> Manifest:
    """A pod as the Job controller makes it."""
    meta = made.job["spec"]["template"]["metadata"]
    notes = {**meta["annotations"], "batch.kubernetes.io/job-completion-index": str(index)}
    return {"metadata": {**meta, "name": f"mnist-{index}-x", "annotations": notes}}


def test_one_job_has_the_replicas_of_all_roles() -> None:
    made = objects(TF)
    assert made.path == "/apis/batch/v1/namespaces/team/jobs"
    spec = made.job["spec"]
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (3, 3, "Indexed")
    assert spec["backoffLimit"] == 0
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert [one["kind"] for one in made.beside] == ["ConfigMap", "ConfigMap", "Service"]
    replicas = [job_metadata.replica(pod(made, index)) for index in range(4)]
    assert replicas == [Replica("ps", 0), Replica("worker", 0), Replica("worker", 1), None]
    assert {job_metadata.job_name(pod(made, index)) for index in range(3)} == {"mnist"}


def test_each_replica_gets_the_variables_of_its_framework() -> None:
    first, *_, last = told(objects(TF))["replicas"]
    assert (first["CIAO_ROLE"], first["CIAO_INDEX"], first["CIAO_REPLICA"]) == ("ps", "0", "ps-0")
    config = json.loads(last["TF_CONFIG"])
    assert config["task"] == {"type": "worker", "index": 1}
    assert config["cluster"] == {
        "ps": ["mnist-0.mnist:23456"],
        "worker": ["mnist-1.mnist:23456", "mnist-2.mnist:23456"],
    }
    ranks = [(one["RANK"], one["MASTER_ADDR"]) for one in told(objects(TORCH))["replicas"]]
    assert ranks == [("0", "mnist-0.mnist"), ("1", "mnist-0.mnist")]


def test_the_users_variables_win_as_on_this_machine() -> None:
    assert "RANK" not in told(objects(TORCH + "%envvar=RANK=7\n"))["replicas"][0]


def test_a_single_replica_needs_no_name() -> None:
    made = objects("%framework=pytorch\n%master=1\n")
    assert [one["kind"] for one in made.beside] == ["ConfigMap", "ConfigMap"]
    assert told(made)["replicas"][0]["MASTER_ADDR"] == "127.0.0.1"
    assert told(made)["first"] == ""


@pytest.mark.parametrize(
    ("text", "deciding", "first"),
    [
        (TF, "1", "mnist-1.mnist"),
        ("%framework=tensorflow\n%ps=2\n%chief=1\n%worker=1\n", "2", "mnist-2.mnist"),
        (TF + "%successPolicy=allWorkers\n", "1-2", "mnist-1.mnist"),
        (
            TF.replace("%worker=2", "%worker=1") + "%successPolicy=allWorkers\n",
            "1",
            "mnist-1.mnist",
        ),
        (TORCH, "0", "mnist-0.mnist"),
    ],
)
def test_the_decider_ends_the_job(text: str, deciding: str, first: str) -> None:
    made = objects(text)
    assert made.job["spec"]["successPolicy"] == {"rules": [{"succeededIndexes": deciding}]}
    assert told(made)["first"] == first
    # The name of a replica that may end before the others is not waited for so long.
    assert told(made)["patience"] == (60 if "allWorkers" in text else 600)
    assert JOB.needs_all_workers(made.job) is ("-" in deciding)


@pytest.mark.parametrize("framework", ["jax", "paddle", "python"])
def test_programs_that_connect_at_once_wait_for_the_first_replica(framework: str) -> None:
    made = objects(f"%framework={framework}\n%worker=3\n")
    assert made.job["spec"]["successPolicy"] == {"rules": [{"succeededIndexes": "0,1,2"}]}
    assert told(made)["first"] == "mnist-0.mnist"
    assert told(made)["patience"] == 60  # it may have ended


def test_the_command_of_the_framework_follows_the_start() -> None:
    made = objects(TF + "%args='$(HOME)'\n%deadline=1h\n%ttl=5m\n")
    (container,) = made.job["spec"]["template"]["spec"]["containers"]
    assert container["command"][:4] == ["python3", "-I", "-S", "-c"]
    assert container["command"][5:] == ["python3", "-u", "/ciao/ciao_cell.py", "$$(HOME)"]
    assert "$" not in container["command"][4]
    assert job_metadata.container(pod(made, 0)) == container["name"]
    assert made.job["spec"]["activeDeadlineSeconds"] == 3600
    assert made.job["spec"]["ttlSecondsAfterFinished"] == 300


@pytest.mark.parametrize("text", [TF, "%framework=custom\n%worker=3\n%image=i\n%command=prog\n"])
def test_a_command_in_a_running_replica_has_its_variables(tmp_path: Path, text: str) -> None:
    made = objects(text)
    (container,) = made.job["spec"]["template"]["spec"]["containers"]
    for item in made.beside:
        for name, content in item.get("data", {}).items():
            (tmp_path / name).write_text(content)

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        words = indexed_start.enter(container, command)
        here = [word.replace("/ciao-replicas", str(tmp_path)) for word in words]
        env = {"JOB_COMPLETION_INDEX": "2", "PATH": os.environ["PATH"]}
        return subprocess.run(here, env=env, capture_output=True, text=True, check=False)

    shows = run("sh", "-c", 'echo "$CIAO_REPLICA $1 $TF_CONFIG$RANK"', "sh", "$(a) b")
    replica = "worker-1" if text == TF else "worker-2"
    assert shows.stdout.startswith(f"{replica} $(a) b "), shows
    assert len(shows.stdout.split()) == 4
    missing = run("no-such-program")
    assert missing.returncode == 127
    assert "no-such-program" in missing.stderr
    assert "Traceback" not in missing.stderr


def test_a_command_in_another_pod_is_left_as_it_is() -> None:
    container = {"command": ["python3", "-I", "-S", "-c", "x"], "volumeMounts": [{"name": "a"}]}
    assert indexed_start.enter(container, ["ls", "$x"]) == ("ls", "$x")
    assert indexed_start.enter({}, ["ls"]) == ("ls",)


def test_replicas_that_serve_have_a_command_of_their_own() -> None:
    made = objects(TF + "%serve=ps,worker\n")
    (container,) = made.job["spec"]["template"]["spec"]["containers"]
    assert container["command"][5:] == ["python3", "-u", "/ciao/ciao_cell.py"]  # of the chief
    commands = told(made)["commands"]
    assert sorted(commands) == ["0", "2", "3"]
    assert all("tf.distribute.Server(" in one[-1] for one in commands.values())
    assert made.job["spec"]["successPolicy"] == {"rules": [{"succeededIndexes": "1"}]}
    assert made.job["metadata"]["annotations"]["ciao-kernel/endless"] == "ps worker"
    assert told(objects(TF))["commands"] == {}


def test_replicas_that_serve_keep_files_of_output_as_the_others_do() -> None:
    made = objects(TF + "%serve=ps,worker\n%output=a$b/\n")
    (container,) = made.job["spec"]["template"]["spec"]["containers"]
    chief = [word.replace("$$", "$") for word in container["command"]][5:]
    prefix = chief[: chief.index("--") + 1]
    assert "a$b/" in prefix
    commands = told(made)["commands"]
    assert sorted(commands) == ["0", "2", "3"]
    plain = told(objects(TF + "%serve=ps,worker\n"))["commands"]
    assert commands == {index: prefix + command for index, command in plain.items()}


def test_a_job_with_restarts_has_no_limit_unless_the_cell_names_one() -> None:
    spec = objects(TF + "%restartPolicy=OnFailure\n").job["spec"]
    assert spec["backoffLimit"] == 2**31 - 1
    assert spec["template"]["spec"]["restartPolicy"] == "OnFailure"
    spec = objects(TF + "%restartPolicy=OnFailure\n%backoffLimit=3\n").job["spec"]
    assert spec["backoffLimit"] == 3
    assert JOB.restart_policy({"spec": spec}, "worker") == ""


def test_the_object_tells_which_job_it_is() -> None:
    made = objects(TF)
    assert of_item(made.job) is JOB
    job = job_metadata.job(made.job, 5.0, "jobs")
    assert [str(one) for one in job.replicas] == ["ps-0", "worker-0", "worker-1"]
    roles = JOB.roles(made.job)
    assert {role: one["replicas"] for role, one in roles.items()} == {"ps": 1, "worker": 2}
    assert JOB.restart_policy(made.job, "worker") == "Never"
    assert of_item({"spec": {"tfReplicaSpecs": {}}}) is OPERATOR_V1


def test_a_quota_counts_one_service_and_every_pod() -> None:
    asks = quotas._asks(objects(TF + "%cpu=2\n"), NO_DEFAULTS, {})
    counted = ("pods", "services", "configmaps", "count/jobs.batch", "limits.cpu")
    assert [int(asks[name]) for name in counted] == [3, 1, 2, 1, 6]


def test_privileges_are_given_up_in_the_one_template() -> None:
    spec = pod_security.secured(objects(TF)).job["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True


@pytest.mark.parametrize(
    ("lines", "directive", "message"),
    [
        ("%ps=1\n%worker=2;%gpu=1\n", "gpu", "%gpu differs between ps and worker"),
        ("%ps=1\n%worker=2;%volume=a:b\n", "volume", "%volume differs between ps and worker"),
        ("%worker=2\n%restartPolicy=ExitCode\n", "restartPolicy", "no restart policy ExitCode"),
        ("%worker=2\n%cleanPolicy=none\n", "cleanPolicy", "%cleanPolicy=none is not possible"),
        ("%worker=900\n", "worker", "which holds 1 MiB"),
    ],
)
def test_what_only_the_operator_can_do_is_refused(lines: str, directive: str, message: str) -> None:
    plan = plan_of("%framework=tensorflow\n" + lines)
    with pytest.raises(SpecError) as caught:
        indexed_manifest.check(plan, Settings())
    assert message in caught.value.message
    assert caught.value.directive == directive


def test_a_replica_of_an_elastic_job_that_was_ended_is_started_again() -> None:
    """And a program that fails is not, as with ExitCode of the operator."""
    plan = plan_of("%framework=pytorch\n%worker=2\n%min=1\n")
    plan = replace(plan, spec=plan.framework.complete(plan.spec))
    indexed_manifest.check(plan, Settings())
    rules = indexed_rules.job_rules(plan, 2, "program")
    assert rules["backoffLimit"] > 1000
    lost, failed = rules["podFailurePolicy"]["rules"]
    assert lost["action"] == "Ignore"
    assert failed["action"] == "FailJob"
    assert {1, 127} <= set(failed["onExitCodes"]["values"])
    assert not {0, 128, 143} & set(failed["onExitCodes"]["values"])
    # An injected sidecar of a lost replica may end with 1.
    assert failed["onExitCodes"]["containerName"] == "program"
    # A policy for failed pods allows no restart in place.
    job = Job("mnist", "kubernetes", "x", plan.spec.replicas(), 1.0, "team", owner="ada")
    made = manifest.objects(plan, job, build(source()), Settings(), "run-1", sleeps=True, api=JOB)
    template = made.job["spec"]["template"]["spec"]
    assert template["restartPolicy"] == "Never"
    # Kubernetes refuses a rule for a container that the pod does not have.
    assert "program" in {one["name"] for one in template["containers"]}


def test_an_elastic_job_can_be_scaled_to_its_limit() -> None:
    """Its pods have one template, and the job changes nothing of what they know."""
    header = "%framework=pytorch\n%worker={}\n%max=3\n"
    made = objects(header.format(2))
    assert (made.job["spec"]["completions"], made.job["spec"]["parallelism"]) == (2, 2)
    assert job_metadata.job(made.job, 5.0, "jobs").replicas == (
        Replica("worker", 0), Replica("worker", 1),
    )  # fmt: skip
    assert JOB.replica(pod(made, 2)) == Replica("worker", 2)
    assert JOB.replica(pod(made, 3)) is None
    first, _, added = told(made)["replicas"]
    assert first["PET_NNODES"] == added["PET_NNODES"] == "1:3"
    assert added["PET_LOCAL_ADDR"] == "mnist-2.mnist"
    assert added["CIAO_REPLICA"] == "worker-2"
    scaled = {**made.job, "spec": {**made.job["spec"], "completions": 3, "parallelism": 3}}
    assert JOB.roles(scaled)["worker"]["replicas"] == 3
    # One that begins alone has a name, by which others can find it.
    alone = objects(header.format(1))
    assert told(alone)["first"] == "mnist-0.mnist"
    assert "Service" in {one["kind"] for one in alone.beside}


def test_only_the_launcher_has_variables_that_name_all_workers() -> None:
    header = "%framework=mpi\n%image=a/b:1\n%worker=300\n"
    indexed_manifest.check(plan_of(header), Settings())
    *workers, launcher = told(objects(header))["replicas"]
    hosts = [f"mnist-{index}.mnist" for index in range(300)]
    assert launcher["CIAO_REPLICA"] == "launcher-0"
    assert all(host in json.dumps(launcher) for host in hosts)
    assert len(workers) == 300
    named = [[host for host in hosts if host in json.dumps(one)] for one in workers]
    assert named == [[]] * 300


def test_host_names_fit_into_their_limit() -> None:
    header = "%framework=pytorch\n%worker=999\n%name="
    plan = plan_of(f"{header}{'a' * 45}\n")
    indexed_manifest.check(plan, Settings())
    with pytest.raises(DirectiveError, match="at most 45"):
        plan_of(f"{header}{'a' * 46}\n")
    # A plan may get its name from elsewhere, and a job may get a number behind that name.
    longest = replace(plan, name="a" * 55)
    indexed_manifest.check(longest, Settings())
    known = replica_variables.addresses(f"{longest.name}-999", plan.spec.replicas())
    label = known[plan.spec.replicas()[-1]].host.partition(".")[0]
    assert label == f"{longest.name}-999-999"
    assert len(label) <= 63
    with pytest.raises(SpecError) as caught:
        indexed_manifest.check(replace(plan, name="a" * 56), Settings())
    assert caught.value.directive == "name"


def test_resources_for_all_roles_are_accepted() -> None:
    text = "%framework=tensorflow\n%gpu=1\n%ps=1\n%worker=2\n"
    indexed_manifest.check(plan_of(text), Settings())
    (container,) = objects(text).job["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}


def test_roles_with_equal_volumes_and_a_launcher_need_one_template() -> None:
    text = "%framework=tensorflow\n%ps=1;%volume=a:x b:y\n%worker=2;%volume=b:y a:x\n"
    indexed_manifest.check(plan_of(text), Settings())
    spec = objects(text).job["spec"]["template"]["spec"]
    places = [one["mountPath"] for one in spec["containers"][0]["volumeMounts"]]
    assert {"/ciao/x", "/ciao/y"} <= set(places)
    mpi = "%framework=mpi\n%image=a/b:1\n%worker=2;%volume=a:x\n"
    indexed_manifest.check(plan_of(mpi), Settings())
    with pytest.raises(SpecError, match="%volume differs between worker and launcher"):
        indexed_manifest.check(plan_of(f"{mpi}%launcher=1;%volume=c:z\n"), Settings())
