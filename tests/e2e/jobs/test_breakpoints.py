"""breakpoint() in a pod: a prompt in the cell, and one for a pod that runs, through pods/exec."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.e2e.jobs.conftest import EXEC, Team, rules
from tests.e2e.jobs.test_kernel import environment
from tests.helpers.kernels import Kernel, Place
from tests.helpers.prompts import RANKS, Person, lines

# worker-0 writes lines until a person changes a variable of it.
STOPS = """%framework=tensorflow
%worker=2
%name=stops
import os, time

def average(value):
    total = value + 1
    breakpoint()
    return total / 2

if os.environ["CIAO_REPLICA"] == "worker-1":
    print("hit", time.time(), flush=True)
    print("mean", average(6), flush=True)
    time.sleep(600)
step, runs = 0, True
while runs:
    step += 1
    print("step", step, flush=True)
    time.sleep(0.1)
"""


@pytest.mark.second("operators")
@pytest.mark.slow
def test_a_breakpoint_in_a_pod_prompts_in_the_cell(team: Team, tmp_path: Path) -> None:
    team.user.allow(*rules(), *rules(EXEC))
    one = Kernel(Place(tmp_path / "one"), env=environment(team))
    other = Kernel(Place(tmp_path / "other"), env=environment(team))
    try:
        cell = one.execute(STOPS)
        person = Person(one, cell)
        assert person.prompt(300) == "worker-1 (Pdb) "
        shown = time.time()
        one.wait_text(cell, "hit ")  # lines and prompts come by two channels, in any order
        hit = next(line for line in cell.text.splitlines() if "hit " in line)
        print(f"hit to prompt {shown - float(hit.split()[-1]):.2f} s")
        before = lines(cell, "step")
        one.wait(lambda: lines(cell, "step") > before + 3, "lines of the other replica")
        print(f"a command {person.asks('p total', '7'):.3f} s")
        person.says("total = 30", "c")
        one.wait_text(cell, "mean 15.0")
        assert re.search(r"worker-1 stands at line [89] in average\.", cell.text)  # by Python

        began = time.monotonic()
        stop = other.execute("%ciao debug stops/worker-0")
        stopper = Person(other, stop)
        assert stopper.prompt() == "worker-0 (Pdb) "
        print(f"a running replica stands after {time.monotonic() - began:.2f} s")
        stopper.says("runs = False", "c")
        assert other.finish(stop).status == "ok"
        # The pod may end, and the connection with it, before the last message.
        assert re.search("worker-0 (goes on|has ended)", stop.text)

        assert one.finish(cell).status == "ok", cell.text
        assert "ciao:debug" not in cell.text + str(cell.tables)
        logs = one.run("%ciao logs stops")
        assert "mean 15.0" in logs.text
        assert "ciao:debug" not in logs.text
    finally:
        one.shutdown(now=True)
        other.shutdown(now=True)


@pytest.mark.second("operators")
def test_who_may_not_enter_pods_passes_breakpoints_over(team: Team, tmp_path: Path) -> None:
    kernel = Kernel(Place(tmp_path / "place"), env=environment(team))
    try:
        done = kernel.run("%framework=tensorflow\n%worker=1\nbreakpoint()\nprint('over')\n", 300)
    finally:
        kernel.shutdown(now=True)

    assert done.status == "ok", done.text
    reason = "its user lacks the right to get pods/exec"
    assert f"breakpoint() at line 3 is passed over: {reason}." in done.text
    assert "over\n" in done.text


@pytest.mark.second("operators")
@pytest.mark.slow
def test_the_first_of_two_failed_pods_prompts_at_its_error(team: Team, tmp_path: Path) -> None:
    team.user.allow(*rules(), *rules(EXEC))
    kernel = Kernel(Place(tmp_path / "place"), env=environment(team))
    try:
        header = "%framework=tensorflow\n%worker=2\n%name=fails\n%onError=debug\n"
        cell = kernel.execute(f"{header}limit = 3\nraise ValueError(limit)\n")
        person = Person(kernel, cell)
        first = person.prompt(300).partition(" ")[0]
        other = {"worker-0": "worker-1", "worker-1": "worker-0"}[first]
        text = f"{other} has failed too, at line 6: ValueError: 3. It ends after {first}."
        kernel.wait_text(cell, text)
        assert f"{first} has failed at line 6: ValueError: 3. It is kept there for 30m" in cell.text
        person.asks("p limit * 7", "21")
        person.says("c")

        kernel.finish(cell)
        assert cell.error == "JobFailed"
        assert "raise ValueError(limit)" in str(cell.reply)
        assert len(cell.inputs) == 2
        assert "ciao:debug" not in str(cell.reply) + cell.text
    finally:
        kernel.shutdown(now=True)


@pytest.mark.second("operators")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("mpi")
@pytest.mark.usefixtures("with_mpi")
def test_of_mpi_the_first_failed_rank_prompts_and_the_others_live_on(
    team: Team, tmp_path: Path
) -> None:
    team.user.allow(*rules(), *rules(EXEC))
    image = team.namespace.cluster.image("mpi")
    kernel = Kernel(Place(tmp_path / "place"), env=environment(team))
    header = f"%framework=mpi\n%worker=2\n%slots=2\n%name=ranks\n%image={image}\n"
    header += "%lines=all\n%onError=debug\n"
    try:
        cell = kernel.execute(header + RANKS)
        person = Person(kernel, cell)
        assert person.prompt(400) == "worker-1.1 (Pdb) "
        kernel.wait_text(cell, "worker-1.1 has failed at line 14 in train: ValueError: bad shard.")
        before = lines(cell, "step")
        kernel.wait(lambda: lines(cell, "step") > before + 3, "lines of the other ranks")
        person.asks("p shard, rank", "(3, 3)")
        person.says("c")

        kernel.finish(cell)
        assert cell.error == "JobFailed"
        assert "ValueError: bad shard" in str(cell.reply)
        assert len(cell.inputs) == 2
        assert "ciao:debug" not in str(cell.reply) + cell.text
    finally:
        kernel.shutdown(now=True)


@pytest.mark.second("faults")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_pod_whose_asker_is_killed_goes_on(team: Team, tmp_path: Path) -> None:
    team.user.allow(*rules(), *rules(EXEC))
    one = Kernel(Place(tmp_path / "one"), env={**environment(team), "CIAO_DEBUG_WAIT": "30"})
    other = Kernel(Place(tmp_path / "other"), env=environment(team))
    try:
        header = "%framework=tensorflow\n%worker=1\n%name=left\n"
        loop = "import time\nprint('on', flush=True)\nruns = True\nwhile runs:\n"
        cell = one.execute(f"{header}{loop}    time.sleep(0.02)\nprint('over')\n")
        one.wait_text(cell, "on\n", 300)
        stop = other.execute("%ciao debug left/worker-0")
        person = Person(other, stop)
        assert person.prompt() == "worker-0 (Pdb) "
        person.says("runs = False", "p runs")
        other.wait_text(stop, "False")
        other.process.kill()
        other.process.wait(60)

        assert one.finish(cell, 300).status == "ok", cell.text
        assert re.search(r"Nobody was at the prompt of line \d for 30 s: it goes on\.", cell.text)
        assert "over\n" in cell.text
    finally:
        one.shutdown(now=True)
        other.shutdown(now=True)
