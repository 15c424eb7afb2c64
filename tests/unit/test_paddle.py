"""What Paddle's framework makes of a spec: the variables of its launcher, without the launcher."""

from __future__ import annotations

from ciao_kernel.model import Address, Replica
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


def test_all_workers_decide_and_there_is_one_at_least() -> None:
    framework, job = spec("%framework=paddle %master=0")
    assert job.replicas() == (Replica("worker", 0),)
    assert framework.decider(job) is None
