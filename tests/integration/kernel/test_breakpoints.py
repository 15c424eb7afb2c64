"""breakpoint() in a replica: a prompt in the cell, in a real kernel with real replicas."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import prompts
from tests.helpers.kernels import Kernel, Place
from tests.helpers.prompts import Person, lines

STOPS = f"%framework=python\n%worker=2\n%name=stops\n%lines=all\n{prompts.STOPS}"
ONE = "%framework=python\n%worker=1\n%name=one\n"


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    one = Kernel(Place(tmp_path))
    yield one
    one.shutdown(now=True)
    one.place.kill_all()


PATIENT = "from ciao_kernel.backends.local.inspection import stacks\nstacks._PATIENCE = 30.0"
"""For a kernel that asks replicas where they stand: those of a busy machine answer late."""


def waits_again(kernel: Kernel) -> None:
    """Wait until the replica that has lost its front end is there for the next one."""
    sockets = "jobs/*/work/.ciao/ciao-debug-*/socket"  # not while a front end is there
    kernel.wait(lambda: list(kernel.place.storage.glob(sockets)), "the replica waits again")


def lets_it_go_on(other: Kernel) -> None:
    """Take up the prompt that waits, in another kernel."""
    taken = other.execute("%ciao debug stops/worker-1")
    person = Person(other, taken)
    assert person.prompt() == "worker-1 (Pdb) "
    person.says("c")
    assert other.finish(taken).status == "ok", taken.reply


@pytest.mark.stands_for("faults")
@pytest.mark.stands_for("oldest")
def test_a_breakpoint_prompts_in_the_cell(kernel: Kernel) -> None:
    cell = kernel.execute(STOPS)
    person = Person(kernel, cell)

    assert person.prompt() == "worker-1 (Pdb) "
    shown = time.time()
    # Lines, texts and prompts have different channels.
    kernel.wait_text(cell, "\n-> ")
    kernel.wait_text(cell, "hit ")
    hit = next(line for line in cell.text.splitlines() if "hit " in line)
    print(f"hit to prompt {shown - float(hit.split()[-1]):.2f} s")
    # Python 3.13 stops at breakpoint() itself.
    assert re.search(r"worker-1 stands at line 1[12] in average\.", cell.text)
    assert re.search("^-> (breakpoint|return total / 2)", cell.text, re.MULTILINE)

    before = lines(cell, "step")
    kernel.wait(lambda: lines(cell, "step") > before + 3, "lines of the other replica")
    print(f"a command {person.asks('p total', '7'):.3f} s")
    person.says("total = 30", "c")

    kernel.finish(cell)
    assert cell.status == "ok", cell.text
    assert "mean 15.0" in cell.text
    assert "worker-1 goes on." in cell.text
    assert "ciao:debug" not in cell.text + str(cell.tables)
    logs = kernel.run("%ciao logs stops")
    assert "mean 15.0" in logs.text
    assert "ciao:debug" not in logs.text


def test_a_front_end_without_input_passes_breakpoints_over(shared: Kernel) -> None:
    loop = "for step in range(3):\n    breakpoint()\nprint('over')\n"

    done = shared.run(ONE + loop, allow_stdin=False)

    assert done.status == "ok", done.text
    sentence = "breakpoint() at line 5 is passed over: this front end has no input."
    assert done.text.count(sentence) == 1
    assert "over\n" in done.text


@pytest.mark.second("faults")
def test_a_job_that_nobody_follows_passes_breakpoints_over(shared: Kernel) -> None:
    shared.run(ONE + "%detach\nbreakpoint()\nprint('over')\n")

    log = shared.run("%ciao attach one")

    assert log.status == "ok", log.text
    assert "breakpoint() at line 5 is passed over: nobody follows a job with %detach." in log.text


@pytest.mark.second("faults")
def test_the_stop_button_closes_the_prompt_first(kernel: Kernel) -> None:
    cell = kernel.execute(STOPS)
    Person(kernel, cell).prompt()

    kernel.interrupt()
    kernel.wait_text(cell, "the prompt is closed, and worker-1 waits.")
    before = lines(cell, "step")
    kernel.wait(lambda: lines(cell, "step") > before + 3, "lines of the other replica")
    assert not cell.done
    assert len(cell.inputs) == 1  # it is not opened again by itself
    kernel.interrupt()

    kernel.finish(cell)
    assert cell.error == "KeyboardInterrupt"
    kernel.place.wait_empty()


@pytest.mark.second("faults")
def test_the_silence_of_the_next_try_is_noticed_after_a_closed_prompt(tmp_path: Path) -> None:
    one = Kernel(Place(tmp_path), env={"CIAO_SILENCE": "1"})
    one.run(PATIENT)
    body = """\
