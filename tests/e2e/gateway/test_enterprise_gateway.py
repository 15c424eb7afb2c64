"""Enterprise Gateway as deploy/ has it: kernels in pods, and what becomes of their jobs."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pytest

from tests.cluster.errors import ClusterError
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e.gateway.cells import SHORT, cell, detached, running
from tests.e2e.gateway.client import V1, Api, RemoteKernel, refusal
from tests.e2e.gateway.conftest import Start
from tests.e2e.gateway.place import DEPLOY, ROOT, SPEC, Gateway, api_server, listens, memory, patch
from tests.helpers import network
from tests.helpers.colors import uncolored
from tests.integration.docs.blocks import command_lines, read

if TYPE_CHECKING:
    from tests.browser.lab import Lab
    from tests.browser.server import Server

# Policies of the whole cluster are about whoever is called enterprise-gateway, in any namespace.
pytestmark = [pytest.mark.timeout(600), pytest.mark.slow, pytest.mark.xdist_group("gateway")]
second = pytest.mark.second("gateway")
GUIDE = ROOT / "docs" / "gateway.md"
AT_ONCE = 10
CULLING = [
    "--MappingKernelManager.cull_idle_timeout=25",
    "--MappingKernelManager.cull_interval=1",
    "--MappingKernelManager.cull_connected=True",
]


def gone(gateway: Gateway, kernel: RemoteKernel) -> None:
    """Wait until nobody is there any more who could stop the kernel's job."""
    until(lambda: kernel.id not in gateway.team.kernels(), "the kernel's pod to go", 120)


@second
def test_ten_kernels_at_once_all_work(
    gateway: Gateway, api: Api, start: Start, figure: Callable[[str], None]
) -> None:
    start().delete()  # The node has the image now.

    def one(number: int) -> tuple[RemoteKernel, float]:
        began = time.monotonic()
        return start(KERNEL_USERNAME=f"user-{number}"), time.monotonic() - began

    with ThreadPoolExecutor(AT_ONCE) as pool:
        started = list(pool.map(one, range(AT_ONCE)))
    for number, (kernel, _) in enumerate(started):
        name = kernel.value("import os; print(os.environ['KERNEL_USERNAME'])")
        assert name == f"user-{number}"
    pods = gateway.team.kernels()
    sizes = [memory(pods[kernel.id]["metadata"]["uid"]) for kernel, _ in started]
    assert all(size > 0 for size in sizes)
    took = [seconds for _, seconds in started]
    figure(
        f"{AT_ONCE} kernels at once: start {min(took):.1f} to {max(took):.1f} s, "
        f"{median(sizes) / 1e6:.0f} MB each (PSS, {min(sizes) / 1e6:.0f} to {max(sizes) / 1e6:.0f})"
    )


@second
def test_a_pod_has_its_users_variables_and_none_of_the_gateways(
    gateway: Gateway, api: Api, start: Start
) -> None:
    kernel = start(KERNEL_MINE="yes", KERNEL_MEMORY_LIMIT="1Gi", EG_AUTH_TOKEN="stolen")
    names = kernel.value("import json, os; print(json.dumps(dict(os.environ)))")
    found = json.loads(names)
    assert found["KERNEL_MINE"] == "yes"
    assert found["CIAO_IMAGES"] == f"tensorflow={gateway.kernel}"  # of the kernelspec
    assert not [name for name in found if name.startswith("EG_")]
    assert gateway.token not in names
    pod = gateway.team.kernels()[kernel.id]
    assert pod["spec"]["serviceAccountName"] == "ciao-kernel"
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}
    # The namespace takes no other pod.
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True


