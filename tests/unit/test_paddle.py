"""What Paddle's framework makes of a spec: the variables of its launcher, without the launcher."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ciao_kernel.model import Address, Replica
from ciao_kernel.session.plugin_registry import Registry
from tests.unit.test_frameworks import operators, spec
from tests.unit.test_jax import template

HOSTS = ("mnist-worker-0.team.svc:36543", "mnist-worker-1.team.svc:36543")


def test_the_environment_is_that_of_paddles_launcher() -> None:
    framework, job = spec("%framework=paddle %worker=2")
    assert framework.environment(job, Replica("worker", 1), operators(job, 36543)) == {
        "PYTHONUNBUFFERED": "1",
        "PADDLE_MASTER": HOSTS[0],
        "PADDLE_NNODES": "2",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_TRAINER_ID": "1",
        "PADDLE_TRAINER_ENDPOINTS": ",".join(HOSTS),
        "PADDLE_CURRENT_ENDPOINT": HOSTS[1],
        "PADDLE_DISTRI_BACKEND": "gloo",
    }


def test_on_one_machine_each_worker_has_a_port_of_its_own() -> None:
    framework, job = spec("%framework=paddle %worker=2")
    here = {one: Address("127.0.0.1", 20000 + one.index) for one in job.replicas()}
    env = framework.environment(job, Replica("worker", 1), here)
    assert env["PADDLE_TRAINER_ENDPOINTS"] == "127.0.0.1:20000,127.0.0.1:20001"
    assert env["PADDLE_CURRENT_ENDPOINT"] == "127.0.0.1:20001"


def test_with_gpus_paddle_chooses_the_backend() -> None:
    framework, job = spec("%framework=paddle %worker=2;%gpu=1")
    env = framework.environment(job, Replica("worker", 0), operators(job))
    assert "PADDLE_DISTRI_BACKEND" not in env


def test_a_pod_has_the_variables_that_the_operator_does_not_set() -> None:
    framework, job = spec("%framework=paddle %worker=2")
    made = framework.manifest(job, {"worker": template("CIAO_JOB", "CIAO_INDEX")})
    assert (made.kind, made.plural, made.container) == ("PaddleJob", "paddlejobs", "paddle")
    worker = made.spec["paddleReplicaSpecs"]["Worker"]
    # Never: the operator's default would start a program with a typo again for ever.
    assert (worker["replicas"], worker["restartPolicy"]) == (2, "Never")
    first = worker["template"]["spec"]["containers"][0]
    assert {one["name"]: one["value"] for one in first["env"][2:]} == {
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_TRAINER_ID": "$(CIAO_INDEX)",
        "PADDLE_TRAINER_ENDPOINTS": "$(CIAO_JOB)-worker-0:36543,$(CIAO_JOB)-worker-1:36543",
        "PADDLE_CURRENT_ENDPOINT": "$(CIAO_JOB)-worker-$(CIAO_INDEX):36543",
        "PADDLE_DISTRI_BACKEND": "gloo",
    }


@pytest.mark.parametrize(("workers", "waits"), [(1, False), (2, True)])
def test_a_pod_waits_for_the_name_of_the_first_worker(workers: int, waits: bool) -> None:
    framework, job = spec(f"%framework=paddle %worker={workers}")
    pod = template()
    pod["spec"]["containers"][0]["command"] = ["/opt/python3", "-u", "main.py"]
    made = framework.manifest(job, {"worker": pod})
    first, other = made.spec["paddleReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert "command" not in other
    *before, python, option, program = first["command"]
    assert [python, option, program] == ["/opt/python3", "-u", "main.py"]
    assert before[:-1] == (["/opt/python3", "-I", "-S", "-c"] if waits else [])
    assert not waits or "$(" not in before[-1]  # which Kubernetes would replace


def test_the_wait_ends_as_soon_as_the_name_is_known() -> None:
    framework, job = spec("%framework=paddle %worker=2")
    pod = template()
    pod["spec"]["containers"][0]["command"] = [sys.executable, "-c", "print('trains')"]
    made = framework.manifest(job, {"worker": pod})
    worker = made.spec["paddleReplicaSpecs"]["Worker"]
    command = worker["template"]["spec"]["containers"][0]["command"]
    # A stand-in for DNS that fails twice; the isolated Python takes no module of a folder.
    known = (
        "import builtins, functools, socket, time\n"
        "print = functools.partial(builtins.print, flush=True)  # before another program\n"
        "failures = iter([OSError(), OSError()])\n"
        "def look(host, port, **_):\n"
        "    print(host, port)\n"
        "    for error in failures: raise error\n"
        "    return [(socket.AF_INET,)]\n"
        "socket.getaddrinfo, time.sleep = look, print\n"
    )
    text = known + command[4]
    ran = subprocess.run(
        [*command[:4], text, *command[5:]],
        env={"PADDLE_MASTER": "mnist-worker-0:36543"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    look = "mnist-worker-0 None"
    assert ran.stdout.splitlines() == [look, "0.2", look, "0.2", look, "trains"]


def test_help_does_not_offer_the_role_that_is_refused_with_a_reason() -> None:
    table = Registry({}).table
    assert table.frameworks("master") == ("tensorflow", "pytorch", "xgboost")
    assert table.roles("paddle") == ("master", "worker")
    assert table.offered_roles("paddle") == ("worker",)


def test_all_workers_decide_and_there_is_one_at_least() -> None:
    framework, job = spec("%framework=paddle %master=0")
    assert job.replicas() == (Replica("worker", 0),)
    assert framework.decider(job) is None
