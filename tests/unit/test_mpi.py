"""What MPI's framework makes of a spec."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.apis import (
    JOB,
    MPI_OPERATOR,
    OPERATOR_V1,
    job_metadata,
    of_item,
    of_resource,
    resource_of,
    template_holder,
)
from ciao_kernel.backends.kubernetes.lifecycle import next_objects, suspension
from ciao_kernel.backends.kubernetes.states import job_status
from ciao_kernel.errors import SpecError
from ciao_kernel.frameworks import mpi_ssh, mpirun
from ciao_kernel.model import Gpu, Job, Replica, Resources
from ciao_kernel.plugins import replica_command
from tests.unit.backends.kubernetes.manifests.test_manifest import objects
from tests.unit.test_frameworks import ARTIFACT, spec

WORKERS = (Replica("worker", 0), Replica("worker", 1))
LAUNCHER = Replica("launcher", 0)


def test_the_launcher_decides_and_is_always_there() -> None:
    framework, job = spec("%framework=mpi %worker=2")
    assert (job.replicas(), framework.decider(job)) == ((*WORKERS, LAUNCHER), LAUNCHER)
    framework, job = spec("%framework=mpi")
    assert job.replicas() == (WORKERS[0], LAUNCHER)


def test_the_launcher_takes_nothing_of_the_workers_resources() -> None:
    _, job = spec("%framework=mpi %cpu=4 %memory=8Gi %gpu=2 %worker=2")
    assert job.asks("worker") == Resources("4", "8Gi", Gpu(2))
    assert job.asks("launcher") == Resources(gpu=Gpu(0))
    _, job = spec("%framework=mpi %cpu=4 %worker=2")
    assert job.asks("launcher") == Resources()


def test_values_come_back_and_files_do_not() -> None:
    _, job = spec("%framework=mpi %output=loss,accuracy")
    assert job.output_names == ("loss", "accuracy")
    with pytest.raises(SpecError, match="files do not come back from an MPI job"):
        spec("%framework=mpi %output=loss,model/")


def test_the_launcher_runs_mpirun_and_workers_wait() -> None:
    framework, job = spec("%framework=mpi %worker=2 %slots=3 %args=--x")
    assert replica_command(framework, job, ARTIFACT, "worker") == mpirun.wait("/env/bin/python")
    python, *run = replica_command(framework, job, ARTIFACT, "launcher")
    rank = framework.command(job, ARTIFACT)
    assert (python, run[:2]) == ("/env/bin/python", ["-u", "-c"])
    assert run[3:] == ["2", "3", *rank]
    compile(run[2], "the launcher", "exec")
    compile(rank[3], "a rank", "exec")
    assert rank[4:] == ("/job/cell.py", "--x")


def rendered(header: str) -> dict[str, Any]:
    return objects(f"%framework=mpi\n%image=i\n{header}").job["spec"]


def test_an_mpijob() -> None:
    made = rendered("%worker=2\n%slots=3\n%gpu=1\n%envvar=OMPI_MCA_btl=tcp,self\n")
    # The operator would delete workers before their last lines are read.
    assert made["runPolicy"]["cleanPodPolicy"] == "None"
    assert made["slotsPerWorker"] == 3
    roles = made["mpiReplicaSpecs"]
    assert {role: (one["replicas"], one["restartPolicy"]) for role, one in roles.items()} == {
        "Worker": (2, "Never"),
        "Launcher": (1, "Never"),
    }
    launcher, worker = (roles[role]["template"]["spec"] for role in ("Launcher", "Worker"))
    assert launcher["automountServiceAccountToken"] is True  # it runs commands in the workers
    assert worker["automountServiceAccountToken"] is False
    assert worker["shareProcessNamespace"] is False  # else the first process is not the worker's
    first = {role: pod["containers"][0] for role, pod in (("l", launcher), ("w", worker))}
    assert "limits" not in first["l"]["resources"]
    assert first["w"]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert first["w"]["command"][:2] == ["sh", "-c"]
    assert "$" not in re.sub(r"\$\$", "", " ".join(first["w"]["command"]))
    for one in first.values():
        env = {each["name"]: each.get("value") for each in one["env"]}
        assert env["OMPI_MCA_btl"] == "tcp,self"
        assert env["PRTE_MCA_plm_ssh_agent"] == env["CIAO_MPI_AGENT"]
        assert env["CIAO_MPI_EXEC"] == "/etc/mpi/kubexec.sh"
        assert env["PRTE_MCA_prte_default_hostfile"] == "/etc/mpi/hostfile"
    assert {"name": "CIAO_INDEX", "value": "0"} in first["l"]["env"]


def test_an_mpijob_of_mpi_operator() -> None:
    made = objects("%framework=mpi\n%image=i\n%worker=2\n%slots=3\n", api=MPI_OPERATOR)
    assert made.path == "/apis/kubeflow.org/v2beta1/namespaces/team/mpijobs"
    assert resource_of(made.path) == "mpijobs.v2beta1.kubeflow.org"
    assert of_item(made.job) is of_resource(resource_of(made.path)) is MPI_OPERATOR
    one = job_metadata.path("team", resource_of(made.path), "mnist")
    assert one == f"{made.path}/mnist"
    spec = made.job["spec"]
    assert spec["slotsPerWorker"] == 3
    assert spec["runPolicy"]["backoffLimit"] == 0  # the launcher's Job would start again
    assert spec["runPolicy"]["cleanPodPolicy"] == "None"
    for role, one in spec["mpiReplicaSpecs"].items():
        meta, pod = one["template"]["metadata"], one["template"]["spec"]
        # The operator tells the role by another label, and a Job owns the launcher.
        assert meta["labels"]["training.kubeflow.org/replica-type"] == role.lower()
        assert meta["annotations"]["ciao-kernel/run"] == job_metadata.run(made.job)
        assert pod["automountServiceAccountToken"] is False
        env = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
        assert env["CIAO_MPI_SSH"] == spec["sshAuthMountPath"]
        assert env["PRTE_MCA_plm_ssh_agent"] == env["CIAO_MPI_AGENT"]


def test_the_pods_of_another_try_name_its_submission() -> None:
    made = objects("%framework=mpi\n%image=i\n%worker=2\n", api=MPI_OPERATOR)
    job = Job("job", "kubernetes", "mpi", (*WORKERS, LAUNCHER), 1.0, "team")
    job = replace(job, resource=resource_of(made.path))
    again = next_objects.objects(made.job, [], job, "run-2")
    assert again.path == made.path
    for one in (made.job, again.job):
        for template in template_holder.pod_templates(one).values():
            told = template["metadata"]["annotations"]["ciao-kernel/run"]
            assert told == job_metadata.run(one)
    assert job_metadata.run(again.job) == "run-2"


def test_the_launchers_pod_is_of_the_job_whose_submission_it_names() -> None:
    labels = {
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-name": "mnist",
        "training.kubeflow.org/replica-type": "launcher",
    }
    notes = {"ciao-kernel/run": "run-1"}
    owners = [{"uid": "that of a Job"}]
    pod = {"metadata": {"labels": labels, "annotations": notes, "ownerReferences": owners}}
    assert job_metadata.replica(pod) == LAUNCHER
    assert job_metadata.job_name(pod) == "mnist"
    assert job_metadata.is_part_of(pod, "uid", "run-1")
    assert not job_metadata.is_part_of(pod, "uid", "run-2")


def test_an_mpijob_of_mpi_operator_is_suspended_as_the_other() -> None:
    assert suspension.change(MPI_OPERATOR, suspended=True) == {"runPolicy": {"suspend": True}}
    assert suspension.change(OPERATOR_V1, suspended=False) == {"runPolicy": {"suspend": False}}
    assert suspension.change(JOB, suspended=True) == {"suspend": True}


def test_a_program_of_ssh_is_a_shells() -> None:
    for text in (mpirun.wait("python")[2], mpi_ssh.SERVE):
        subprocess.run(["sh", "-n", "-c", text], check=True)


def test_the_pods_of_an_mpijob_do_not_run_on() -> None:
    item = {"spec": {"runPolicy": {"cleanPodPolicy": "None"}, "mpiReplicaSpecs": {}}}
    assert not job_status.keeps_pods(item)
    del item["spec"]["mpiReplicaSpecs"]
    assert job_status.keeps_pods(item)