import os, pathlib, time

first = pathlib.Path("first")
if not first.exists():
    first.touch()
    print("pid", os.getpid(), flush=True)
    breakpoint()
print("second try", flush=True)
time.sleep(600)
"""
    try:
        cell = one.execute(f"{ONE}%retries=1\n{body}")
        Person(one, cell).prompt()
        one.interrupt()
        one.wait_text(cell, "the prompt is closed, and worker-0 waits.")
        found = re.search(r"pid (\d+)", cell.text)
        assert found
        os.kill(int(found[1]), signal.SIGKILL)  # it cannot say that it waits no longer
        one.wait_text(cell, "second try\n")
        silence = "no line for"
        one.wait(lambda: silence in cell.text.partition("second try\n")[2], silence)
        one.interrupt()
        one.finish(cell)
    finally:
        one.shutdown(now=True)
        one.place.kill_all()


@pytest.mark.second("faults")
def test_the_silence_after_the_end_of_a_child_is_noticed_after_its_closed_prompt(
    tmp_path: Path,
) -> None:
    one = Kernel(Place(tmp_path), env={"CIAO_SILENCE": "1"})
    one.run(PATIENT)
    body = """\
import os, time

child = os.fork()
if not child:
    print("child", os.getpid(), flush=True)
    breakpoint()
