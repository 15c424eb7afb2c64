"""Warm replicas that train with the real frameworks: the times of edited cells, what they leave.

``CIAO_TEST_EDITS`` sets the number of edited cells of each framework.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.model import Event, Output
from ciao_kernel.session.session import Session
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import Team, made, rules
from tests.e2e.jobs.test_warm import EDITS, WARM, as_kernel, pods
from tests.helpers import digits
from tests.helpers.jobs import Recorder

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.slow,
    pytest.mark.xdist_group("training"),  # one at a time: two starve each other
    pytest.mark.timeout(600 + 20 * EDITS),
]

TENSORFLOW = """
import json, os, time
print("run {0} begins", flush=True)
import tensorflow as tf
v1 = tf.compat.v1
v1.disable_eager_execution()
config = json.loads(os.environ["TF_CONFIG"])
task, cluster = config["task"], config["cluster"]
server = tf.distribute.Server(cluster, job_name=task["type"], task_index=task["index"])
if task["type"] == "ps":
    server.join()
with v1.device(v1.train.replica_device_setter(cluster=cluster)):
    weights = v1.get_variable("w", [10], initializer=v1.zeros_initializer())
    step = v1.train.get_or_create_global_step()
    loss = tf.reduce_sum(tf.square(weights - 1.0))
    train = v1.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=step)
own = ["/job:ps", "/job:worker/task:" + str(task["index"])]
with v1.Session(server.target, config=v1.ConfigProto(device_filters=own)) as session:
    if task["index"] == 0:
        session.run(v1.global_variables_initializer())
    while len(session.run(v1.report_uninitialized_variables())):
        time.sleep(0.05)
    for number in range({1}):
        session.run(train)
        print("run {0} step", number, flush=True)
"""
PYTORCH = """
print("run {0} begins", flush=True)
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for number in range({1}):
    optimizer.zero_grad()
    model(torch.ones(8, 4)).pow(2).mean().backward()
    optimizer.step()
    print("run {0} step", number, flush=True)
dist.destroy_process_group()
"""
CELLS = {
    "tensorflow": ("%ps=1\n%worker=2\n%successPolicy=allWorkers\n", TENSORFLOW),
    "pytorch": ("%master=1\n%worker=1\n", PYTORCH),
}
CENSUS = """
import json, os
found = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) == os.getpid():
        continue
    try:
        name = open(f"/proc/{pid}/cmdline").read().replace("\\0", " ")
        count = [len(os.listdir(f"/proc/{pid}/{what}")) for what in ("fd", "task")]
        found.append([name, *count])
    except OSError:
        pass
