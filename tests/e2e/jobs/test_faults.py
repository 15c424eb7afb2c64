"""Cells whose cluster fails while they run: every line once, the right end, nothing left."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ciao_kernel.errors import ClusterFault, JobFailed
from ciao_kernel.model import State, Status
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session
from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.faults.pods import PodPart
from tests.cluster.faults.proxy import Proxy
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import Team
from tests.e2e.jobs.test_interrupts import said, wrote
from tests.helpers.jobs import Ended, Recorder, wait

Work = asyncio.Task[Ended]
Figure = Callable[[str], None]

HEAD = "%framework=tensorflow\n%cleanPolicy=all\n"
BOTH = HEAD + "%successPolicy=allWorkers\n%worker=2\n"
"""Else the operator ends worker-1 when worker-0 is done, however late worker-1 began."""
RATE = 100


def paced(numbers: str) -> str:
    """A program that prints a line for each number, and none later than it is due.

    Each is one write: last words may come at any moment.
    """
    return (
        f"import itertools, os, time\nbegan = time.monotonic()\nfor n in {numbers}:\n"
        f"    time.sleep(max(0, began + n / {RATE} - time.monotonic()))\n"
        "    print(f'{n:06d}\\n', end='', flush=True)\n"
    )


def numbered(lines: int) -> str:
    """A program that prints so many numbered lines."""
    return paced(f"range({lines})")


END = "/tmp/end"
"""A file in a pod: where it is, the program ends."""
ENDLESS = paced("itertools.count()") + f"    if os.path.exists({END!r}): break\nprint('the end')\n"
"""Prints numbered lines until the test has done all its harm."""


def node(cluster: Cluster, resource: str, amount: str = "") -> None:
    """Give the node so much of ``example.com/RESOURCE``, or take it away."""
    # Allocatable too, which the kubelet else makes of the capacity some ten seconds later.
    paths = [f"/status/{one}/example.com~1{resource}" for one in ("capacity", "allocatable")]
    change = {"op": "add", "value": amount} if amount else {"op": "remove"}
    patch = json.dumps([{**change, "path": path} for path in paths])
    argv = ("--subresource=status", "--type=json", "-p", patch)
    cluster.kubectl("patch", "node", cluster.at.node, *argv)


async def end(team: Team, display: Recorder, *replicas: str) -> None:
    """Let replicas of `ENDLESS` end."""
    assert display.job
    await end_job(team, display.job.name, *replicas)


async def end_job(team: Team, name: str, *replicas: str) -> None:
    """The same for a job that nobody follows.

    Servers that have just started may refuse that at first.
    """
    for replica in replicas:

        def touched(pod: str = f"{name}-{replica}") -> bool:
            with contextlib.suppress(ClusterError):
                team.namespace.touch(pod, END)
                return True
            return False

        await asyncio.to_thread(until, touched, f"{replica} to be told to end", 60)


def whole(display: Recorder, *replicas: str) -> str:
    """Every line of every replica of `ENDLESS` came once, in order; returns a figure."""
    lines = 0
    for replica in replicas:
        *got, last = display.data(replica).decode().splitlines()
        assert last == "the end"
        assert got == [f"{n:06d}" for n in range(len(got))], f"{replica}: {len(got)} lines"
        lines += len(got)
    return f"{lines} lines, 0 lost, 0 doubled"


def complete(display: Recorder, lines: int, *replicas: str) -> str:
    """Every line of every replica came once, in order; returns a figure."""
    lost = doubled = 0
    wanted = [f"{n:06d}" for n in range(lines)]
    for replica in replicas:
        got = display.data(replica).decode().split()
        lost += len(set(wanted) - set(got))
        doubled += len(got) - len(set(got))
        assert got == wanted, f"{replica}: {len(got)} of {lines} lines, {doubled} doubled"
    return f"{lines * len(replicas)} lines, {lost} lost, {doubled} doubled"


def well(team: Team, ended: Ended) -> None:
    """The cell ended well, and nothing is left."""
    assert ended.error is None, ended.error
    assert ended.result
    assert ended.result.state is State.SUCCEEDED
    assert "may be lost" not in ended.display.notices
    # An operator that lost the server too may make pods again of the job that it remembers; the
    # cluster collects what has no owner.
    until(lambda: not team.left(), f"nothing to be left, behind {ended.display.notices!r}", 60)


@pytest.mark.second("faults")
@pytest.mark.slow
def test_a_hundred_cut_connections(team: Team, proxy: Proxy, figure: Figure) -> None:
    cuts = 0

    async def during(display: Recorder, work: Work) -> None:
        nonlocal cuts
        await wrote(display, "000010", "worker-0", "worker-1")
        for how in itertools.cycle((
            proxy.reset, proxy.close, lambda: proxy.reset(inside_record=True),
            lambda: proxy.truncate(2000),
        )):  # fmt: skip
            if cuts == 100 or work.done():
                break
            await asyncio.to_thread(how)
            await asyncio.sleep(0.02)
            await asyncio.to_thread(proxy.pass_on)
            await asyncio.sleep(0.03)
            cuts += 1
        await end(team, display, "worker-0", "worker-1")

    ended = team.run(BOTH + ENDLESS, during=during)
    well(team, ended)
    assert cuts == 100
    figure(whole(ended.display, "worker-0", "worker-1"))


@pytest.mark.stands_for("faults")
@pytest.mark.breaks_cluster
@pytest.mark.slow
def test_an_api_server_that_is_away_for_a_while(
    team: Team, broken: Cluster, figure: Figure
) -> None:
    async def during(display: Recorder, work: Work) -> None:
        await wrote(display, "000010", "worker-0", "worker-1")
        await asyncio.to_thread(broken.kill, "apiserver")
        await said(display, "the API server does not answer")
        await asyncio.sleep(2)
        await asyncio.to_thread(broken.start, "apiserver")
        await said(display, "the API server answers again.")
        await end(team, display, "worker-0", "worker-1")

    ended = team.run(BOTH + ENDLESS, during=during)
    well(team, ended)
    figure(whole(ended.display, "worker-0", "worker-1"))


@pytest.mark.second("faults")
@pytest.mark.breaks_cluster
@pytest.mark.slow
def test_a_kubelet_that_is_restarted(team: Team, broken: Cluster, figure: Figure) -> None:
    async def during(display: Recorder, work: Work) -> None:
        await wrote(display, "000010", "worker-0", "worker-1")
        await asyncio.to_thread(broken.stop, "kubelet")
        await asyncio.to_thread(broken.start, "kubelet")
        await end(team, display, "worker-0", "worker-1")

    ended = team.run(BOTH + ENDLESS, during=during)
    well(team, ended)
    figure(whole(ended.display, "worker-0", "worker-1"))


@pytest.mark.second("faults")
@pytest.mark.slow
def test_credentials_that_end_are_read_again(
    team: Team, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: Figure
) -> None:
    like = proxy.kubeconfig(tmp_path / "like")
    file, token = tmp_path / "short", team.user.token()
    monkeypatch.setenv("KUBECONFIG", str(token.kubeconfig(file, like)))
    asking = token.kubeconfig(tmp_path / "asking", like)

    def refused() -> bool:
        try:
            team.namespace.kubectl("get", "pods", "--kubeconfig", str(asking))
        except ClusterError as error:
            return "(Unauthorized)" in str(error)
        return False

    async def during(display: Recorder, work: Work) -> None:
        await wrote(display, "000010", "worker-0", "worker-1")
        await asyncio.to_thread(token.invalidate)
        # The API server remembers for some seconds whom it believed.
        await asyncio.to_thread(until, refused, "the token to be refused", 60)
        accepted = proxy.traffic.accepted
        await asyncio.to_thread(proxy.reset)
        await asyncio.to_thread(proxy.pass_on)
        await wait(lambda: proxy.traffic.accepted > accepted)
        fresh = await asyncio.to_thread(team.user.token)
        new = fresh.kubeconfig(tmp_path / "new", like)
        new.replace(file)
        before = len(display.data("worker-1"))
        await wait(lambda: len(display.data("worker-1")) > before)
        await end(team, display, "worker-0", "worker-1")

    ended = team.run(BOTH + ENDLESS, during=during)
    well(team, ended)
    figure(whole(ended.display, "worker-0", "worker-1"))


@pytest.mark.second("faults")
@pytest.mark.slow
def test_an_api_server_that_is_away_for_too_long(team: Team, proxy: Proxy, figure: Figure) -> None:
    async def during(display: Recorder, work: Work) -> None:
        await wrote(display, "000010", "worker-1")
        await asyncio.to_thread(proxy.refuse)
        await asyncio.wait({work}, timeout=60)
        await asyncio.to_thread(proxy.pass_on)

    ended = team.run(BOTH + ENDLESS, during=during, follow_patience=3.0)
    assert isinstance(ended.error, ClusterFault)
    name = ended.job.name
    assert f"{name} may still be running." in ended.error.message
    assert f"`%ciao attach {name}`" in ended.error.hint

    async def attach() -> Recorder:
        registry, display = Registry({}), Recorder()
        session = Session(registry, None, team.settings())  # type: ignore[arg-type]
        work = asyncio.ensure_future(session.attach(name, display))
        await wrote(display, "000010", "worker-0", "worker-1")
        await end_job(team, name, "worker-0", "worker-1")
        assert (await work).state is State.SUCCEEDED
        backend, job, _ = await session.find(name)
        await backend.delete(job)
        await registry.close()
        return display

    figure(whole(asyncio.run(attach()), "worker-0", "worker-1"))
    assert team.left() == [], ended.display.notices


LAST_WORDS = (
    "import os, signal\ndef end(*_):\n    os.write(1, b'last words\\n')\n    os._exit(143)\n"
    "signal.signal(signal.SIGTERM, end)\n"
)
"""Not by print, which the signal may interrupt between a number and its line feed."""


LAST_MASTER = """
import socket
port = int(os.environ['MASTER_PORT'])
if os.environ['CIAO_ROLE'] == 'master':
    socket.create_server(('', port)).accept()