os.waitpid(child, 0)
print("its parent runs on", flush=True)
time.sleep(600)
"""
    try:
        cell = one.execute(ONE + body)
        Person(one, cell).prompt()
        one.interrupt()
        one.wait_text(cell, "the prompt is closed, and worker-0 waits.")
        found = re.search(r"child (\d+)", cell.text)
        assert found
        os.kill(int(found[1]), signal.SIGKILL)
        one.wait_text(cell, "its parent runs on\n")

        def noticed() -> bool:
            """Not that of its child before it came to its prompt."""
            late = cell.text.partition("its parent runs on\n")[2]
            return "no line for" in late and "worker-0  line 12" in late

        one.wait(noticed, "the notice of the parent's silence")
        one.interrupt()
        one.finish(cell)
    finally:
        one.shutdown(now=True)
        one.place.kill_all()


@pytest.mark.second("faults")
def test_another_front_end_takes_the_prompt_up(kernel: Kernel) -> None:
    cell = kernel.execute(STOPS)
    Person(kernel, cell).prompt()
    other = Kernel(kernel.place)
    other.run(PATIENT)
    try:
        refused = other.run("%ciao debug stops/worker-1")
        assert "worker-1 has its prompt open elsewhere." in refused.text
        stacks = other.run("%ciao stacks stops").text
        assert re.search(r"worker-1 +line 1[12] in average → its prompt of pdb", stacks), stacks
        kernel.interrupt()
        kernel.wait_text(cell, "`ciao debug stops/worker-1` opens it again.")
        waits_again(kernel)

        lets_it_go_on(other)
    finally:
        other.shutdown(now=True)

    assert kernel.finish(cell).status == "ok", cell.text
    assert "mean 3.5" in cell.text


@pytest.mark.second("faults")
def test_a_running_replica_stops_at_its_next_line(kernel: Kernel) -> None:
    loop = "import time\nruns = True\nwhile runs:\n    print('step', flush=True)\n"
    cell = kernel.execute(ONE + loop + "    time.sleep(0.02)\n")
    kernel.wait_text(cell, "step\n")
    other = Kernel(kernel.place)
    try:
        stop = other.execute("%ciao debug one/worker-0")
        person = Person(other, stop)
        assert person.prompt() == "worker-0 (Pdb) "
        person.asks("p 6 * 7", "42")
        person.says("runs = False", "c")
        assert other.finish(stop).status == "ok", stop.reply
    finally:
        other.shutdown(now=True)

    assert kernel.finish(cell).status == "ok", cell.text
    assert cell.inputs == []  # who asked for the stop has the prompt


@pytest.mark.second("faults")
def test_a_front_end_that_dies_leaves_the_replica_waiting(kernel: Kernel) -> None:
    cell = kernel.execute(STOPS)
    Person(kernel, cell).prompt()
    kernel.interrupt()
    kernel.wait_text(cell, "`ciao debug stops/worker-1` opens it again.")
    dies = Kernel(kernel.place)
    try:
        assert Person(dies, dies.execute("%ciao debug stops/worker-1")).prompt()
        dies.process.kill()
        dies.process.wait(60)
        waits_again(kernel)
    finally:
        dies.shutdown(now=True)

    other = Kernel(kernel.place)
    try:
        lets_it_go_on(other)
    finally:
        other.shutdown(now=True)

    assert kernel.finish(cell).status == "ok", cell.text
    assert "mean 3.5" in cell.text


@pytest.mark.second("faults")
def test_two_replicas_have_one_prompt_after_the_other(kernel: Kernel) -> None:
    cell = kernel.execute("%framework=python\n%worker=2\nimport os\nbreakpoint()\nprint('over')\n")
    person = Person(kernel, cell)

    first = person.prompt().partition(" ")[0]
    other = {"worker-0": "worker-1", "worker-1": "worker-0"}[first]
    kernel.wait_text(cell, "too; its prompt comes later.")
    assert re.search(rf"{other} stands at line [45] too;", cell.text)
    assert len(cell.inputs) == 1
    person.says("c")
    assert person.prompt() == f"{other} (Pdb) "
    person.says("c")

    assert kernel.finish(cell).status == "ok", cell.text
    assert cell.text.count("\x1b[0mover\n") == 2


@pytest.mark.second("faults")
def test_each_process_of_a_replica_has_a_prompt(kernel: Kernel) -> None:
    code = "import os\nchild = os.fork()\nbreakpoint()\nif child:\n    os.waitpid(child, 0)\n"
    cell = kernel.execute(ONE + code + "print('over')\n")
    person = Person(kernel, cell)

    for _ in range(2):
        assert person.prompt() == "worker-0 (Pdb) "
        person.says("c")

    assert kernel.finish(cell).status == "ok", cell.text
    assert cell.text.count("\x1b[0mover\n") == 2


@pytest.mark.second("faults")
def test_q_fails_the_replica(shared: Kernel) -> None:
    cell = shared.execute(ONE + "breakpoint()\nprint('over')\n")
    person = Person(shared, cell)
    person.prompt()
    person.says("q")

    shared.finish(cell)
    assert cell.error == "JobFailed"
    assert "BdbQuit" in str(cell.reply)
    assert "ciao:debug" not in str(cell.reply) + cell.text


@pytest.mark.second("faults")
def test_steps_further_breakpoints_and_detach(shared: Kernel) -> None:
    loop = [
        "for step in range(4):",
        "    print('open', end=' ', flush=True)",
        "    breakpoint()",
        "    print('step', step, flush=True)",
    ]
    cell = shared.execute(ONE + "\n".join(loop))
    person = Person(shared, cell)
    person.prompt()
    person.says("n", "b 5", "c", "c", "p step", "detach")

    shared.finish(cell)
    assert cell.status == "ok", cell.text
    assert "goes on, and passes later breakpoints over" in cell.text
    logs = shared.run("%ciao logs one").text
    assert logs.count("open step") == 4, logs  # the lines are what the program wrote


@pytest.mark.second("packages")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_process_of_torchrun_prompts(kernel: Kernel) -> None:
    pytest.importorskip("torch")
    body = "import os\nif os.environ['LOCAL_RANK'] == '1':\n    breakpoint()\n"
    body += "print('over', flush=True)\n"
    cell = kernel.execute("%framework=pytorch\n%name=ranks\n%nprocPerNode=2\n" + body)
    person = Person(kernel, cell)
    assert person.prompt(300) == "master-0.1 (Pdb) "
    person.asks("p os.environ['RANK']", "'1'")
    person.says("c")

    assert kernel.finish(cell, 300).status == "ok", cell.text
    log = kernel.run("%ciao logs ranks").text
    assert "[0] over" in log
    assert "[1] over" in log
    assert "[1] [1]" not in log
    assert "ciao:debug" not in log + cell.text


@pytest.mark.second("faults")
def test_warm_replicas_pass_breakpoints_over(kernel: Kernel) -> None:
    done = kernel.run("%framework=python\n%worker=1\n%warm\nbreakpoint()\nprint('over')\n")

    assert done.status == "ok", done.text
    assert "breakpoint() at line 4 is passed over: leave %warm out to debug." in done.text
    assert "over\n" in done.text


FAILS = """\
%framework=python
%worker=2
%name=fails
%lines=all
%onError=debug
import os, pathlib, time

