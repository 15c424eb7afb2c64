"""Training that survives: pods are evicted or deleted while jobs train with a checkpoint.

``CIAO_TEST_ROUNDS`` sets the number of losses of each job; the figures say what they cost.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.namespace import Namespace
from tests.e2e.jobs.conftest import JOBS, ROLE, Team, made, rules
from tests.helpers.jobs import Ended, Recorder

Figure = Callable[[str], None]
ROUNDS = int(os.environ.get("CIAO_TEST_ROUNDS", "1"))
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

def saved(path):
    try:
        with open(path) as file:
            return json.load(file)
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
    total = (total * 31 + step) % 1000003
    line = f"life {life} step {step}"
    written.write(line + "\\n")
    written.flush()
    print(line, flush=True)
    if step % interval == 0:
        with open(own + ".new", "w") as file:
            json.dump([step, total], file)
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
    team = made(namespace, tmp_path, monkeypatch, rules(JOBS if kind == "indexed" else ROLE))
    peers = "master-0,worker-0" if kind == "pytorchjob" else "worker-0,worker-1"
    figure(f"{kind}: {survives(team, claim, HEADERS[kind], peers)}")


def survives(team: Team, claim: str, kind: str, peers: str) -> str:
    """Let a job train with losses, and check that no step is lost; return its figures.

    Args:
        team: The user.
        claim: Where the checkpoints are.
        kind: The framework, its API and its two roles.
        peers: The replicas, the deciding one first.
    """
    steps = PER_ROUND * (ROUNDS + 1)
    seed = os.environ.get("CIAO_TEST_SEED") or str(random.randrange(10**6))
    dice, lost = random.Random(seed), list[str]()

    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        for number in range(ROUNDS):
            if victim := await trains(team, display, work, PER_ROUND * number + dice.randrange(18)):
                how = dice.choice(["evict", "delete"])
                name = dice.choice(sorted(victim.values()))
                await lose(team, name, how)
                lost.append(f"{how} {name}")
                gone = next(uid for uid in victim if victim[uid] == name)
                await leaves(team, work, gone)

    image = f"%image={team.namespace.cluster.image('python')}\n"
    header = f"{kind}{image}%name=survives\n%checkpoint={claim}\n%grace=20s\n"
    asked = f"%retries={ROUNDS}\n%args={steps} {INTERVAL} {peers} {ROUNDS}\n"
    ended = team.run(f"{header}{asked}{TRAINS}", during=during)
    assert ended.error is None, (seed, lost, ended.error, ended.display.notices)
    assert len(lost) == ROUNDS
    kept = kept_lines(team, claim, kind + image, ended)
    repeated, lines = 0, 0
    for replica in ended.job.replicas:
        shown = ended.display.data(str(replica)).decode().splitlines()
        assert shown[-1] == f"total {expected(steps)}", (seed, lost)
        lives = kept[str(replica)]
        written = [line for life in lives for line in life]
        assert shown[:-1] == written, (seed, lost)
        again = len(written) - steps
        assert again <= INTERVAL * (len(lives) - 1), (seed, lost)
        repeated, lines = repeated + again, lines + len(written)
    return (
        f"{len(lost)} losses (seed {seed}), {lines} lines, 0 lost, 0 doubled; "
        f"{repeated} steps trained again, at most {INTERVAL} each time; "
        f"{ended.display.status.tries} tries"
    )


@pytest.mark.second("operators")
@pytest.mark.parametrize("kind", HEADERS)
def test_a_rerun_has_the_objects_of_the_job_and_goes_on_from_its_checkpoint(
    namespace: Namespace, claim: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = made(namespace, tmp_path, monkeypatch, rules(JOBS if kind == "indexed" else ROLE))
    peers = "master-0,worker-0" if kind == "pytorchjob" else "worker-0,worker-1"
    image = f"%image={namespace.cluster.image('python')}\n"
    header = f"{HEADERS[kind]}{image}%name=survives\n%checkpoint={claim}\n%grace=20s\n"
    ended = team.run(f"{header}%args=10 {INTERVAL} {peers} 0\n{TRAINS}")
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
