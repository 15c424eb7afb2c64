"""Warm replicas while the kubelet or containerd is started again, and while their kernel sleeps."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from ciao_kernel.session.session import Session
from ciao_kernel.session.warm.pool import WarmPool
from tests.cluster.cluster import Cluster
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import Team, rules
from tests.e2e.jobs.test_kernel import ciao, environment, wait_for_deletions
from tests.e2e.jobs.test_warm import WARM, as_kernel, ended
from tests.helpers.colors import uncolored
from tests.helpers.jobs import Recorder
from tests.helpers.kernels import Kernel, Request, lines_of

HEAD = "%framework=tensorflow\n%worker=2\n%successPolicy=allWorkers\n%warm\n"
SAYS = """
import time
for line in range({0}):
    print("line", line, flush=True)
    time.sleep({1})
"""
LEASE = 20.0
"""Seconds: not so short that a busy machine's kernel cannot renew it."""
SHORT_LEASE = f"""
from ciao_kernel.jupyter import cells
from ciao_kernel.session.warm.pool import WarmPool

assert not cells._session.cache_info().currsize, "the first job cell takes the pool"
pool = WarmPool(run_lease={LEASE})
cells._warm_pool = lambda: pool
"""
"""Gives a kernel shorter leases, before its first cell with a job."""
SLOW_END = """
from ciao_kernel.jupyter import orderly_end
from ciao_kernel.session import stopping

stopping._PROMPT = orderly_end._CLOSE_TIMEOUT = 60.0
"""
"""Lets a kernel see the end of a run that it stops, and then end the replicas, however slow a busy
cluster is."""

pytestmark = [pytest.mark.second("faults"), pytest.mark.slow]


@pytest.fixture
def team(team: Team) -> Team:
    """A user who may also write to replicas."""
    team.user.allow(*rules(), *rules(WARM))
    return team


def both_say(kernel: Kernel, cell: Request, text: str) -> None:
    """Wait until a cell has shown a text of both replicas."""
    wanted = [f"[worker-{number}] {text}" for number in (0, 1)]
    kernel.wait(lambda: all(one in uncolored(cell.text) for one in wanted), f"{text!r} of both")


def lines(count: int) -> list[str]:
    return [f"line {number}" for number in range(count)]


@pytest.mark.breaks_cluster
@pytest.mark.parametrize("part", ["kubelet", "containerd"])
def test_a_part_of_the_node_is_started_again_in_a_run_and_between_two(
    team: Team, broken: Cluster, part: str
) -> None:
    async def body(session: Session) -> None:
        display = Recorder()
        text = HEAD + SAYS.format(100, 0.1)
        work = asyncio.ensure_future(session.run(text, display, team.folder))
        for replica in ("worker-0", "worker-1"):
            await display.until("line 10\n", replica=replica)
        await again(broken, part)
        await work
        for replica in ("worker-0", "worker-1"):
            assert display.data(replica).decode().splitlines() == lines(100)
        assert "may be lost" not in display.notices
        await next_cell_works(team, session, display, 2)
        await again(broken, part)
        await next_cell_works(team, session, display, 3)

    as_kernel(team, body)


async def again(broken: Cluster, part: str) -> None:
    """End a part of the node as an upgrade does, and start it."""
    await asyncio.to_thread(broken.stop, part)
    await asyncio.to_thread(broken.start, part)


async def next_cell_works(team: Team, session: Session, first: Recorder, run: int) -> None:
    """Run another cell in the replicas of the first; it is this run in them."""
    one = await ended(team, session, HEAD + SAYS.format(3, 0))
    assert one.error is None, one.error
    assert first.job is not None
    assert (one.job.name, one.job.warm_run) == (first.job.name, run), one.display.notices
    for replica in ("worker-0", "worker-1"):
        assert one.display.data(replica).decode().splitlines() == lines(3)


def test_a_kernel_that_was_silent_past_the_lease_starts_new_replicas_and_says_why(
    team: Team,
) -> None:
    async def body(session: Session) -> None:
        first = await ended(team, session, HEAD + SAYS.format(3, 0))
        assert first.error is None, first.error
        await asyncio.sleep(2 * LEASE)  # this kernel is there: they wait
        second = await ended(team, session, HEAD + SAYS.format(3, 0))
        assert (second.error, second.job.warm_run) == (None, 2)
        time.sleep(LEASE + 5)  # as a plain cell does, and as a process that was stopped
        third = await ended(team, session, HEAD + SAYS.format(3, 0))
        assert third.error is None, third.error
        assert third.job.warm_run == 1
        assert (
            f"the warm replicas of {first.job.name} have ended, because they heard nothing of "
            "this kernel for too long; new ones start"
        ) in third.display.notices
        assert third.display.data("worker-1").decode().splitlines() == lines(3)

    as_kernel(team, body, WarmPool(lease=LEASE))


@pytest.mark.timeout(500)
def test_a_kernel_that_sleeps_in_a_run_ends_its_cell_by_the_truth(
    team: Team, start_kernel: Callable[..., Any]
) -> None:
    kernel = start_kernel(env=environment(team))
    shorter = kernel.run(SHORT_LEASE)
    assert shorter.status == "ok", shorter.of("error")
    head = HEAD + "%name=sleeps\n"
    cell = kernel.execute(head + SAYS.format(200, 0.15))
    both_say(kernel, cell, "line 3\n")
    kernel.process.suspend()

    def over() -> bool:
        pods = team.namespace.get("pods")["items"]
        return all(pod["status"]["phase"] == "Succeeded" for pod in pods)

    try:
        until(over, "the replicas to end as their program", 240)
    finally:
        kernel.process.send_signal(signal.SIGCONT)
    kernel.finish(cell)
    assert cell.status == "ok", cell.of("error")
    for replica in (0, 1):
        got = lines_of(cell.text, f"worker-{replica}")
        assert got == [f"[worker-{replica}] {line}" for line in lines(200)]
    assert "stay warm" not in cell.text
    attached = uncolored(kernel.run("%ciao attach sleeps").text)
    assert attached.count("[worker-1] line ") == 200
    again = kernel.run(head + "print('well')")
    assert again.status == "ok", again.of("error")
    assert again.text.count("well\n") == 2
    assert (
        "the warm replicas of sleeps have ended, because they heard nothing of this kernel for too "
        "long; new ones start"
    ) in again.text


@pytest.mark.parametrize("policy", ["leave", "delete"])
def test_the_end_of_a_kernel_in_a_run_follows_its_setting(
    team: Team, start_kernel: Callable[..., Any], policy: str
) -> None:
    kernel = start_kernel(env={**environment(team), "CIAO_ON_SHUTDOWN": policy})
    wait_for_deletions(kernel)
    assert kernel.run(SLOW_END).status == "ok"
    cell = kernel.execute(HEAD + "%name=ends\n" + SAYS.format(100_000, 0.2))
    both_say(kernel, cell, "line 3\n")
    process = kernel.process
    kernel.shutdown()
    process.wait(60)

    def said() -> int:
        return ciao(team, "logs", "ends", "--run", "1", "--replica", "worker-1").count("line ")

    if policy == "leave":
        before = said()
        assert before > 3
        until(lambda: said() > before + 10, "the run to go on", 60)
        ciao(team, "delete", "ends")
    until(lambda: not running(team), "the replicas to end", 120)


def running(team: Team) -> list[str]:
    """Return the pods that run."""
    pods = team.namespace.get("pods")["items"]
    return [one["metadata"]["name"] for one in pods if one["status"]["phase"] == "Running"]
