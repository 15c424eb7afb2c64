"""Warm replicas in namespaces with limits, and while nodes and connections fail."""

from __future__ import annotations

import asyncio
import contextlib
import os

import pytest

from ciao_kernel.errors import CiaoError, JobFailed
from ciao_kernel.model import Owner
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session
from ciao_kernel.session.warm.pool import WarmPool
from tests.cluster.errors import ClusterError
from tests.cluster.faults import policies
from tests.cluster.faults.proxy import Proxy
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import Team, rules
from tests.e2e.jobs.test_evictions import evict
from tests.e2e.jobs.test_warm import WARM, as_kernel, ended, pods
from tests.helpers.jobs import Recorder, interrupted, wait

HEAD = "%framework=tensorflow\n%worker=2\n%successPolicy=allWorkers\n%warm\n"


@pytest.fixture
def team(team: Team) -> Team:
    """A user who may also write to replicas."""
    team.user.allow(*rules(), *rules(WARM))
    return team


@pytest.mark.second("faults")
def test_replicas_that_fill_the_quota_run_edited_cells_and_make_room_for_others(
    team: Team,
) -> None:
    policies.put_quota(team.namespace, limits_cpu="500m")
    head = HEAD.replace("%worker=2", "%worker=2;%cpu=200m")

    async def body(session: Session) -> None:
        for number in (1, 2, 3):
            one = await ended(team, session, head + f"print('edit {number}')")
            assert one.error is None, one.error
            assert one.job.warm_run == number
        other = head.replace("200m", "250m")
        another = await ended(team, session, other + "print('other')")
        assert another.error is None, another.error
        assert another.display.data("worker-1") == b"other\n"
        assert f"the warm replicas of {one.job.name} end" in another.display.notices

    as_kernel(team, body)


@pytest.mark.second("faults")
def test_restricted_pods_with_a_root_that_is_read_only_stay_warm(team: Team) -> None:
    team.namespace.label(policies.pod_security("restricted"))
    team.images["tensorflow"] = team.namespace.cluster.image("s2i-python")
    patch = (
        "spec:\n  containers:\n  - name: tensorflow\n"
        "    securityContext: {readOnlyRootFilesystem: true}\n"
        "    volumeMounts: [{name: scratch, mountPath: /tmp}]\n"
        "  volumes: [{name: scratch, emptyDir: {}}]\n"
    )
    (team.folder / "patch.yaml").write_text(patch)
    program = (
        "import os\ntry:\n    open('/opt/file', 'w')\nexcept OSError as error:\n"
        "    print(os.getuid(), error.strerror)\nopen('kept', 'w').write('{0}')\n"
    )

    async def body(session: Session) -> None:
        names = set[str]()
        for number in (1, 2):
            text = HEAD + "%podPatch=patch.yaml\n" + program.format(number)
            one = await ended(team, session, text)
            assert one.error is None, one.error
            assert one.display.data("worker-1") == b"1001 Read-only file system\n"
            names |= pods(team)
        assert len(names) == 2

    as_kernel(team, body)


@pytest.mark.second("faults")
@pytest.mark.parametrize("when", ["in a run", "between runs"])
def test_an_evicted_replica_ends_the_run_and_the_next_one_starts_new_ones(
    team: Team, when: str
) -> None:
    async def body(session: Session) -> None:
        display = Recorder()
        program = HEAD + "import time\nprint('000020', flush=True)\n"
        if when == "in a run":
            program += "time.sleep(1000)\n"
        work = asyncio.ensure_future(session.run(program, display, team.folder))
        for replica in ("worker-0", "worker-1"):
            await display.until("000020", replica=replica)
        if when == "between runs":
            await work
        assert session.warm is not None
        pool = session.warm
        await evict(team, display, "worker-1")
        if when == "in a run":
            with pytest.raises(CiaoError):
                await work
            assert display.data("worker-0") == display.data("worker-1") == b"000020\n"
        await wait(lambda: pool.parked is None)
        again = await ended(team, session, HEAD + "print('well')")
        assert again.error is None, again.error
        assert again.job.warm_run == 1

    as_kernel(team, body)


