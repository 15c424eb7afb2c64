"""A kernel's end leaves its job on the cluster, though every orderly end begins as a stop does."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster.faults.proxy import Proxy
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import Team
from tests.e2e.jobs.test_kernel import environment, wait_for_deletions
from tests.helpers.kernels import Kernel, Place

Start = Callable[..., Kernel]
Figure = Callable[[str], None]

COUNT = int(os.environ.get("CIAO_TEST_SHUTDOWNS", "4"))
AT_ONCE = 4
BURNERS = 2 * (os.cpu_count() or 1)


def cell(name: str) -> str:
    return (
        f"%framework=tensorflow\n%name={name}\n%worker=1\n"
        "import time\nprint('here', flush=True)\ntime.sleep(300)\n"
    )


def running(kernel: Kernel, name: str) -> None:
    """Start a job and see it run; its cell goes on."""
    request = kernel.execute(cell(name))
    kernel.wait_text(request, "here")


def ended(kernel: Kernel) -> bool:
    return not kernel.process.is_running() or kernel.process.status() == "zombie"


def terminate(kernel: Kernel) -> None:
    """As a container is stopped: SIGTERM to the process, and no message."""
    kernel.process.send_signal(signal.SIGTERM)
    until(lambda: ended(kernel), "the kernel to end", 60)


def roll_out(kernel: Kernel) -> None:
    """As Enterprise Gateway ends all kernels when it is replaced: no shutdown request comes."""
    kernel.process.send_signal(signal.SIGINT)
    time.sleep(2)
    terminate(kernel)


ENDS: dict[str, Callable[[Kernel], None]] = {
    "shutdown": Kernel.shutdown,
    "restart": Kernel.restart,
    "terminated": terminate,
    "rolled-out": roll_out,
}


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """Keep all processors busy."""
    argv = [sys.executable, "-c", "while True: pass"]
    burners = [subprocess.Popen(argv) for _ in range(BURNERS)]
    try:
        yield
    finally:
        for one in burners:
            one.kill()
            one.wait()


def jobs(team: Team) -> set[str]:
    return {one.removeprefix("TFJob/") for one in team.left() if one.startswith("TFJob/")}


def untouched(team: Team, *names: str) -> None:
    """These jobs are there, their pods run, and nobody has asked any of it to go."""
    assert jobs(team) == set(names)
    found: list[Any] = []

    def run() -> bool:
        found[:] = team.namespace.get("tfjobs,pods")["items"]
        phases = [one["status"]["phase"] for one in found if one["kind"] == "Pod"]
        return phases == ["Running"] * len(names)

    # A node serves the lines of a container before the API says that it runs.
    until(run, "the pods to be said to run", 60)
    assert {one["metadata"]["name"] for one in found if one["kind"] == "TFJob"} == set(names)
    assert not [one["metadata"]["name"] for one in found if "deletionTimestamp" in one["metadata"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "end",
    [
        "shutdown",
        "restart",
        "terminated",
        # The moments of a roll-out are the gateway's own.
        pytest.param("rolled-out", marks=pytest.mark.alone),
    ],
)
def test_every_end_leaves_the_job(team: Team, start_kernel: Start, end: str) -> None:
    more = {"RESPONSE_ADDRESS": "10.0.0.1:8877"} if end == "rolled-out" else {}
    kernel = start_kernel("ciao-signal", {**environment(team), **more})
    process = kernel.process
    running(kernel, "mine")
    ENDS[end](kernel)
    process.wait(60)  # A stop would have been this process's work.
    untouched(team, "mine")


@pytest.mark.second("faults")
def test_a_kernel_that_is_culled_leaves_its_job(team: Team, place: Place) -> None:
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager

    async def main() -> None:
        specs = KernelSpecManager(kernel_dirs=[str(place.kernels)], ensure_native_kernel=False)
        manager = AsyncMappingKernelManager(
            kernel_spec_manager=specs, root_dir=str(place.work), connection_dir=str(place.folder),
            cull_idle_timeout=60, cull_interval=1, cull_busy=True, cull_connected=True,
        )  # fmt: skip
        env = {**place.env, **environment(team)}
        one = await manager.start_kernel(kernel_name="ciao", env=env)
        kernel = manager.get_kernel(one)
        client: Any = kernel.client()
        client.start_channels()
        try:
            await client.wait_for_ready(timeout=60)
            client.execute(cell("mine"))
            text = ""
            async with asyncio.timeout(90):
                while "here" not in text:
                    message = await client.get_iopub_msg(timeout=90)
                    text += message["content"].get("text", "")
            async with asyncio.timeout(60):
                while one in manager:  # The table moves, which counts as activity.
                    long_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
                    kernel.last_activity = long_ago
                    await asyncio.sleep(0.05)
        finally:
            client.stop_channels()
            await manager.shutdown_all(now=True)

    asyncio.run(main())
    untouched(team, "mine")


@pytest.mark.second("trials")
@pytest.mark.alone  # it takes all processors from whoever runs beside it
@pytest.mark.slow
def test_shutdowns_under_load_lose_no_job(team: Team, start_kernel: Start, figure: Figure) -> None:
    """Orderly shutdowns and restarts by turns, while nothing gets the processor in time."""
    names = [f"job-{number}" for number in range(COUNT)]
    for some in (names[at : at + AT_ONCE] for at in range(0, COUNT, AT_ONCE)):
        kernels = []
        for number, name in enumerate(some):
            mode = ("ciao-signal", "ciao-message")[number % 2]
            kernels.append(start_kernel(mode, environment(team)))
            running(kernels[-1], name)
        with busy():
            for number, kernel in enumerate(kernels):
                (Kernel.shutdown, Kernel.restart)[number % 2](kernel)
                kernel.shutdown(now=True)
    untouched(team, *names)
    figure(f"{COUNT} shutdowns with {BURNERS} busy processes, {COUNT - len(jobs(team))} jobs lost")


HOLD = """
import asyncio, re
from ciao_kernel.jupyter import shutdown
from ciao_kernel.kube.client import Client
real = Client._call
async def hold():
    open({reached!r}, "w").close()
    while not shutdown.lifetime._ending.is_set():
        await asyncio.sleep(0.01)
