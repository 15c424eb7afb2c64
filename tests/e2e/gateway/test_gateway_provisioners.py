"""A user's Jupyter server in the cluster, with kernels in pods of another namespace."""

from __future__ import annotations

import shlex

import pytest

from tests.cluster.rights import account, may, wait_until_may
from tests.cluster.waiting import until
from tests.e2e.gateway.cells import cell, detached, running
from tests.e2e.gateway.client import Api
from tests.e2e.gateway.place import DEPLOY, SPEC, Gateway
from tests.integration.docs.blocks import command_lines, read

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow, pytest.mark.second("gateway")]
GUIDE = DEPLOY / "enterprise-gateway" / "README.md"
FORBIDDEN = [
    ("create", "tfjobs.kubeflow.org"),
    ("create", "pods/exec"),
    ("get", "pods/exec"),
    ("get", "pods/log"),
    ("list", "pods"),
    ("get", "secrets"),
]


@pytest.fixture(scope="module")
def server(provisioners: Gateway) -> Gateway:
    return provisioners


@pytest.fixture(scope="module")
def api(server: Gateway) -> Api:
    return server.up()


def test_kernels_run_in_pods_and_leave_their_jobs(server: Gateway, api: Api) -> None:
    kernel = api.start(SPEC)
    names = kernel.value("import os; print(*os.environ)").split()
    assert "KERNEL_USERNAME" in names
    assert not {"JUPYTER_TOKEN", "JPY_API_TOKEN"}.intersection(names)
    # Nobody without these keys is heard: tests/integration/test_encryption.py.
    file = "__import__('ipykernel').get_connection_info(unpack=True)"
    assert "curve_secretkey" in kernel.value(f"print(*{file})").split()
    header = "%framework=tensorflow\n%successPolicy=allWorkers\n%worker=2\n"
    done = kernel.run(f"{header}print('trained')\n")
    assert done.text.count("trained\n") == 2, done.of("error")

    request = kernel.execute(cell("stopped"))
    kernel.wait_text(request, "here")
    kernel.interrupt()
    kernel.finish(request)
    until(lambda: "stopped" not in server.team.jobs(), "the job to go", 90)

    detached(kernel, "detached")
    running(kernel, "followed")
    kernel.restart()
    assert kernel.value("print('alive')") == "alive"
    running(kernel, "third")
    kernel.delete()
    # Nobody is there then who could stop them.
    until(lambda: kernel.id not in server.team.kernels(), "the kernel's pod to go", 120)
    assert {"detached", "followed", "third"} <= server.team.jobs()


def test_neither_kernels_nor_jobs_reach_the_servers_namespace(server: Gateway, api: Api) -> None:
    """Its Secret is there, and whoever may create jobs beside it can read it (%envsecret)."""
    home, team = server.namespace.name, server.team.name
    assert home != team
    kernels = account(team, "ciao-kernel")
    for kind in ("tfjobs.kubeflow.org", "jobs.batch", "services"):
        assert may(server.cluster, kernels, "create", kind, team), kind
    for verb, resource in FORBIDDEN:
        assert not may(server.cluster, kernels, verb, resource, home), (verb, resource)
    kernel = api.start(SPEC)
    wanted = f"%framework=tensorflow\n%worker=1\n%namespace={home}\n%envsecret=jupyter\n"
    refused = kernel.run(f"{wanted}import os\nprint(os.environ['token'])\n")
    assert refused.status == "error"
    assert "tfjobs" in f"{refused.text}{refused.of('error')}"
    kernel.delete()


def test_a_kernel_enters_no_pod_unless_an_administrator_lets_it(server: Gateway, api: Api) -> None:
    """Other users' kernels are in the same namespace."""
    team = server.team.namespace
    kernel = api.start(SPEC)
    running(kernel, "entered")
    enter = "%ciao exec entered/worker-0 -- echo inside"
    other = api.start(SPEC)
    assert "pods/exec" in str(other.run(enter).of("error"))
    lines = [line for one in read(GUIDE) for line in command_lines(one.text)]
    given = [line for line in lines if "ciao-exec" in line or "exec-role.yaml" in line]
    assert len(given) == 2
    for line in given:
        words = line.replace("team-a", team.name).replace("deploy/", f"{DEPLOY}/")
        server.cluster.kubectl(*shlex.split(words)[1:])
    entering = [("create", "pods/exec")]
    wait_until_may(server.cluster, account(team.name, "ciao-kernel"), entering, team.name)
    assert other.run(enter).text.endswith("inside\n")
    for one in (kernel, other):
        one.delete()
