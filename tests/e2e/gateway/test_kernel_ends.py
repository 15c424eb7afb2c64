"""What becomes of jobs when a kernel of Enterprise Gateway ends, whatever ends it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.errors import ClusterError
from tests.cluster.rights import account, wait_until_may
from tests.cluster.waiting import until
from tests.e2e.gateway.cells import SHORT, cell, detached, running
from tests.e2e.gateway.client import Api, RemoteKernel
from tests.e2e.gateway.conftest import Start
from tests.e2e.gateway.place import DEPLOY, Gateway, Team

# Policies of test_enterprise_gateway.py would refuse this gateway its kernels.
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.slow,
    pytest.mark.xdist_group("gateway"),
    pytest.mark.second("gateway"),
]
BUSY_TOO = [
    "--MappingKernelManager.cull_idle_timeout=30",
    "--MappingKernelManager.cull_interval=1",
    "--MappingKernelManager.cull_connected=True",
    "--MappingKernelManager.cull_busy=True",
]


def asked(gateway: Gateway, kernel: RemoteKernel) -> None:
    """As when its node is drained: SIGTERM, and some seconds."""
    gateway.team.namespace.kubectl("delete", "pod", gateway.team.pod(kernel.id))


def killed(gateway: Gateway, kernel: RemoteKernel) -> None:
    force = ("--grace-period=0", "--force")
    gateway.team.namespace.kubectl("delete", "pod", gateway.team.pod(kernel.id), *force)


def died(gateway: Gateway, kernel: RemoteKernel) -> None:
    """Kill -9 of the process alone: the gateway finds its pod ended, and starts another."""
    kill = ("sh", "-c", "kill -9 $(cat /proc/1/task/1/children)")
    pod = gateway.team.pod(kernel.id)
    with contextlib.suppress(ClusterError):  # the container may take the shell along
        gateway.team.namespace.kubectl("exec", pod, "--", *kill)


ENDS: dict[str, Callable[[Gateway, RemoteKernel], None]] = {
    "shut-down": lambda _, kernel: kernel.delete(),
    "restarted": lambda _, kernel: kernel.restart(),
    "asked": asked,
    "killed": killed,
    "died": died,
}


@pytest.fixture(scope="module")
def elsewhere(gateway: Gateway, api: Api) -> Iterator[Team]:
    """A namespace where the kernels' account may run jobs, and no pod of a kernel can own them."""
    made = Team(gateway.cluster, "elsewhere")
    try:
        made.namespace.kubectl("apply", "-f", str(DEPLOY / "rbac/role.yaml"))
        who = f"--serviceaccount={gateway.team.name}:ciao-kernel"
        made.namespace.kubectl("create", "rolebinding", "ciao", "--role=ciao-user", who)
        kernels, given = account(gateway.team.name, "ciao-kernel"), [("get", "pods/log")]
        wait_until_may(gateway.cluster, kernels, given, made.name)
        yield made
    finally:
        made.namespace.delete()


def ours(kernel: RemoteKernel, name: str, *directives: str) -> None:
    """Start a job that ends with its kernel."""
    kernel.run("%ciao config onShutdown=delete")
    kernel.wait_text(kernel.execute(cell(name, *directives)), "here")


def gone(team: Team, name: str) -> float:
    """Wait until nothing is left of a job; return the seconds that it took."""
    began = time.monotonic()
    until(lambda: not team.left(name), f"all of {name} to go", 120, every=0.3)
    return time.monotonic() - began


@pytest.mark.parametrize("end", ["restarted", "killed", "died"])
def test_a_job_that_ends_with_its_kernel_leaves_nothing(
    gateway: Gateway, api: Api, start: Start, figure: Callable[[str], None], end: str
) -> None:
    kernel = start()
    ours(kernel, end)
    assert len(gateway.team.left(end)) == 3  # the job, its pod, its ConfigMap
    ENDS[end](gateway, kernel)
    figure(f"{gone(gateway.team, end):.1f} s until nothing is left of the job")


@pytest.mark.parametrize("end", ["shut-down", "asked"])
def test_a_job_that_no_pod_owns_is_deleted_by_its_kernel(
    gateway: Gateway, api: Api, start: Start, elsewhere: Team, end: str
) -> None:
    kernel = start()
    ours(kernel, end, f"%namespace={elsewhere.name}")
    assert len(elsewhere.left(end)) == 3
    ENDS[end](gateway, kernel)
    gone(elsewhere, end)


def test_a_gateway_that_is_killed_leaves_kernels_and_jobs(
    gateway: Gateway, api: Api, start: Start
) -> None:
    """It knows none of its kernels afterwards. A job outlives both, and the next kernel says so."""
    kernel = start()
    running(kernel, "followed")
    before = gateway.team.kernels()[kernel.id]["metadata"]["uid"]
    gateway.kill()
    until(api.answers, "the gateway to come back", 120)
    assert not api.kernels()
    pod = gateway.team.kernels()[kernel.id]
    assert (pod["metadata"]["uid"], pod["status"]["phase"]) == (before, "Running")
    died(gateway, kernel)
    until(
        lambda: gateway.team.kernels()[kernel.id]["status"]["phase"] != "Running",
        "the kernel to be dead", 90,
    )  # fmt: skip
    other = start()
    # A cell that is faster than the question leaves it to the next.
    until(
        lambda: "still running from before: followed" in other.run(SHORT).text,
        "the kernel to tell of the job", 120,
    )  # fmt: skip
    attached = other.execute("%ciao attach followed")
    other.wait_text(attached, "here")
    other.interrupt()
    other.finish(attached)
    assert gateway.team.phases("followed") == ["Running"]


@pytest.fixture(scope="module")
def rolled_out(gateway: Gateway, api: Api, elsewhere: Team) -> Api:
    """The gateway was replaced under kernels that worked, by one that culls busy kernels too."""
    for name, where in (("owned", gateway.team), ("own", elsewhere)):
        kernel = gateway.start(api)
        detached(kernel, f"{name}-detached")
        ours(kernel, name, f"%namespace={where.name}")
        kernel.close()
    return gateway.up(args=BUSY_TOO)


def test_a_rollout_takes_jobs_that_end_with_their_kernels_and_no_detached_ones(
    gateway: Gateway, rolled_out: Api, elsewhere: Team
) -> None:
    gone(gateway.team, "owned")
    gone(elsewhere, "own")
    for name in ("owned", "own"):
        assert gateway.team.phases(f"{name}-detached") == ["Running"]


def test_a_kernel_whose_job_is_silent_is_never_idle(gateway: Gateway, rolled_out: Api) -> None:
    """Its table shows the elapsed time: activity, even to a gateway that culls busy kernels.

    The kernel beside it does nothing, and is culled.
    """
    follows = gateway.start(rolled_out)
    running(follows, "left")
    idle = gateway.start(rolled_out)
    detached(idle, "left-detached")
    until(lambda: idle.id not in rolled_out.kernels(), "the idle kernel to be culled", 240)
    assert follows.id in rolled_out.kernels()
    assert gateway.team.phases("left") == ["Running"]
    # Its kernel is culled as soon as the job is submitted: the pod may start behind that.
    phases = gateway.team.phases
    until(lambda: phases("left-detached") == ["Running"], "the pod of the detached job", 120)