else:
    while True:
        try:
            socket.create_connection((os.environ['MASTER_ADDR'], port), 5)
            break
        except OSError:
            time.sleep(0.2)
"""
"""The master, whose end is the job's, waits for the worker; nothing of PyTorch runs here."""


async def delete_worker(team: Team, display: Recorder, name: str) -> None:
    await wrote(display, "000020", name)
    assert display.job
    argv = ("delete", f"pod/{display.job.name}-{name}", "--wait=false")
    await asyncio.to_thread(team.namespace.kubectl, *argv)


@pytest.mark.stands_for("faults")
@pytest.mark.slow
def test_a_pod_that_is_deleted_under_its_job(team: Team, figure: Figure) -> None:
    """The operator makes it again under its name; what both of them wrote arrives."""

    async def during(display: Recorder, work: Work) -> None:
        await delete_worker(team, display, "worker-0")
        again = b"last words\n000000\n"
        await wait(lambda: b"\n000020\n" in display.data("worker-0").partition(again)[2], 120)
        await end(team, display, "worker-0", "master-0")

    text = (
        "%framework=pytorch\n%cleanPolicy=all\n%restartPolicy=OnFailure\n%runner=python\n"
        f"%master=1\n%worker=1\n{LAST_WORDS}"
    )
    ended = team.run(text + ENDLESS + LAST_MASTER, during=during)
    well(team, ended)
    got = ended.display.data("worker-0").decode().split("\n")
    first = got[: got.index("last words")]
    assert len(first) > 20
    assert first == [f"{n:06d}" for n in range(len(first))]
    *second, last, nothing = got[len(first) + 1 :]
    assert second == [f"{n:06d}" for n in range(len(second))]
    assert (last, nothing) == ("the end", "")
    lines = f"{len(first) + len(second)} lines, 0 lost, 0 doubled"
    figure(f"{lines}; the master: {whole(ended.display, 'master-0')}")