done = pathlib.Path("done")

def mean(values):
    total = sum(values)
    return total / len(values)

if os.environ["CIAO_REPLICA"] == "worker-1":
    mean([])
step = 0
while not done.exists():
    step += 1
    print("step", step, flush=True)
    time.sleep(0.05)
"""


def test_a_failed_replica_prompts_at_its_error(kernel: Kernel) -> None:
    cell = kernel.execute(FAILS)
    person = Person(kernel, cell)

    assert person.prompt() == "worker-1 (Pdb) "
    kernel.wait_text(cell, "-> return total / len(values)")
    assert "worker-1 has failed at line 12 in mean: ZeroDivisionError: division by zero." in (
        cell.text
    )
    assert "It is kept there for 30m at most." in cell.text
    before = lines(cell, "step")
    kernel.wait(lambda: lines(cell, "step") > before + 3, "lines of the other replica")
    person.asks("p values", "[]")
    person.says("c")

    kernel.finish(cell)
    assert cell.error == "JobFailed"
    assert "ZeroDivisionError" in str(cell.reply)
    assert "worker-1 ends." in cell.text
    assert "ciao:debug" not in str(cell.reply) + cell.text


@pytest.mark.second("faults")
def test_replicas_that_fail_meanwhile_wait_for_the_prompt(kernel: Kernel) -> None:
    header = "%framework=python\n%worker=3\n%name=all\n%onError=debug:2h\n"
    cell = kernel.execute(f"{header}limit = 3\nraise ValueError(limit)\n")
    person = Person(kernel, cell)

    first = person.prompt().partition(" ")[0]
    others = {"worker-0", "worker-1", "worker-2"} - {first}
    for other in others:
        text = f"{other} has failed too, at line 6: ValueError: 3. It ends after {first}."
        kernel.wait_text(cell, text)
    person.asks("p limit * 7", "21")
    assert "It is kept there for 2h at most." in cell.text
    person.says("q")

    kernel.finish(cell)
    assert cell.error == "JobFailed"
    assert len(cell.inputs) == 2
    assert f"{first} ends." in cell.text
    kernel.place.wait_empty()


@pytest.mark.second("faults")
def test_the_second_press_of_stop_ends_a_job_with_a_failed_replica(kernel: Kernel) -> None:
    cell = kernel.execute(FAILS)
    Person(kernel, cell).prompt()

    kernel.interrupt()
    kernel.wait_text(cell, "the prompt is closed, and worker-1 waits.")
    assert not cell.done
    kernel.interrupt()

    kernel.finish(cell)
    assert cell.error == "KeyboardInterrupt"
    kernel.place.wait_empty()


@pytest.mark.second("faults")
def test_a_front_end_without_input_passes_an_error_over(shared: Kernel) -> None:
    done = shared.run(ONE + "%onError=debug\n1 / 0\n", allow_stdin=False)

    assert done.error == "JobFailed"
    assert "%onError=debug is passed over: this front end has no input." in done.text
    assert "ZeroDivisionError" in str(done.reply)


@pytest.mark.second("faults")
@pytest.mark.parametrize(
    ("directive", "needs", "hint"),
    [
        ("%warm", "replicas of its own", "%warm"),
        ("%inspect=off", "ciao's debugger in the replicas", "Write %inspect=on, or leave"),
        ("%retries=2", "a failed program that is not started again", "%retries"),
        ("%restartPolicy=OnFailure", "a failed program that is not started again",
         "%restartPolicy"),
        ("%framework=pytorch\n%min=1", "a failed program that is not started again",
         "%min and %max"),
    ],
)  # fmt: skip
def test_a_job_that_cannot_keep_an_error_is_refused(
    shared: Kernel, directive: str, needs: str, hint: str
) -> None:
    framework = "" if "%framework" in directive else "%framework=python\n"
    done = shared.run(f"{framework}%worker=1\n{directive}\n%onError=debug\n1 / 0\n")

    assert done.error == "DirectiveError"
    assert f"%onError=debug needs {needs}." in str(done.reply)
    assert hint in str(done.reply)


@pytest.mark.second("packages")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_of_torchrun_the_first_failed_process_prompts(kernel: Kernel) -> None:
    pytest.importorskip("torch")
    body = """\
import os
import torch, torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
loss = torch.ones(2) * rank
if rank == 1:
    loss.reshape(3)