@pytest.mark.stands_for("gateway")
def test_a_cell_is_a_job_of_the_pods_own_account(gateway: Gateway, api: Api, start: Start) -> None:
    kernel = start()
    header = "%framework=tensorflow\n%successPolicy=allWorkers\n%worker=2\n"
    done = kernel.run(f"{header}print('trained')\n")
    assert done.status == "ok"
    assert uncolored(done.text).count("] trained\n") == 2
    (job,) = gateway.team.namespace.get("tfjobs")["items"]
    assert job["metadata"]["annotations"]["ciao-kernel/owner"].startswith("ada@gateway")
    listed = kernel.run("%ciao jobs")
    assert job["metadata"]["name"] in listed.text, listed.of("error")
    wrong = kernel.run("%framework=tensorflow\n%worker=1\nraise SystemError('on purpose')\n")
    assert wrong.error == "JobFailed"


@pytest.mark.second("gateway")
def test_the_stop_button_stops_the_job(
    gateway: Gateway, api: Api, start: Start, figure: Callable[[str], None]
) -> None:
    kernel = start()
    request = kernel.execute(cell("stopped"))
    kernel.wait_text(request, "here")
    began = time.monotonic()
    kernel.interrupt()
    kernel.finish(request)
    figure(f"stop to the end of the cell {time.monotonic() - began:.1f} s")
    assert request.error == "KeyboardInterrupt"
    until(lambda: not gateway.team.jobs(), "the job to go", 90)
    assert kernel.value("print('alive')") == "alive"


@second
def test_a_restart_and_a_shutdown_leave_jobs_and_the_next_kernel_says_so(
    gateway: Gateway, api: Api, start: Start
) -> None:
    kernel = start()
    detached(kernel, "detached")
    running(kernel, "followed")
    before = gateway.team.kernels()[kernel.id]["metadata"]["uid"]
    kernel.restart()
    assert gateway.team.kernels()[kernel.id]["metadata"]["uid"] != before
    until(lambda: before not in gateway.team.pods(), "the old kernel's pod to go", 120)
    assert gateway.team.jobs() == {"detached", "followed"}
    # A cell that is faster than the question leaves it to a later one.
    told = "still running from before: detached"
    until(lambda: told in kernel.run(SHORT).text, "the kernel to tell of the earlier jobs", 60)
    running(kernel, "third")
    kernel.delete()
    gone(gateway, kernel)
    assert {"detached", "followed", "third"} <= gateway.team.jobs()
    assert gateway.team.phases("third") == ["Running"]


@second
def test_a_kernel_whose_pod_is_killed_leaves_its_job_to_another_kernel(
    gateway: Gateway, api: Api, start: Start
) -> None:
    kernel = start()
    running(kernel, "orphan")
    name = gateway.team.kernels()[kernel.id]["metadata"]["name"]
    gateway.team.namespace.kubectl("delete", "pod", name, "--grace-period=0", "--force")
    other = start(KERNEL_USERNAME="grace")
    attached = other.execute("%ciao attach orphan")
    other.wait_text(attached, "here")
    other.interrupt()
    other.finish(attached)
    assert gateway.team.jobs() == {"orphan"}
    deleted = other.run("%ciao delete orphan")
    assert deleted.status == "ok"
    until(lambda: not gateway.team.jobs(), "the job to go", 90)


@second
def test_a_pod_that_is_asked_to_end_heeds_it_and_leaves_its_job(
    gateway: Gateway, api: Api, start: Start, figure: Callable[[str], None]
) -> None:
    """As when its node is drained: SIGTERM has to pass the pod's first process."""
    kernel = start()
    running(kernel, "drained")
    name = gateway.team.kernels()[kernel.id]["metadata"]["name"]
    team = gateway.team.namespace
    # It stays to be seen after its end.
    keep = json.dumps({"metadata": {"finalizers": ["ciao-kernel/test"]}})
    team.kubectl("patch", "pod", name, "--type=merge", "-p", keep)
    began = time.monotonic()
    team.kubectl("delete", "pod", name, "--grace-period=140", "--wait=false")

    def code() -> int | None:
        (status,) = team.get(f"pod/{name}")["status"]["containerStatuses"]
        ended = status["state"].get("terminated")
        return ended["exitCode"] if ended else None

    try:
        until(lambda: code() is not None, "the pod's process to end", 200)
        figure(f"{time.monotonic() - began:.1f} s to the end of the pod")
        assert code() != 137, "SIGKILL ended it"
    finally:
        let_go = json.dumps({"metadata": {"finalizers": None}})
        team.kubectl("patch", "pod", name, "--type=merge", "-p", let_go)
    assert gateway.team.jobs() == {"drained"}


