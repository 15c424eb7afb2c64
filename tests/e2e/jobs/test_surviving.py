"""Training that survives: pods are evicted or deleted while jobs train with a checkpoint.

``CIAO_TEST_DRAINS`` sets the number of losses, which the five kinds of jobs share; the figures say
what they cost.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.namespace import Namespace
from tests.e2e.jobs.conftest import JOBS, ROLE, Team, made, rules
from tests.helpers.jobs import Ended, Recorder

Figure = Callable[[str], None]
ROUNDS = -(-int(os.environ.get("CIAO_TEST_DRAINS", "5")) // 5)
"""Losses of each job."""
INTERVAL = 5
"""Steps between two checkpoints."""
PER_ROUND = 40
"""Steps that a job trains for each loss."""

TRAINS = """
import json, os, signal, sys, time
steps, interval, peer, losses = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
folder, me = os.environ["CIAO_CHECKPOINT"], os.environ["CIAO_REPLICA"]
peer = folder + "/" + next(one for one in peer.split(",") if one != me)
own, told = folder + "/" + me, []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))

def load(path):
    with open(path) as file:
        return json.load(file)

def store(path, step, total):
    with open(path, "w") as file:
        json.dump([step, total], file)

def advance(total, step):
    return (total * 31 + step) % 1000003

REAL
def saved(path):
    try:
        return load(path)
    except OSError:
        return [0, 0]

def wait(true):
    while not true():
        if told:
            sys.exit(143)
        time.sleep(0.1)

def lost():
    return len([one for one in os.listdir(folder) if ".life" in one]) - 2