dist.all_reduce(loss)
"""
    header = "%framework=pytorch\n%name=ranks\n%nprocPerNode=2\n%onError=debug\n"
    cell = kernel.execute(header + body)
    person = Person(kernel, cell)
    assert person.prompt(300) == "master-0.1 (Pdb) "
    person.asks("p rank, loss.tolist()", "(1, [1.0, 1.0])")
    person.says("c")

    kernel.finish(cell, 300)
    assert cell.error == "JobFailed"
    assert "invalid for input of size 2" in str(cell.reply)
    assert len(cell.inputs) == 2  # the agent of torchrun fails too
    log = kernel.run("%ciao logs ranks").text
    assert log.count("RuntimeError: shape '[3]' is invalid") == 1, log


@pytest.mark.second("packages")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_of_mpi_the_first_failed_rank_prompts_and_the_others_live_on(kernel: Kernel) -> None:
    pytest.importorskip("mpi4py")
    header = "%framework=mpi\n%worker=2\n%slots=2\n%name=ranks\n%lines=all\n%onError=debug\n"
    cell = kernel.execute(header + prompts.RANKS)
    person = Person(kernel, cell)
    assert person.prompt(300) == "worker-1.1 (Pdb) "
    kernel.wait_text(cell, "worker-1.1 has failed at line 13 in train: ValueError: bad shard.")
    before = lines(cell, "step")
    kernel.wait(lambda: lines(cell, "step") > before + 3, "lines of the other ranks")
    person.asks("p shard, rank", "(3, 3)")
    person.asks("p __import__('os').environ['LOCAL_RANK']", "'1'")  # the worker has two
    person.asks("u", "-> train(rank)")
    person.says("c")

    kernel.finish(cell, 300)
    assert cell.error == "JobFailed"
    assert "ValueError: bad shard" in str(cell.reply)
    assert "worker-1.1 ends." in cell.text
    assert "ciao:debug" not in str(cell.reply) + cell.text
    log = kernel.run("%ciao logs ranks").text
    assert log.count("ValueError: bad shard") == 1, log
    kernel.place.wait_empty()


@pytest.mark.second("packages")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_process_of_torchrun_is_chosen_by_its_number(kernel: Kernel) -> None:
    pytest.importorskip("torch")
    body = "import os, pathlib, time\ndone = pathlib.Path('done')\nprint('on', flush=True)\n"
    body += "while not done.exists():\n    time.sleep(0.02)\n"
    cell = kernel.execute("%framework=pytorch\n%name=ranks\n%nprocPerNode=2\n" + body)
    for rank in "01":
        kernel.wait_text(cell, f"[{rank}] on\n", 300)
    other = Kernel(kernel.place)
    try:
        stop = other.execute("%ciao debug ranks/master-0.1")
        person = Person(other, stop)
        assert person.prompt() == "master-0.1 (Pdb) "
        person.asks("p os.environ['RANK']", "'1'")
        person.says("done.touch()", "c")
        assert other.finish(stop).status == "ok", stop.reply
        assert "master-0.1 stops at its next line of the program" in stop.text
        none = other.run("%ciao debug ranks/master-0.x")
        assert "'x' is no number of a process." in str(none.reply)
    finally:
        other.shutdown(now=True)

    assert kernel.finish(cell, 300).status == "ok", cell.text


@pytest.mark.second("faults")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_replica_whose_asker_is_killed_goes_on(tmp_path: Path) -> None:
    place = Place(tmp_path)
    one = Kernel(place, env={"CIAO_DEBUG_WAIT": "30"})
    other = Kernel(place)
    try:
        loop = "import time\nprint('on', flush=True)\nruns = True\nwhile runs:\n"
        submitted = one.run(f"{ONE}%detach\n{loop}    time.sleep(0.02)\nprint('over')\n")
        assert submitted.status == "ok", submitted.text
        follows = one.execute("%ciao attach one", allow_stdin=False)
        one.wait_text(follows, "on\n")
        stop = other.execute("%ciao debug one/worker-0")
        person = Person(other, stop)
        assert person.prompt() == "worker-0 (Pdb) "
        person.says("runs = False", "p runs")
        other.wait_text(stop, "False")
        other.process.kill()
        other.process.wait(60)

        assert one.finish(follows, 300).status == "ok", follows.text
        assert "for 30 s: it goes on." in follows.text
        assert "over\n" in follows.text
    finally:
        one.shutdown(now=True)
        other.shutdown(now=True)
        place.kill_all()