KILL = """
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        words = open(f"/proc/{pid}/cmdline").read().split("\\0")
    except OSError:  # it has ended
        continue
    if any(word.endswith("ciao_warm_agent.py") for word in words):
        os.kill(int(pid), 9)
"""


@pytest.mark.second("faults")
def test_a_killed_agent_fails_the_run_and_the_next_one_starts_new_replicas(team: Team) -> None:
    async def body(session: Session) -> None:
        display = Recorder()
        program = "import time\nprint('up', flush=True)\ntime.sleep(1000)\n"
        work = asyncio.ensure_future(session.run(HEAD + program, display, team.folder))
        await display.until("up", replica="worker-1")
        assert session.warm is not None
        assert display.job is not None
        pool, pod = session.warm, f"{display.job.name}-worker-1"
        argv = ("exec", pod, "--", "python3", "-c", KILL)
        with contextlib.suppress(ClusterError):  # the container ends with it
            await asyncio.to_thread(team.namespace.kubectl, *argv)
        with pytest.raises(CiaoError):
            await work
        await wait(lambda: pool.parked is None)
        again = await ended(team, session, HEAD + "print('well')")
        assert again.error is None, again.error
        assert again.job.warm_run == 1

    as_kernel(team, body)


@pytest.mark.second("faults")
def test_another_kernel_follows_a_run_and_both_show_each_line_once(team: Team) -> None:
    program = (
        "import time\nfor line in range(300):\n    print('line', line, flush=True)\n"
        "    time.sleep(0.01)\n"
    )
    lines = [f"line {number}" for number in range(300)]

    async def body(session: Session) -> None:
        registry = Registry({})
        other = Session(registry, Owner("another", os.getpid()), team.settings())
        display, seen = Recorder(), Recorder()
        work = asyncio.ensure_future(session.run(HEAD + program, display, team.folder))
        await display.until("line 20")
        assert display.job is not None
        async with contextlib.AsyncExitStack() as at_end:
            at_end.push_async_callback(registry.close)
            attached = asyncio.ensure_future(other.attach(display.job.name, seen))
            at_end.push_async_callback(interrupted, attached)
            await work
            for replica in ("worker-0", "worker-1"):
                await seen.until("line 299\n", replica=replica)
                for one in (display, seen):
                    assert one.data(replica).decode().splitlines() == lines
            await at_end.pop_all().aclose()
            again = await ended(team, session, HEAD + "print('well')")
            assert again.job.warm_run == 2, "whoever follows leaves the replicas as they are"

    as_kernel(team, body)


@pytest.mark.second("faults")
@pytest.mark.timeout(400)
def test_a_run_that_outlasts_its_connections_ends_as_an_ordinary_job(
    team: Team, proxy: Proxy
) -> None:
    program = (
        "import os, time\nfor line in range(30):\n    print('line', line, flush=True)\n"
        "    time.sleep(1)\nraise SystemExit(3)\n"
    )

    async def body(session: Session) -> None:
        display = Recorder()
        head = "%framework=pytorch\n%runner=python\n%warm\n"
        work = asyncio.ensure_future(session.run(head + program, display, team.folder))
        await display.until("line 3\n", replica="master-0")
        await asyncio.to_thread(proxy.stall)

        def over() -> bool:
            (pod,) = team.namespace.get("pods")["items"]
            return bool(pod["status"]["phase"] == "Failed")

        await asyncio.to_thread(until, over, "the replica to end as its program", 200)
        await asyncio.to_thread(proxy.reset)  # silent ones break by themselves later
        await asyncio.to_thread(proxy.pass_on)
        with pytest.raises(JobFailed, match="exit code 3"):
            await work
        got = display.data("master-0").decode().splitlines()
        assert got == [f"line {number}" for number in range(30)]

    as_kernel(team, body, WarmPool(run_lease=9.0))
