"""What MPI's framework makes of a spec."""

from __future__ import annotations

import re
from typing import Any

from ciao_kernel.backends.kubernetes import job_status
from ciao_kernel.frameworks import mpirun
from ciao_kernel.model import Gpu, Replica, Resources
from ciao_kernel.plugins import replica_command
from tests.unit.backends.kubernetes.test_manifest import objects
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


def test_the_launcher_runs_mpirun_and_workers_wait() -> None:
    framework, job = spec("%framework=mpi %worker=2 %slots=3 %args=--x")
    assert replica_command(framework, job, ARTIFACT, "worker") == mpirun.WAIT
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
        assert env["PRTE_MCA_plm_ssh_agent"] == "/etc/mpi/kubexec.sh"
        assert env["PRTE_MCA_prte_default_hostfile"] == "/etc/mpi/hostfile"
    assert {"name": "CIAO_INDEX", "value": "0"} in first["l"]["env"]


def test_the_pods_of_an_mpijob_do_not_run_on() -> None:
    item = {"spec": {"runPolicy": {"cleanPodPolicy": "None"}, "mpiReplicaSpecs": {}}}
    assert not job_status.keeps_pods(item)
    del item["spec"]["mpiReplicaSpecs"]
    assert job_status.keeps_pods(item)