@second
def test_the_gateways_program_changes_nothing_in_its_image(gateway: Gateway, api: Api) -> None:
    inside = ("exec", f"deployment/{gateway.kind.name}", "--", "python3", "-c")
    status = gateway.namespace.kubectl(*inside, "print(open('/proc/1/status').read())")
    found = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert found["Uid"].split()[0] == "1000"
    assert int(found["CapEff"], 16) == int(found["CapBnd"], 16) == 0
    assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")
    for path in ("/var/tmp/x", "/opt/x", "/x"):
        with pytest.raises(ClusterError, match="Read-only file system"):
            gateway.namespace.kubectl(*inside, f"open({path!r}, 'a')")
    gateway.namespace.kubectl(*inside, "open('/tmp/x', 'w')")


def ends(gateway: Gateway, kernel: RemoteKernel, job: str) -> dict[str, network.Pod]:
    """Pods that there are: the gateway, a kernel, its job's replicas and DNS."""

    def of(space: Namespace, *which: str) -> list[network.Pod]:
        around = gateway.cluster.api.get("", f"namespace/{space.name}")["metadata"]["labels"]
        return [
            network.Pod(pod["metadata"]["labels"], space.name, around, pod["status"]["podIP"])
            for pod in space.get("pods", *which)["items"]
        ]

    (server,) = of(gateway.namespace, "-l", f"app={gateway.kind.name}")
    (own,) = of(gateway.team.namespace, "-l", f"kernel_id={kernel.id}")
    first, second = of(gateway.team.namespace, "-l", f"training.kubeflow.org/job-name={job}")
    return {"gateway": server, "kernel": own, "first": first, "second": second}


@second
def test_network_policies_fit_the_pods_that_there_are(
    gateway: Gateway, api: Api, start: Start, tmp_path: Path
) -> None:
    """This cluster enforces none (its network is a bridge), so they are read as they are there, by
    tests/helpers/network.py. tests/e2e/policies tries them on a network that enforces them."""
    team = gateway.team.namespace
    overlay = {
        "namespace": team.name,
        "resources": [os.path.relpath(DEPLOY / "team/network", tmp_path.resolve())],
        "patches": [patch("NetworkPolicy", [api_server(gateway.cluster)], "api-server")],
    }
    (tmp_path / "kustomization.yaml").write_text(json.dumps(overlay))
    gateway.cluster.kubectl("apply", "--server-side", "-k", str(tmp_path))
    kernel = start()
    two = cell("two").replace("%worker=1", "%worker=2")
    request = kernel.execute(two)
    kernel.wait_text(request, "here")
    both = ["Running", "Running"]
    until(lambda: gateway.team.phases("two") == both, "both replicas to run", 120)
    found = ends(gateway, kernel, "two")
    policies = [
        one
        for space in (team, gateway.namespace)
        for one in space.get("networkpolicies.networking.k8s.io")["items"]
    ]
    address, port = listens(gateway.cluster)
    others: dict[str, network.End] = {
        "API": network.Host(address),
        "web": network.Host("198.51.100.7"),
        "near": network.Host("10.1.2.3"),
        "metadata": network.Host("169.254.169.254"),
        "stranger": network.Pod({}, "others", ip="10.244.200.200"),
        "client": network.Pod({}, "hub", {"ciao-kernel/clients": "allowed"}),
        "DNS": network.Pod({"k8s-app": "kube-dns"}, "kube-system"),
    }
    every: dict[str, network.End] = {**found, **others}
    ports = {"API": (port,), "gateway": (8888, 8877), "metadata": (80,)}
    ports |= {"web": (443,), "near": (443,)}
    open_ways = {
        (one, other, number)
        for one, start_ in found.items()
        for other, end in every.items()
        for number in ports.get(other, (40123,))
        if one != other and network.connects(policies, start_, end, number)
    }
    assert open_ways == {
        ("gateway", "kernel", 40123),
        ("gateway", "API", port),
        ("kernel", "gateway", 8877),
        ("kernel", "API", port),
        ("kernel", "web", 443),
        ("first", "second", 40123),
        ("second", "first", 40123),
        ("first", "web", 443),
        ("second", "web", 443),
    }
    taken = {
        (one, other, number)
        for one in others
        for other, end in found.items()
        for number in ports.get(other, (40123,))
        if network.connects(policies, others[one], end, number)
    }
    assert taken == {("client", "gateway", 8888)}
    for one in found.values():
        assert network.connects(policies, one, others["DNS"], 53, "UDP")
    kernel.interrupt()
    kernel.finish(request)