async def call(self, method, path, query, *more, **named):
    here = re.search({what!r}, method + " " + path) and "dryRun" not in query
    if here and {when!r} == "before":
        await hold()
    found = await real(self, method, path, query, *more, **named)
    if here and {when!r} == "after":
        await hold()
    return found
Client._call = call
"""
"""Holds a request of a submission, or its answer, until the kernel knows that it is shut down."""
MOMENTS = {
    "before-the-source": ("before", r"^POST .*/configmaps$"),
    "before-the-job": ("before", r"^POST .*/tfjobs$"),
    "before-the-answer": ("after", r"^POST .*/tfjobs$"),
    "before-the-owner": ("before", r"^PATCH .*/configmaps/"),
}


@pytest.mark.second("trials")
@pytest.mark.slow
def test_a_shutdown_while_the_job_is_made_leaves_all_of_it_or_nothing(
    team: Team, start_kernel: Start
) -> None:
    for name, (when, what) in MOMENTS.items():
        kernel = start_kernel("ciao", environment(team))
        reached = team.folder / name
        kernel.run(HOLD.format(reached=str(reached), when=when, what=what))
        kernel.be_patient()
        request = kernel.execute(cell(name))
        kernel.wait(lambda r=request, file=reached: r.done or file.exists(), name)
        assert reached.exists(), request.text
        process = kernel.process
        kernel.shutdown()
        process.wait(60)
    last = start_kernel("ciao", environment(team))  # so that there is one in any case
    running(last, "made")
    last.shutdown()
    found = team.namespace.get("tfjobs")["items"]
    # Nothing is left to be made of a job that only has to own its source.
    assert {"before-the-owner", "made"} <= {job["metadata"]["name"] for job in found}
    needed = {
        volume["configMap"]["name"]
        for job in found
        for volume in job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["volumes"]
        if "configMap" in volume
    }
    assert len(needed) == len(found)

    def there() -> set[str]:
        return {one.partition("/")[2] for one in team.left() if one.startswith("ConfigMap/")}

    assert needed <= there()
    until(lambda: there() == needed, "the sources of jobs that were removed again to go", 60)


@pytest.mark.second("faults", only="terminated")
@pytest.mark.parametrize("end", ["shutdown", "terminated"])
def test_where_jobs_end_with_their_kernel_the_deletion_is_not_cut_short(
    proxy: Proxy, team: Team, start_kernel: Start, end: str
) -> None:
    """The process ends after the API server has taken the order, however slow that is."""
    kernel = start_kernel("ciao", {**environment(team), "CIAO_ON_SHUTDOWN": "delete"})
    wait_for_deletions(kernel)
    running(kernel, "mine")
    proxy.delay(0.2)
    ENDS[end](kernel)
    assert ended(kernel)
    proxy.refuse()
    until(lambda: not team.left(), "everything to be gone", 60)