@pytest.mark.second("faults")
def test_a_pod_that_is_deleted_under_a_job_without_restarts(team: Team, figure: Figure) -> None:
    """For a TFJob a pod that is being deleted has failed, and the operator stops the others."""

    async def during(display: Recorder, work: Work) -> None:
        await delete_worker(team, display, "worker-1")

    ended = team.run(BOTH + ENDLESS, during=during)
    assert isinstance(ended.error, JobFailed)
    got = ended.display.data("worker-1").decode().split()
    assert len(got) > 20
    assert got == [f"{n:06d}" for n in range(len(got))]
    assert team.left() == [], ended.display.notices
    figure(f"{len(got)} lines, 0 lost, 0 doubled")


@pytest.mark.second("faults")
@pytest.mark.slow
def test_a_container_that_starts_again_in_its_pod(team: Team, figure: Figure) -> None:
    """The first wait is short, the second is ten seconds: the kubelet's."""
    program = (
        "import os\nruns = len(os.listdir('/ciao'))\nopen(f'/ciao/run-{runs}', 'w')\n"
        "again = os.environ['CIAO_REPLICA'] == 'worker-1' and not os.path.exists('/ciao/third')\n"
        "third = sum(name.startswith('run-') for name in os.listdir('/ciao')) == 3\n"
        "if again:\n    for n in range(100): print(f'{n:06d}', flush=True)\n"
        "    raise SystemExit(0 if third else 1)\n"
    )
    ended = team.run("%restartPolicy=OnFailure\n" + BOTH + program + numbered(100))
    well(team, ended)
    got = ended.display.data("worker-1").decode().split()
    assert got == [f"{n:06d}" for n in range(100)] * 3
    figure(f"{len(got)} lines, 0 lost, 0 doubled; " + complete(ended.display, 100, "worker-0"))


