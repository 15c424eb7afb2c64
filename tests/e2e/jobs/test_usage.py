"""What pods use, by their control groups: `ciao top`, and the advice after a kill for memory."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable

import pytest

from ciao_kernel.backends.kubernetes.backend import KubernetesBackend
from ciao_kernel.display import usage_table
from ciao_kernel.errors import BackendError, JobFailed
from ciao_kernel.model.usage import Usage, UsageReport
from ciao_kernel.session.inspection import query
from tests.e2e.jobs.conftest import EXEC, RBAC, Team, rules
from tests.helpers.jobs import Ended, Recorder, wait

MI = 1024 * 1024
METRICS = RBAC / "metrics-role.yaml"
EATS = """\
%framework=tensorflow
%worker=1;%memory=128Mi
%usage=on
import os, time
kept = []
for step in range(1000):
    while step == 45 and not os.path.exists("/tmp/eat"):
        time.sleep(0.1)
    kept.append(bytearray(2 << 20))
    print("step", step, flush=True)
    time.sleep(0.25 if os.path.exists("/tmp/eat") else 1)
"""
"""It is killed at about step 55, and not before there is a file in its pod: then it eats faster,
but not so fast that one reading sees most of the growth."""


@pytest.mark.second("operators")
def test_a_replica_that_eats_its_memory_is_told_how_fast(team: Team) -> None:
    team.user.allow(*rules(), *rules(EXEC))
    found: list[UsageReport] = []

    async def look(display: Recorder, work: asyncio.Task[Ended]) -> None:
        def sizes() -> set[int]:
            readings = [one for report in reports(display) for one in report.replicas]
            return {one.memory for one in readings if one.memory}

        # Each report shows the newest of several readings.
        await wait(lambda: work.done() or len(sizes()) >= 4, 300)
        assert display.job
        backend = KubernetesBackend(team.settings())
        began = time.monotonic()
        found.append(await query.usage(backend, display.job))
        print(f"asked in {time.monotonic() - began:.2f} s")
        await backend.close()
        eater = f"{display.job.name}-worker-0"
        await asyncio.to_thread(team.namespace.touch, eater, "/tmp/eat")

    ended = team.run(EATS, during=look)
    assert ended.display.job
    print(usage_table.text(ended.display.job, found[0]))
    (one,) = found[0].replicas
    assert not one.fault
    assert one.memory
    assert one.peak
    assert one.cpu is not None
    assert one.peak >= one.memory > 16 * MI
    assert one.limit == 128 * MI
    assert isinstance(ended.error, JobFailed)
    print(ended.error.message, ended.error.hint)
    (last,) = ended.display.status.replicas
    assert last.exit_code == -9
    assert ended.error.hint.startswith("worker-0 asked for %memory=128Mi and stood at ")
    assert " a step: try %memory=256Mi, or find out what the program keeps." in ended.error.hint


WORKS = """\
%framework=tensorflow
%worker=2;%memory=256Mi
%usage=on
import os, time
kept = bytearray(64 << 20)
print("has it", flush=True)
while True:
    if os.environ["CIAO_REPLICA"] == "worker-1":
        time.sleep(0.1)
"""
"""worker-0 keeps a processor busy, worker-1 does not."""


def reports(display: Recorder) -> list[UsageReport]:
    return [event for event in display.events if isinstance(event, UsageReport)]


@pytest.mark.second("operators")
@pytest.mark.slow
def test_the_table_shows_what_pods_use_or_why_it_does_not(team: Team) -> None:
    team.user.allow(*rules(), *rules(EXEC))

    def known(display: Recorder) -> dict[str, Usage]:
        """Return the newest numbers if they are complete."""
        newest = reports(display)[-1].replicas if reports(display) else ()
        return {str(one.replica): one for one in newest if one.cpu is not None and one.memory}

    def stopped(ready: Callable[[Recorder], bool]) -> Recorder:
        """Run the job until something is known; return what it has shown."""
        shown: list[Recorder] = []

        async def stop(display: Recorder, work: asyncio.Task[Ended]) -> None:
            shown.append(display)
            await wait(lambda: work.done() or ready(display), 300)
            work.cancel()

        with pytest.raises(asyncio.CancelledError):
            team.run(WORKS, during=stop)
        return shown[0]

    def settled(display: Recorder) -> bool:
        """Whether the newest numbers are of programs that have come to their loops."""
        found = known(display)
        return (
            len(found) == 2
            and all((one.memory or 0) > 64 * MI for one in found.values())
            and (found["worker-1"].cpu or 0) < (found["worker-0"].cpu or 0)
        )

    display = stopped(settled)
    found = known(display)
    print(found)
    for one in found.values():
        assert one.limit == 256 * MI
        assert 64 * MI < (one.memory or 0) <= (one.peak or 0)
    assert (found["worker-1"].cpu or 0) < (found["worker-0"].cpu or 0)
    assert "%usage" not in display.notices

    team.user.allow(*rules())
    display = stopped(lambda display: "%usage" in display.notices)
    assert "The columns of %usage are empty: what the replicas of " in display.notices
    assert "get pods/exec, and you may not list pods.metrics.k8s.io" in display.notices
    assert display.notices.count("%usage") == 1
    assert not reports(display)


TRAINS = """\
%framework=pytorch
%worker=2;%memory=4Gi
%master=1;%memory=4Gi
import itertools, os, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
over = torch.zeros(1000)
for step in itertools.count():
    over.fill_(os.path.exists("/tmp/end"))
    dist.all_reduce(over)
    if over[0] and step > 120:
        break
    print("step", step, flush=True)
    time.sleep(0.2)
"""
"""It trains until there is a file in a pod, and long enough for some readings."""


@pytest.mark.second("operators")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("training")
@pytest.mark.usefixtures("with_frameworks")
def test_a_pytorchjob_is_measured_and_told_that_it_asks_too_much(team: Team) -> None:
    team.user.allow(*rules(), *rules(EXEC))
    found: list[UsageReport] = []

    async def look(display: Recorder, work: asyncio.Task[Ended]) -> None:
        for one in ("master-0", "worker-0", "worker-1"):
            await display.until("step 6", replica=one, patience=300)
        assert display.job
        backend = KubernetesBackend(team.settings())
        began = time.monotonic()
        found.append(await query.usage(backend, display.job))
        print(f"asked in {time.monotonic() - began:.2f} s")
        await backend.close()
        why = "you may not list pods.metrics.k8s.io"
        for more, sentence in ((), why), (rules(METRICS), "the cluster has no metrics"):
            team.user.allow(*rules(), *more)
            backend = KubernetesBackend(team.settings())  # rights are remembered for some minutes
            with pytest.raises(BackendError, match=f"get pods/exec, and {sentence}"):
                await query.usage(backend, display.job)
            await backend.close()
        master = f"{display.job.name}-master-0"
        await asyncio.to_thread(team.namespace.touch, master, "/tmp/end")

    images = {"pytorch": team.namespace.cluster.image("pytorch")}
    ended = team.run(TRAINS, during=look, images=images)
    assert ended.error is None
    assert ended.display.job
    print(usage_table.text(ended.display.job, found[0]), ended.display.notices, sep="\n")
    for one in found[0].replicas:
        assert not one.fault
        assert one.limit == 4096 * MI
        assert one.memory
        assert 30 * MI < one.memory < 2048 * MI
    assert re.search(
        r"master-0 used at most \d+Mi of its %memory=4Gi; "
        r"each worker used at most \d+Mi of its %memory=4Gi\.",
        ended.display.notices,
    )
