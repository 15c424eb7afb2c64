"""What each framework makes of a spec, against what the training operator does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from ciao_kernel.errors import DirectiveError, SpecError
from ciao_kernel.frameworks import torchrun
from ciao_kernel.frameworks.jax import Jax
from ciao_kernel.frameworks.mpi import Mpi
from ciao_kernel.frameworks.paddle import Paddle
from ciao_kernel.frameworks.python import Python
from ciao_kernel.frameworks.pytorch import PyTorch
from ciao_kernel.frameworks.tensorflow import TensorFlow
from ciao_kernel.frameworks.xgboost import XGBoost
from ciao_kernel.magics import parse
from ciao_kernel.model import Address, Artifact, JobSpec, Replica, Source, SourceFile
from ciao_kernel.plugins import Framework, endless_roles, replica_command
from ciao_kernel.session.plugin_registry import Registry

TABLE = Registry(third_party={}).table
ARTIFACT = Artifact(Source(SourceFile("cell.py", b"x")), "/env/bin/python", "/job")
FRAMEWORKS: Mapping[str, Framework] = {
    one.name: one for one in (TensorFlow(), PyTorch(), Jax(), XGBoost(), Paddle(), Mpi(), Python())
}


def spec(header: str) -> tuple[Framework, JobSpec]:
    """A job as the session sees it, from a header with blanks between lines."""
    text = "\n".join(header.split(" ")) + "\nx = 1"
    found = parse.parse(text, TABLE).spec
    framework = FRAMEWORKS[found.framework]
    return framework, framework.complete(found)


def operators(job: JobSpec, port: int = 2222) -> dict[Replica, Address]:
    """The addresses that the operator would give to a job named "mnist" in "team"."""
    return {r: Address(f"mnist-{r}.team.svc", port) for r in job.replicas()}


# ------------------------------------------------------------------------------- TensorFlow

# Written out as Go's json.Marshal does: struct fields in their order, map keys sorted, no blanks.
TF_CONFIGS = {
    ("%ps=1 %worker=2", "worker-1"): (
        '{"cluster":{"ps":["mnist-ps-0.team.svc:2222"],'
        '"worker":["mnist-worker-0.team.svc:2222","mnist-worker-1.team.svc:2222"]},'
        '"task":{"type":"worker","index":1},"environment":"cloud"}'
    ),
    ("%worker=1 %ps=1", "ps-0"): (
        '{"cluster":{"ps":["mnist-ps-0.team.svc:2222"],"worker":["mnist-worker-0.team.svc:2222"]},'
        '"task":{"type":"ps","index":0},"environment":"cloud"}'
    ),
    ("%worker=1 %evaluator=1 %chief=1 %ps=1", "evaluator-0"): (
        '{"cluster":{"chief":["mnist-chief-0.team.svc:2222"],'
        '"evaluator":["mnist-evaluator-0.team.svc:2222"],"ps":["mnist-ps-0.team.svc:2222"],'
        '"worker":["mnist-worker-0.team.svc:2222"]},'
        '"task":{"type":"evaluator","index":0},"environment":"cloud"}'
    ),
    ("%master=1 %worker=1 %ps=0", "master-0"): (
        '{"cluster":{"master":["mnist-master-0.team.svc:2222"],'
        '"worker":["mnist-worker-0.team.svc:2222"]},'
        '"task":{"type":"master","index":0},"environment":"cloud"}'
    ),
}


@pytest.mark.parametrize(("header", "name"), TF_CONFIGS)
def test_tf_config_is_the_operators_to_the_byte(header: str, name: str) -> None:
    framework, job = spec(f"%framework=tensorflow {header}")
    replica = next(r for r in job.replicas() if str(r) == name)
    env = framework.environment(job, replica, operators(job))
    assert env["TF_CONFIG"] == TF_CONFIGS[header, name]


def test_tf_config_counts_beyond_nine_in_order() -> None:
    framework, job = spec("%framework=tensorflow %worker=12")
    addresses = dict(sorted(operators(job).items(), key=lambda item: str(item[0])))
    config = json.loads(framework.environment(job, Replica("worker", 11), addresses)["TF_CONFIG"])
    hosts = [f"mnist-worker-{i}.team.svc:2222" for i in range(12)]
    assert config["cluster"] == {"worker": hosts}
    assert config["task"] == {"type": "worker", "index": 11}


def test_no_tf_config_for_one_replica() -> None:
    for header in ("%worker=1", "%chief=1", "%worker=1 %ps=0", "%dryrun"):
        framework, job = spec(f"%framework=tensorflow {header}")
        assert framework.environment(job, job.replicas()[0], operators(job)) == {}


@pytest.mark.parametrize(
    ("header", "replicas", "decider"),
    [
        ("%dryrun", "worker-0", "worker-0"),
        ("%worker=2 %ps=1", "ps-0 worker-0 worker-1", "worker-0"),
        ("%worker=1 %chief=1 %ps=2", "ps-0 ps-1 chief-0 worker-0", "chief-0"),
        ("%worker=1 %master=1", "master-0 worker-0", "master-0"),
        ("%chief=1 %master=0 %evaluator=1", "chief-0 evaluator-0", "chief-0"),
        ("%chief=0 %worker=1 %ps=0", "worker-0", "worker-0"),
    ],
)
def test_tensorflow_jobs(header: str, replicas: str, decider: str) -> None:
    framework, job = spec(f"%framework=tensorflow {header}")
    assert " ".join(map(str, job.replicas())) == replicas
    assert all(group.count for group in job.groups)
    assert str(framework.decider(job)) == decider


@pytest.mark.parametrize(
    ("header", "replicas", "decider"),
    [
        ("%worker=2 %ps=1 %serve=ps,worker", "ps-0 chief-0 worker-0 worker-1", "chief-0"),
        ("%worker=1 %chief=0 %serve=worker", "chief-0 worker-0", "chief-0"),
        ("%worker=1 %master=1 %serve=worker", "master-0 worker-0", "master-0"),
        ("%worker=1 %ps=1 %serve=ps", "ps-0 worker-0", "worker-0"),
    ],
)
def test_a_chief_runs_the_cell_if_the_workers_only_serve(
    header: str, replicas: str, decider: str
) -> None:
    framework, job = spec(f"%framework=tensorflow {header}")
    assert " ".join(map(str, job.replicas())) == replicas
    assert str(framework.decider(job)) == decider
    assert framework.needs_package(job)


def test_roles_that_serve_run_the_server_and_never_end() -> None:
    framework, job = spec("%framework=tensorflow %ps=1 %worker=1 %serve=worker %args=--x")
    of = {role: replica_command(framework, job, ARTIFACT, role) for role in framework.roles}
    assert "tf.distribute.Server(" in of["worker"][-1]
    assert of["ps"] == of["chief"] == ("/env/bin/python", "-u", "/job/cell.py", "--x")
    assert endless_roles(framework, job.serve) == {"ps", "worker"}
    assert endless_roles(framework, ()) == {"ps"}


@pytest.mark.parametrize(("role", "seen"), [("chief", False), ("evaluator", True)])
def test_a_coordinator_of_servers_does_not_see_the_evaluator(
    role: str, seen: bool, tmp_path: Path
) -> None:
    header = "%framework=tensorflow %worker=1 %evaluator=1 %args=--x"
    framework, job = spec(f"{header} %serve=worker")
    (tmp_path / "cell.py").write_text(
        "import os, sys; print(sys.argv[1:], os.environ['TF_CONFIG'])"
    )
    artifact = Artifact(ARTIFACT.source, sys.executable, str(tmp_path))
    given = framework.environment(job, Replica(role, 0), operators(job))  # the operator's
    command = replica_command(framework, job, artifact, role)
    env = {**os.environ, **given}
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    argument, text = said.split(maxsplit=1)
    assert argument == "['--x']"
    expected = json.loads(given["TF_CONFIG"])
    assert set(expected["cluster"]) == {"chief", "worker", "evaluator"}
    if not seen:
        del expected["cluster"]["evaluator"]
    assert json.loads(text) == expected
    framework, job = spec(header)
    assert "-c" not in replica_command(framework, job, artifact, role)


def test_workers_that_serve_cannot_all_succeed() -> None:
    with pytest.raises(SpecError, match="never end"):
        spec("%framework=tensorflow %worker=1 %serve=worker %successPolicy=allWorkers")


# ---------------------------------------------------------------------------------- PyTorch


@pytest.mark.parametrize(
    ("header", "name", "expected"),
    [
        (
            "%worker=2",
            "worker-1",
            {"WORLD_SIZE": "3", "RANK": "2", "PET_NNODES": "3", "PET_NPROC_PER_NODE": "1"},
        ),
        (
            "%master=1 %worker=3 %nprocPerNode=2",
            "master-0",
            {"WORLD_SIZE": "8", "RANK": "0", "PET_NNODES": "4", "PET_NPROC_PER_NODE": "2"},
        ),
        (
            "%worker=1 %gpu=2",
            "worker-0",
            {"WORLD_SIZE": "4", "RANK": "1", "PET_NNODES": "2", "PET_NPROC_PER_NODE": "2"},
        ),
        (
            "%master=1;%gpu=1 %worker=1;%gpu=4",
            "worker-0",
            {"WORLD_SIZE": "5", "RANK": "1", "PET_NNODES": "2", "PET_NPROC_PER_NODE": "4"},
        ),
        (
            "%worker=1 %gpu=2 %runner=python",
            "worker-0",
            {
                "WORLD_SIZE": "2",
                "RANK": "1",
                "PET_NNODES": "2",
                "PET_NPROC_PER_NODE": "1",
                "NODE_RANK": "1",
            },
        ),
        (
            "%worker=1 %gpu=1 %runner=python",
            "worker-0",
            {
                "WORLD_SIZE": "2",
                "RANK": "1",
                "PET_NNODES": "2",
                "PET_NPROC_PER_NODE": "1",
                "NODE_RANK": "1",
                "LOCAL_RANK": "0",
            },
        ),
        (
            "%worker=0 %runner=python",
            "master-0",
            {
                "WORLD_SIZE": "1",
                "RANK": "0",
                "PET_NNODES": "1",
                "PET_NPROC_PER_NODE": "1",
                "NODE_RANK": "0",
            },
        ),
        (
            "%worker=2;%gpu=2",
            "master-0",
            {"WORLD_SIZE": "6", "RANK": "0", "PET_NNODES": "3", "PET_NPROC_PER_NODE": "2"},
        ),
        (
            "%worker=0",
            "master-0",
            {"WORLD_SIZE": "1", "RANK": "0", "PET_NNODES": "1", "PET_NPROC_PER_NODE": "1"},
        ),
    ],
)
def test_pytorch_environment(header: str, name: str, expected: dict[str, str]) -> None:
    framework, job = spec(f"%framework=pytorch {header}")
    replica = next(r for r in job.replicas() if str(r) == name)
    assert framework.environment(job, replica, operators(job, 23456)) == {
        "PYTHONUNBUFFERED": "1",
        "MASTER_ADDR": "mnist-master-0.team.svc",
        "MASTER_PORT": "23456",
        "PET_MASTER_ADDR": "mnist-master-0.team.svc",
        "PET_MASTER_PORT": "23456",
        "PET_NODE_RANK": expected["RANK"],
        **expected,
    }


@pytest.mark.parametrize(
    ("header", "replicas"),
    [
        ("%dryrun", "master-0"),
        ("%worker=2", "master-0 worker-0 worker-1"),
        ("%worker=1 %master=1", "master-0 worker-0"),
        ("%worker=0 %master=1", "master-0"),
    ],
)
def test_pytorch_jobs(header: str, replicas: str) -> None:
    framework, job = spec(f"%framework=pytorch {header}")
    assert " ".join(map(str, job.replicas())) == replicas
    assert str(framework.decider(job)) == "master-0"


# ------------------------------------------------------------------------------- all of them


@pytest.mark.parametrize(
    ("header", "directive", "message"),
    [
        ("%framework=tensorflow %ps=1", "ps", "there is only ps"),
        ("%framework=tensorflow %evaluator=1 %ps=2", "ps", "only ps and evaluator"),
        ("%framework=tensorflow %worker=0", "worker", "nothing would run"),
        ("%framework=tensorflow %ps=2 %chief=0", "ps", "there is only ps"),
        ("%framework=tensorflow %chief=2 %worker=1", "chief", "at most one chief"),
        ("%framework=tensorflow %master=2 %worker=1", "master", "at most one master"),
        ("%framework=tensorflow %chief=1 %master=1", "master", "two names for one role"),
        ("%framework=tensorflow %runner=torchrun", "runner", "torchrun starts PyTorch"),
        ("%framework=tensorflow %nproc-per-node=2", "nproc-per-node", "are for torchrun"),
        ("%framework=jax %worker=0", "worker", "nothing would run"),
        ("%framework=jax %runner=torchrun", "runner", "but this is a JAX job"),
        ("%framework=jax %nprocPerNode=2", "nprocPerNode", "are for torchrun"),
        ("%framework=jax %successPolicy=worker0", "successPolicy", "when all its workers do"),
        ("%framework=jax %restartPolicy=ExitCode", "restartPolicy", "would never end"),
        ("%framework=jax %slots=2", "slots", "slots are for mpirun, but this is a JAX job"),
        ("%framework=pytorch %slots=2", "slots", "but this is a PyTorch job"),
        ("%framework=mpi %launcher=2", "launcher", "exactly one launcher"),
        ("%framework=mpi %worker=0", "worker", "nothing would run"),
        ("%framework=mpi %nprocPerNode=2", "nprocPerNode", "but this is an MPI job"),
        ("%framework=mpi %successPolicy=worker0", "successPolicy", "when all its ranks do"),
        ("%framework=mpi %restartPolicy=OnFailure", "restartPolicy", "not started again"),
        ("%framework=xgboost %master=2", "master", "an XGBoost job has exactly one master"),
        ("%framework=xgboost %runner=torchrun", "runner", "but this is an XGBoost job"),
        ("%framework=xgboost %successPolicy=allWorkers", "successPolicy", "when its master does"),
        ("%framework=xgboost %restartPolicy=ExitCode", "restartPolicy", "would never end"),
        ("%framework=paddle %worker=0", "worker", "nothing would run"),
        ("%framework=paddle %master=1 %worker=2", "master", "without parameter servers"),
        ("%framework=paddle %restartPolicy=ExitCode", "restartPolicy", "would never end"),
        ("%framework=paddle %runner=torchrun", "runner", "but this is a Paddle job"),
        ("%framework=python %worker=0", "worker", "nothing would run"),
        ("%framework=python %nprocPerNode=2", "nprocPerNode", "but this is a Python job"),
        ("%framework=python %successPolicy=worker0", "successPolicy", "all its workers do"),
        ("%framework=pytorch %master=2", "master", "exactly one master"),
        ("%framework=pytorch %worker=1 %master=0", "master", "exactly one master"),
        ("%framework=pytorch %runner=python %nprocPerNode=2", "nprocPerNode", "one process"),
        ("%framework=tensorflow %worker=2 %min=1", "min", "only PyTorch jobs are elastic"),
        ("%framework=python %worker=2 %max=3", "max", "but this is a Python job"),
        ("%framework=pytorch %worker=2 %min=3", "min", "2 of at least 3"),
        ("%framework=pytorch %worker=4 %min=2 %max=3", "max", "4 of at most 3"),
        ("%framework=pytorch %master=1 %worker=3 %min=2", "master", "no master"),
        ("%framework=pytorch %min=2", "min", "needs workers"),
        ("%framework=pytorch %worker=0 %max=2", "max", "needs workers"),
        ("%framework=pytorch %worker=2 %min=1 %runner=python", "runner", "torchrun makes"),
        ("%framework=pytorch %worker=2 %min=1 %restartPolicy=Never", "restartPolicy", "own"),
        ("%framework=pytorch %worker=2 %min=1 %successPolicy=allWorkers", "successPolicy", "a w"),
    ],
)
def test_jobs_that_cannot_be(header: str, directive: str, message: str) -> None:
    text = header.replace(" ", "\n") + "\nx = 1"
    parsed = parse.parse(text, TABLE)
    with pytest.raises(SpecError) as caught:
        FRAMEWORKS[parsed.spec.framework].complete(parsed.spec)
    located = parsed.locate(caught.value)
    assert isinstance(located, DirectiveError)
    assert located.text.startswith(f"%{directive}=")
    assert located.column == 0
    assert message in located.message
    assert located.hint


@pytest.mark.parametrize(
    ("header", "low", "high", "restarts"),
    [
        ("%worker=3 %min=2 %max=4", 2, 4, 3),
        ("%worker=3 %min=2", 2, 3, 3),
        ("%worker=3 %max=4 %backoffLimit=0", 1, 4, 0),
        ("%worker=3 %min=3 %master=0 %backoffLimit=9", 3, 3, 9),
    ],
)
def test_an_elastic_job_has_workers_that_meet_at_the_first(
    header: str, low: int, high: int, restarts: int
) -> None:
    framework, job = spec(f"%framework=pytorch {header} %nprocPerNode=2")
    assert [str(one) for one in job.replicas()] == ["worker-0", "worker-1", "worker-2"]
    assert str(framework.decider(job)) == "worker-0"
    assert isinstance(framework, PyTorch)
    empty = {"worker": {"metadata": {}, "spec": {"containers": [{}]}}}
    made = framework.manifest(job, empty).spec
    assert made["elasticPolicy"] == {
        "rdzvBackend": "c10d",
        "minReplicas": low,
        "maxReplicas": high,
        "maxRestarts": restarts,
    }
    assert made["nprocPerNode"] == "2"
    assert made["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] == "ExitCode"
    env = framework.environment(job, Replica("worker", 1), operators(job, 23456))
    assert env == {
        "PYTHONUNBUFFERED": "1",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": "mnist-worker-0.team.svc:23456",
        "PET_NNODES": f"{low}:3",  # on this machine nobody adds a replica
        "PET_MAX_RESTARTS": str(restarts),
        "PET_NPROC_PER_NODE": "2",
        "PET_LOCAL_ADDR": "mnist-worker-1.team.svc",
    }
    command = framework.command(job, ARTIFACT)
    compile(command[3], "elastic", "exec")
    assert command[4:] == ("/job/cell.py",)


def test_an_error_about_what_was_not_written_stays_without_a_place() -> None:
    parsed = parse.parse("%framework=pytorch\nx = 1", TABLE)
    error = SpecError("no.", directive="gpu")
    assert parsed.locate(error) is error


@pytest.mark.parametrize("framework", FRAMEWORKS.values(), ids=lambda framework: framework.name)
def test_commands_are_argument_vectors(framework: Framework) -> None:
    job = framework.complete(JobSpec(framework.name, args=("--text", "a b;$(c)")))
    command = framework.command(job, ARTIFACT)
    assert command[0] == "/env/bin/python"
    assert command[-3:] == ("/job/cell.py", "--text", "a b;$(c)")
    assert any("torch.distributed.run" in one for one in command) is (framework.name == "pytorch")
    assert framework.needs_package(job) is (framework.name == "pytorch")


@pytest.mark.parametrize("name", ["pytorch", "xgboost"])
def test_a_master_that_nobody_wrote_has_what_the_workers_have(name: str) -> None:
    _, job = spec(f"%framework={name} %worker=2;%gpu=2;%memory=4Gi;%volume=train:data")
    master, worker = job.groups
    assert (master.role, master.count) == ("master", 1)
    assert replace(master, role="worker", count=2) == worker
    _, job = spec(f"%framework={name} %master=1 %worker=2;%gpu=2")
    assert job.asks("master").gpu is None


@pytest.mark.parametrize("workers", [0, 1])
def test_replicas_run_torchrun_and_end_together(workers: int) -> None:
    framework, job = spec(f"%framework=pytorch %worker={workers}")
    *run, program = framework.command(job, ARTIFACT)
    assert run[:3] == ["/env/bin/python", "-u", "-c"]
    assert 'run_module("torch.distributed.run"' in run[3]
    compile(run[3], "the command", "exec")
    assert torchrun.with_option([*run, program], "--x") == [*run, "--x", program]
    assert torchrun.with_option(["python", program], "--x") == ["python", program]


def test_several_processes_of_one_replica_get_whole_lines() -> None:
    framework, job = spec("%framework=pytorch %worker=0 %nprocPerNode=2")
    assert "buffer_lines()" in framework.command(job, ARTIFACT)[3]


def test_pytorch_without_torchrun() -> None:
    framework, job = spec("%framework=pytorch %runner=python")
    assert framework.command(job, ARTIFACT) == ("/env/bin/python", "-u", "/job/cell.py")
    assert not framework.needs_package(job)


@pytest.mark.parametrize("framework", FRAMEWORKS.values(), ids=lambda framework: framework.name)
def test_completing_twice_changes_nothing(framework: Framework) -> None:
    job = framework.complete(JobSpec(framework.name))
    assert framework.complete(job) == job
    assert replace(job, groups=()) == JobSpec(framework.name)


def test_each_framework_s_roles_have_directives() -> None:
    for name, framework in FRAMEWORKS.items():
        assert framework.name == name
        assert TABLE.names.frameworks[name] == framework.roles
        assert all(TABLE.find(role) for role in framework.roles)


@pytest.mark.parametrize(
    ("header", "ends"),
    [
        ("%framework=tensorflow %worker=1", ("-u", "-m", "pkg.train")),
        ("%framework=pytorch %runner=python", ("-u", "-m", "pkg.train")),
        ("%framework=pytorch", (torchrun.command("python", ())[-1], "-m", "pkg.train")),
    ],
)
def test_a_program_in_a_package_starts_as_a_module(header: str, ends: tuple[str, ...]) -> None:
    source = Source(SourceFile("pkg/train.py", b"x"), module="pkg.train")
    artifact = replace(ARTIFACT, source=source)
    framework, job = spec(header)
    assert framework.command(job, artifact)[-len(ends) :] == ends
    assert artifact.program == "/job/pkg/train.py"


def test_torchrun_of_several_processes_gets_the_module() -> None:
    source = Source(SourceFile("pkg/train.py", b"x"), module="pkg.train")
    framework, job = spec("%framework=pytorch %worker=2")
    command = framework.command(replace(job, args=("-m",)), replace(ARTIFACT, source=source))
    assert command[2] == "-c"
    assert command[4:] == ("-m", "pkg.train", "-m")