print(json.dumps(sorted(found)))
"""


class Clock(Recorder):
    """A display that notes when some texts were first seen."""

    def __init__(self, *texts: bytes) -> None:
        super().__init__()
        self._texts, self._began = texts, time.monotonic()
        self.seen: dict[bytes, float] = {}

    def show(self, event: Event) -> None:
        super().show(event)
        if isinstance(event, Output):
            for text in self._texts:
                if text not in self.seen and text in event.data:
                    self.seen[text] = time.monotonic() - self._began


def times(what: str, seconds: list[float]) -> str:
    """Return p50 and p99 of some times."""
    some = sorted(seconds)
    return f"{what} p50 {some[len(some) // 2]:.3f} s, p99 {some[int(len(some) * 0.99)]:.3f} s"


def census(team: Team) -> dict[str, tuple[int, int, int]]:
    """Return processes, file descriptors and threads of each pod."""
    found = {}
    for pod in sorted(pods(team)):
        told = team.namespace.kubectl("exec", pod, "--", "python3", "-c", CENSUS)
        every = [one for one in json.loads(told) if "pause" not in one[0]]
        found[pod] = len(every), sum(one[1] for one in every), sum(one[2] for one in every)
    return found


async def census_at_rest(team: Team) -> dict[str, tuple[int, int, int]]:
    """Return the same when it does not change any more: an heir may still import."""
    found: list[dict[str, tuple[int, int, int]]] = []

    def rests() -> bool:
        found.append(census(team))
        return found[-3:] == 3 * found[-1:]

    await asyncio.to_thread(until, rests, "the pods to be at rest", 60, every=1.0)
    return found[-1]


def here() -> tuple[int, int, int]:
    """Return file descriptors, threads and tasks of the kernel."""
    tasks = len(asyncio.all_tasks())
    own = [one for one in threading.enumerate() if not one.name.startswith("asyncio_")]  # of tests
    return len(list(Path("/proc/self/fd").iterdir())), len(own), tasks


async def leaves_nothing(
    team: Team, before: Any, ours: tuple[int, int, int], more: int = 0
) -> None:
    """Wait until the pods and the kernel have what they had before; an heir may still import.

    Args:
        team: Whose pods.
        before: What :func:`census` returned.
        ours: What :func:`here` returned.
        more: So many more of each may be in this process.
    """
    now: Any = None

    def same() -> bool:
        nonlocal now
        now = census(team)
        return bool(now == before)

    try:
        await asyncio.to_thread(until, same, "the pods to have what they had", 60)
    finally:
        assert now == before
    await holds_no_more(ours, more)


async def holds_no_more(ours: tuple[int, int, int], more: int) -> None:
    """Wait until this process has what it had; the arguments are those of leaves_nothing()."""
    for _ in range(100):
        if all(one <= other + more for one, other in zip(here(), ours, strict=True)):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"the kernel has {here()}, and had {ours}")


@pytest.mark.second("trials")
@pytest.mark.usefixtures("with_frameworks")
@pytest.mark.parametrize("framework", CELLS)
def test_edited_trainings_begin_at_once_and_leave_nothing(
    framework: str,
    namespace: Namespace,
    figure: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    team = made(namespace, tmp_path, monkeypatch, [*rules(), *rules(WARM)])
    team.images[framework] = namespace.cluster.image(framework)
    roles, program = CELLS[framework]
    head = f"%framework={framework}\n{roles}%warm\n"

    async def body(session: Session) -> None:
        begun, stepped, lines = [], [], 0
        for number in range(1, EDITS + 1):
            steps = 3 + number % 5
            begins, first = f"run {number} begins".encode(), f"run {number} step 0".encode()
            clock = Clock(begins, first)
            await session.run(head + program.format(number, steps), clock, team.folder)
            begun.append(clock.seen[begins])
            stepped.append(clock.seen[first])
            wanted = [begins.decode(), *(f"run {number} step {step}" for step in range(steps))]
            for replica in map(str, clock.job.replicas if clock.job else ()):
                got = re.findall(r"^run .*$", clock.data(replica).decode(), re.MULTILINE)
                assert got == (wanted[:1] if replica.startswith("ps") else wanted)
                lines += len(got)
            if number == min(3, EDITS):
                before = await census_at_rest(team), here()
        await leaves_nothing(team, *before)
        figure(
            f"{framework}: {EDITS} edited cells, {lines} lines, each once; the first cell "
            f"{begun[0]:.1f} s to its first line, {stepped[0]:.1f} s to its first step; later "
            f"{times('first line', begun[1:])}; {times('first step', stepped[1:])}"
        )

    as_kernel(team, body, cpu_request="200m")


@pytest.mark.second("operators")
@pytest.mark.usefixtures("with_jax")
def test_jax_initializes_in_each_run(
    namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = made(namespace, tmp_path, monkeypatch, [*rules(), *rules(WARM)])
    team.images["jax"] = namespace.cluster.image("jax")
    head = "%framework=jax\n%worker=2\n%warm\n"

    async def body(session: Session) -> None:
        names = set[str]()
        for number in range(1, EDITS + 1):
            display = Recorder()
            text = f"{head}print('edit {number}')\n{digits.JAX}"
            await session.run(text, display, team.folder)
            names |= pods(team)
            said = [display.data(f"worker-{rank}").decode() for rank in (0, 1)]
            told = [re.findall(rf"^rank {rank} of 2: accuracy (.*)$", one, re.M)
                    for rank, one in enumerate(said)]  # fmt: skip
            assert len(told[0]) == 1, said
            assert told[0] == told[1], said
            assert float(told[0][0]) > 0.8
            assert all(f"edit {number}\n" in one for one in said)
        assert len(names) == 2

    as_kernel(team, body, cpu_request="200m")