@second
def test_without_rights_to_make_namespaces_a_kernel_has_to_name_one(api: Api) -> None:
    said = refusal(lambda: api.start(SPEC, KERNEL_USERNAME="ada"))
    assert said.startswith("500")
    assert "namespace" in said.lower()


@pytest.fixture(scope="module")
def lab(gateway: Gateway, api: Api, serve: Callable[..., Server]) -> Server:
    """JupyterLab on this machine, as a client of the gateway: by the command of docs/gateway.md."""
    found = [line for one in read(GUIDE) for line in command_lines(one.text)]
    (line,) = [line for line in found if "jupyter lab" in line]
    ours = {"http://GATEWAY:8888": api.url, "=TOKEN": f"={api.token}", "team-a": gateway.team.name}
    for word, own in ours.items():
        assert word in line
        line = line.replace(word, own)
    words = shlex.split(line)
    at = words.index("jupyter")
    env = dict(word.split("=", 1) for word in words[:at])
    return serve("lab", options=tuple(words[at + 2 :]), env={**env, "KERNEL_LAUNCH_TIMEOUT": "120"})


@second
def test_a_jupyter_server_before_the_gateway_speaks_the_browsers_protocol(lab: Server) -> None:
    """Chromium leaves a server that does not agree to the protocol that it asks for."""
    server = Api(lab.url, lab.token, V1)
    kernel = server.start(SPEC)
    assert kernel.run(SHORT).text.endswith("ran\n")
    kernel.delete()


@second
def test_a_fresh_kernel_of_the_gateway_is_idle_in_the_browser(
    gateway: Gateway, lab: Server, open_lab: Callable[..., Lab], figure: Callable[[str], None]
) -> None:
    began = time.monotonic()
    page = open_lab(lab, [cell("seen"), "6 * 7"], kernel=SPEC)
    figure(f"{time.monotonic() - began:.1f} s until the page's kernel is idle")
    page.run(0)
    page.wait_text(0, "[worker-0] here")
    pressed = time.monotonic()
    page.stop()
    page.wait_done(0)
    figure(f"{time.monotonic() - pressed:.1f} s from the stop button to the cell's end")
    until(lambda: "seen" not in gateway.team.jobs(), "the job to go", 90)
    page.reload()
    page.wait_idle()
    page.run(1)
    page.wait_text(1, "42")


@pytest.fixture(scope="module")
def rolled_out(gateway: Gateway, api: Api) -> tuple[Api, set[str], dict[str, str]]:
    """The gateway was replaced under kernels that worked, by one that makes namespaces and culls.

    Returns its address, the jobs that were there afterwards, and the kernels that it knows.
    """
    kernel = gateway.start(api)
    detached(kernel, "rolled-detached")
    running(kernel, "rolled-followed")
    kernel.close()
    team = gateway.team
    team.namespace.kubectl("label", "namespace", team.name, "ciao-kernel/kernels=allowed")
    changed = gateway.up("enterprise-gateway/namespaces", args=CULLING)
    gone(gateway, kernel)
    return changed, gateway.team.jobs(), changed.kernels()