@pytest.mark.second("faults")
@pytest.mark.slow
def test_a_replica_that_starts_long_after_the_others(
    team: Team, local_cluster: Cluster, figure: Figure
) -> None:
    async def during(display: Recorder, work: Work) -> None:
        await wrote(display, "000300", "worker-0")
        await wait(lambda: "Insufficient example.com/late" in "".join(display.reasons("chief")))
        assert display.state("chief-0") is State.PENDING
        await asyncio.to_thread(node, local_cluster, "late", "1")

    try:
        text = HEAD + "%chief=1;%gpu=example.com/late:1\n%worker=1\n" + numbered(400)
        ended = team.run(text, during=during)
    finally:
        node(local_cluster, "late")
    well(team, ended)
    figure(complete(ended.display, 400, "chief-0", "worker-0"))


@pytest.fixture
def without_webhooks(broken: Cluster, team: Team) -> Iterator[None]:
    """The operator's webhooks do not ask about this namespace: else it cannot be away."""
    name = "validatingwebhookconfiguration/validator.training-operator.kubeflow.org"
    webhooks = broken.api.get("", name)["webhooks"]

    def select(selector: object) -> None:
        patch = [
            {"op": "add", "path": f"/webhooks/{number}/namespaceSelector", "value": selector}
            for number in range(len(webhooks))
        ]
        broken.kubectl("patch", name, "--type=json", "-p", json.dumps(patch))

    other = {"key": "kubernetes.io/metadata.name", "operator": "NotIn"}
    select({"matchExpressions": [{**other, "values": [team.namespace.name]}]})
    yield
    select({})


@pytest.mark.second("faults")
@pytest.mark.usefixtures("without_webhooks")
@pytest.mark.breaks_cluster
@pytest.mark.slow
def test_an_operator_that_is_away_when_a_job_is_submitted(
    team: Team, broken: Cluster, figure: Figure
) -> None:
    operator = PodPart(broken, "training-operator")
    said_of: set[str] = set()

    async def during(display: Recorder, work: Work) -> None:
        await wait(lambda: bool(display.begun))
        async with asyncio.timeout(60):
            while "no pod yet: the training operator does not answer" not in said_of:
                await asyncio.sleep(0.2)
                if any(isinstance(event, Status) for event in display.events):
                    said_of.update(one.reason for one in display.status.replicas)
        await asyncio.to_thread(operator.thaw)

    operator.freeze()
    try:
        ended = team.run(BOTH + numbered(100), during=during)
    finally:
        operator.thaw()
    well(team, ended)
    figure(complete(ended.display, 100, "worker-0", "worker-1"))


@pytest.mark.second("faults")
@pytest.mark.slow
def test_two_jobs_of_three_workers_on_four_slots(
    team: Team, local_cluster: Cluster, figure: Figure
) -> None:
    """The second one has a slot for one of its workers, holds it for nothing, and says so."""
    three = BOTH.replace("%worker=2", "%worker=3;%gpu=example.com/slot:1")
    all_of_them = ("worker-0", "worker-1", "worker-2")

    async def during(display: Recorder, work: Work) -> None:
        await wait(lambda: "1 of 3 replicas holds a node" in display.notices, 300)
        assert "Insufficient example.com/slot" in display.notices
        assert "With a queue (%queue) a job starts as a whole" in display.notices
        await wait(lambda: display.status.message.startswith("1 of 3 replicas holds a node"))
        await end_job(team, "first", *all_of_them)
        await wrote(display, "000000", *all_of_them)
        await wait(lambda: display.status.message == "")
        await end(team, display, *all_of_them)

    try:
        node(local_cluster, "slot", "4")
        first = team.run("%name=first\n%detach\n" + three + ENDLESS)
        assert first.error is None, first.error
        for replica in all_of_them:
            team.namespace.wait_for_pod(f"first-{replica}", "Running")
        second = team.run("%name=second\n" + three + ENDLESS, during=during)
        assert second.error is None, second.error
    finally:
        node(local_cluster, "slot")
    assert second.display.notices.count("holds a node") == 1
    figure(f"{len(second.display.events)} events, one of them says it")