step, total = saved(own)
life = len([one for one in os.listdir(folder) if one.startswith(me + ".life")])
written = open(f"{own}.life{life}", "w")
while step < steps:
    wait(lambda: saved(peer)[0] >= step - 2 * interval)
    wait(lambda: lost() >= min(losses, step // (steps // (losses + 1))))
    step += 1
    total = advance(total, step)
    line = f"life {life} step {step}"
    written.write(line + "\\n")
    written.flush()
    print(line, flush=True)
    if step % interval == 0:
        store(own + ".new", step, total)
        os.replace(own + ".new", own)
    if told:
        sys.exit(143)
    time.sleep(0.1)
print("total", total, flush=True)
open(own + ".done", "w").close()
wait(lambda: os.path.exists(peer + ".done"))
"""
"""Two replicas that wait for each other, and keep a copy of what they print on the claim.

Each loss that the test brings has its part of the steps, at whose end they wait for it. `told` ends
them at the end of a step and not at once, so the copies are what was printed."""


REAL = {
    "torch": """
import torch

def load(path):
    with open(path, "rb") as file:
        kept = torch.load(file)
    return [int(kept["step"]), int(kept["total"])]

def store(path, step, total):
    torch.save({"step": step, "total": torch.tensor(total)}, path)

def advance(total, step):
    return int((torch.tensor([total, 1]) * torch.tensor([31, step])).sum() % 1000003)
""",
    "tensorflow": """
import tensorflow as tf

def load(path):
    with open(path, "rb") as file:
        return tf.io.parse_tensor(file.read(), tf.int64).numpy().tolist()

def store(path, step, total):
    tf.io.write_file(path, tf.io.serialize_tensor(tf.constant([step, total], tf.int64)))

@tf.function(input_signature=[tf.TensorSpec([], tf.int64)] * 2)
def graph(total, step):
    return (total * 31 + step) % 1000003

def advance(total, step):
    return int(graph(total, step))
""",
}
"""The same steps and checkpoints by a framework, for TRAINS."""

ELASTIC = """
import json, os, signal, sys, time
import torch
import torch.distributed as dist

steps, interval = int(sys.argv[1]), int(sys.argv[2])
folder, me, told = os.environ["CIAO_CHECKPOINT"], os.environ["CIAO_REPLICA"], []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
dist.init_process_group("gloo")
state = torch.zeros(2, dtype=torch.int64)
if dist.get_rank() == 0 and os.path.exists(folder + "/kept"):
    with open(folder + "/kept", "rb") as file:
        state = torch.load(file)
dist.broadcast(state, 0)
step, total = state.tolist()
life = len([one for one in os.listdir(folder) if one.startswith(me + ".life")])
written = open(f"{folder}/{me}.life{life}", "w")
while step < steps:
    both = torch.ones(1, dtype=torch.int64)
    dist.all_reduce(both)
    step += 1
    total = int(total * 31 + step * both // 2) % 1000003
    line = f"life {life} step {step}"
    written.write(line + "\\n")
    written.flush()
    print(line, flush=True)
    if step % interval == 0 and dist.get_rank() == 0:
        torch.save(torch.tensor([step, total]), folder + "/new")
        os.replace(folder + "/new", folder + "/kept")
    if told:
        os._exit(143)
    time.sleep(0.1)
dist.barrier()
print("total", total, flush=True)
"""
"""Two workers of an elastic job, which torchrun starts again together after each loss."""


def expected(steps: int) -> int:
    """The result of a run that nothing disturbs."""
    total = 0
    for step in range(1, steps + 1):
        total = (total * 31 + step) % 1000003
    return total


async def lose(team: Team, pod: str, how: str) -> None:
    """Evict a pod as `kubectl drain` does, or delete it as a user does."""
    namespace = team.namespace.name
    if how == "delete":
        await asyncio.to_thread(team.namespace.kubectl, "delete", "pod", pod, "--wait=false")
        return
    meta = {"name": pod, "namespace": namespace}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
    argv = ("create", "--raw", path, "-f", "-")
    await asyncio.to_thread(team.namespace.kubectl, *argv, text=json.dumps(body))


def running_pods(team: Team) -> dict[str, str]:
    """Uids and names of the pods that run and are not being deleted."""
    return {
        pod["metadata"]["uid"]: pod["metadata"]["name"]
        for pod in team.namespace.get("pods")["items"]
        if pod["status"].get("phase") == "Running"
        and "deletionTimestamp" not in pod["metadata"]
        and any("running" in one["state"] for one in pod["status"].get("containerStatuses", []))
    }


async def trains(
    team: Team, display: Recorder, work: asyncio.Task[Ended], step: int
) -> dict[str, str]:
    """Wait until both replicas run and have trained so far; {} if the job has ended."""
    while not work.done():
        pods = await asyncio.to_thread(running_pods, team)
        steps = [_last_step(display, replica) for replica in display.replicas]
        if len(pods) == len(steps) == 2 and min(steps) > step:
            return pods
        await asyncio.sleep(0.3)
    return {}


async def leaves(team: Team, work: asyncio.Task[Ended], uid: str) -> None:
    """Wait until a pod does not run any more."""
    while not work.done() and uid in await asyncio.to_thread(running_pods, team):
        await asyncio.sleep(0.3)


HEADERS = {
    "tfjob": "%framework=tensorflow\n%api=v1\n%worker=2\n%successPolicy=allWorkers\n",
    "pytorchjob": "%framework=pytorch\n%runner=python\n%master=1\n%worker=1\n",
    "indexed": "%framework=python\n%api=job\n%worker=2\n",
}


def of_kind(
    kind: str, namespace: Namespace, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Team, str]:
    """A user with the rights that jobs of a kind need, and the replicas of such a job."""
    team = made(namespace, folder, monkeypatch, rules(JOBS if kind == "indexed" else ROLE))
    return team, "master-0,worker-0" if kind == "pytorchjob" else "worker-0,worker-1"


@pytest.mark.second("trials")
@pytest.mark.timeout(120 + 240 * ROUNDS)
@pytest.mark.parametrize("kind", HEADERS)
def test_training_goes_on_from_its_checkpoint_after_losses(
    namespace: Namespace,
    claim: str,
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    figure: Figure,
) -> None:
    team, peers = of_kind(kind, namespace, tmp_path, monkeypatch)
    figure(f"{kind}: {survives(team, claim, HEADERS[kind], peers)}")


@pytest.mark.second("trials")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.xdist_group("training")
@pytest.mark.usefixtures("with_frameworks")
@pytest.mark.timeout(360)
@pytest.mark.parametrize(
    ("kind", "real", "image"),
    [
        ("tfjob", "tensorflow", "tensorflow"),
        ("pytorchjob", "torch", "pytorch"),
        ("indexed", "torch", "pytorch"),
    ],
)
def test_training_by_a_framework_goes_on_too(
    namespace: Namespace,
    claim: str,
    kind: str,
    real: str,
    image: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    figure: Figure,
) -> None:
    team, peers = of_kind(kind, namespace, tmp_path, monkeypatch)
    figure(f"{kind}, {real}: {survives(team, claim, HEADERS[kind], peers, image, REAL[real], 1)}")


@pytest.mark.second("trials")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.xdist_group("training")
@pytest.mark.usefixtures("with_frameworks")
@pytest.mark.timeout(240 + 240 * ROUNDS)
def test_an_elastic_job_goes_on_from_its_checkpoint_after_losses(
    team: Team, claim: str, figure: Figure
) -> None:
    kind = "%framework=pytorch\n%worker=2\n%min=2\n"
    image = f"%image={team.namespace.cluster.image('pytorch')}\n"
    steps = PER_ROUND * (ROUNDS + 1)
    losses = Losses(team, ROUNDS)
    text = f"{kind}{image}%name=survives\n%checkpoint={claim}\n%grace=20s\n%backoffLimit=99\n"
    ended = team.run(f"{text}%args={steps} {INTERVAL}\n{ELASTIC}", during=losses.bring)
    assert ended.error is None, (losses, ended.error, ended.display.notices)
    assert len(losses.lost) == ROUNDS
    reads = "%framework=pytorch\n%runner=python\n%master=1\n" + image
    figure(f"elastic: {found(team, claim, reads, ended, steps, losses)}")


def survives(
    team: Team,
    claim: str,
    kind: str,
    peers: str,
    image: str = "python",
    real: str = "",
    rounds: int = ROUNDS,
) -> str:
    """Let a job train with losses, and check that no step is lost; return its figures.

    Args:
        team: The user.
        claim: Where the checkpoints are.
        kind: The framework, its API and its two roles.
        peers: The replicas, the deciding one first.
        image: Their image.
        real: How a framework makes the steps and checkpoints.
        rounds: The number of losses.
    """
    steps, losses = PER_ROUND * (rounds + 1), Losses(team, rounds)
    text = f"%image={team.namespace.cluster.image(image)}\n"
    header = f"{kind}{text}%name=survives\n%checkpoint={claim}\n%grace=20s\n"
    asked = f"%retries={rounds}\n%args={steps} {INTERVAL} {peers} {rounds}\n"
    ended = team.run(f"{header}{asked}{TRAINS.replace('REAL', real)}", during=losses.bring)
    assert ended.error is None, (losses, ended.error, ended.display.notices)
    assert len(losses.lost) == rounds
    return found(team, claim, kind + text, ended, steps, losses)


@dataclass
class Losses:
    """Loses replicas of a job at random steps."""

    team: Team
    rounds: int
    seed: str = field(
        default_factory=lambda: os.environ.get("CIAO_TEST_SEED") or str(random.randrange(10**6))
    )
    lost: list[str] = field(default_factory=list)

    async def bring(self, display: Recorder, work: asyncio.Task[Ended]) -> None:
        """Evict or delete one pod after another, each when both replicas train."""
        dice, team = random.Random(self.seed), self.team
        before: dict[str, int] = {}
        for number in range(self.rounds):
            # Those that start again after the loss before have to train again.
            while not work.done() and any(
                len(display.data(one)) <= size for one, size in before.items()
            ):
                await asyncio.sleep(0.3)
            if victim := await trains(team, display, work, PER_ROUND * number + dice.randrange(18)):
                how = dice.choice(["evict", "delete"])
                name = dice.choice(sorted(victim.values()))
                await lose(team, name, how)
                self.lost.append(f"{how} {name}")
                gone = next(uid for uid in victim if victim[uid] == name)
                await leaves(team, work, gone)
                before = {one: len(display.data(one)) for one in display.replicas}


def found(team: Team, claim: str, reads: str, ended: Ended, steps: int, losses: Losses) -> str:
    """Check that no line and no more than an interval of work was lost; return the figures.

    Args:
        team: The user.
        claim: Where the checkpoints and copies of the lines are.
        reads: The header of a job that reads them.
        ended: The job.
        steps: Its steps.
        losses: What it has lost.
    """
    kept = kept_lines(team, claim, reads, ended)
    repeated, lines = 0, 0
    for replica in ended.job.replicas:
        lines_shown = ended.display.data(str(replica)).decode().splitlines()
        # torchrun and the framework say something too.
        shown = [one for one in lines_shown if one.startswith(("life ", "total "))]
        assert shown[-1] == f"total {expected(steps)}", losses
        lives = kept[str(replica)]
        written = [line for life in lives for line in life]
        assert shown[:-1] == written, losses
        again = len(written) - steps
        assert again <= INTERVAL * (len(lives) - 1), losses
        repeated, lines = repeated + again, lines + len(written)
    return (
        f"{len(losses.lost)} losses (seed {losses.seed}), {lines} lines, 0 lost, 0 doubled; "
        f"{repeated} steps trained again, at most {INTERVAL} each time; "
        f"{ended.display.status.tries} tries"
    )


@pytest.mark.second("operators")
@pytest.mark.parametrize("kind", HEADERS)
def test_a_rerun_has_the_objects_of_the_job_and_goes_on_from_its_checkpoint(
    namespace: Namespace, claim: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team, peers = of_kind(kind, namespace, tmp_path, monkeypatch)
    image = f"%image={namespace.cluster.image('python')}\n"
    header = f"{HEADERS[kind]}{image}%name=survives\n%checkpoint={claim}\n%grace=20s\n"
    ended = team.run(f"{header}%args=10 {INTERVAL} {peers} 0\n{TRAINS.replace('REAL', '')}")
    assert ended.error is None

    again = Recorder()
    result = team._ask(lambda session: session.rerun("survives", again))

    assert result.name == "survives-2"
    # Others are stopped when it ends, perhaps before they have begun.
    decider = peers.partition(",")[0]
    first = ended.display.data(decider).decode().splitlines()
    assert again.data(decider).decode().splitlines() == [first[-1]]
    resource = {"tfjob": "tfjobs", "pytorchjob": "pytorchjobs", "indexed": "jobs"}[kind]
    one, two = (namespace.get(resource, name) for name in ("survives", "survives-2"))
    assert general(two) == general(one)


def general(item: dict[str, Any]) -> str:
    """An object of the server without its name, its times and what the server numbers."""
    name, uid = item["metadata"]["name"], item["metadata"]["uid"]
    meta, spec = item["metadata"], item["spec"]
    kept = {"labels": meta["labels"], "annotations": meta["annotations"], "spec": spec}
    kept["annotations"].pop("ciao-kernel/run")
    text = json.dumps(kept, sort_keys=True).replace('"subPath": "survives"', '"subPath": "<same>"')
    # The name of a ConfigMap has a digest of what is in it, also of the names of the replicas.
    text = re.sub(rf'"{name}-replicas-[0-9a-f]+"', '"<replicas>"', text.replace(uid, "<uid>"))
    return text.replace(f'"{name}-', '"<job>-').replace(f'"{name}"', '"<job>"')


READS = """
import json, os
from pathlib import Path
for path in Path("data").glob("*.life*"):
    name, _, life = path.name.partition(".life")
    print(json.dumps([name, int(life), path.read_text().splitlines()]))
"""


def kept_lines(team: Team, claim: str, header: str, of: Ended) -> dict[str, list[list[str]]]:
    """What each life of each replica has written to the claim, in order."""
    read = team.run(f"{header}%volume={claim}/survives:data\n{READS}")
    assert read.error is None, read.error
    reader = read.display.replicas[0]
    found = [json.loads(line) for line in read.display.data(reader).splitlines()]
    return {
        str(one): [lines for name, _, lines in sorted(found) if name == str(one)]
        for one in of.job.replicas
    }


def _last_step(display: Recorder, replica: str) -> int:
    lines = display.data(replica).decode().split()
    steps = [int(word) for before, word in itertools.pairwise(lines) if before == "step"]
    return steps[-1] if steps else 0