@second
def test_a_rollout_of_the_gateway_leaves_jobs(
    rolled_out: tuple[Api, set[str], dict[str, str]],
) -> None:
    _, jobs, kernels = rolled_out
    assert {"rolled-detached", "rolled-followed"} <= jobs
    assert not kernels


@second
def test_culling_takes_idle_kernels_and_never_a_job(
    gateway: Gateway, rolled_out: tuple[Api, set[str], dict[str, str]]
) -> None:
    api, _, _ = rolled_out
    account = "ciao-kernel"  # this gateway's default is that of namespaces which it makes
    idle = gateway.start(api, KERNEL_SERVICE_ACCOUNT_NAME=account)
    detached(idle, "stays")
    busy = gateway.start(api, KERNEL_SERVICE_ACCOUNT_NAME=account)
    request = busy.execute(
        "%framework=tensorflow\n%name=silent\n%worker=1\n"
        "import time\nprint('here', flush=True)\ntime.sleep(45)\nprint('there')\n"
    )
    busy.wait_text(request, "here")
    until(lambda: idle.id not in api.kernels(), "the idle kernel to be culled", 120)
    busy.wait_text(request, "there")  # longer than the timeout, and it said nothing meanwhile
    assert busy.finish(request).status == "ok"
    gone(gateway, idle)
    assert "stays" in gateway.team.jobs()
    assert gateway.team.phases("stays") == ["Running"]
    busy.close()


@second
def test_a_namespace_that_goes_with_its_kernel_is_told_before_the_job_exists(
    gateway: Gateway, rolled_out: tuple[Api, set[str], dict[str, str]]
) -> None:
    api, _, _ = rolled_out
    kernel = api.start(SPEC, KERNEL_USERNAME="ada")
    place = kernel.value("import os; print(os.environ['KERNEL_NAMESPACE'])")
    assert kernel.id in place
    made = gateway.cluster.api.get("", f"namespace/{place}")
    assert made["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "baseline"
    request = kernel.execute(cell("doomed"))
    kernel.wait_text(request, "here")
    texts = [message["content"].get("text", "") for message in request.messages]
    warned = next(i for i, text in enumerate(texts) if "was made for this kernel" in text)
    shown = next(i for i, m in enumerate(request.messages) if m["msg_type"] == "display_data")
    assert warned < shown  # the job's table comes when the job exists
    kernel.delete()

    def ending() -> bool:
        try:
            found = gateway.cluster.api.get("", f"namespace/{place}")
        except ClusterError:
            return True
        return found["status"]["phase"] == "Terminating"

    until(ending, "the kernel's namespace to go", 90)


@second
def test_no_kernel_starts_in_a_namespace_that_nobody_gave_to_the_gateway(
    gateway: Gateway, rolled_out: tuple[Api, set[str], dict[str, str]]
) -> None:
    env = {"KERNEL_NAMESPACE": "kube-system", "KERNEL_SERVICE_ACCOUNT_NAME": "default"}
    assert refusal(lambda: gateway.start(rolled_out[0], **env)).startswith("500")
    assert "ciao-kernel/kernels=allowed" in gateway.log()


@second
def test_a_gateway_that_hangs_is_started_again(
    gateway: Gateway, rolled_out: tuple[Api, set[str], dict[str, str]]
) -> None:
    """It still takes connections then: only its answers tell."""
    quick = {"periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 3}
    probe = {**quick, "initialDelaySeconds": 0, "terminationGracePeriodSeconds": 1}
    name = gateway.kind.name
    container = {"name": name, "livenessProbe": probe}
    change = {"spec": {"template": {"spec": {"containers": [container]}}}}
    gateway.namespace.kubectl("patch", "deployment", name, "-p", json.dumps(change))
    rollout = ("rollout", "status", f"deployment/{name}", "--timeout=140s")
    gateway.namespace.kubectl(*rollout)
    api = rolled_out[0]
    until(api.answers, "the gateway to answer", 120)
    gateway.freeze()
    until(lambda: gateway.restarts() > 0, "the gateway to be started again", 120)
    until(api.answers, "the gateway to answer again", 120)
