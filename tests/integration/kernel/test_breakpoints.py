"""breakpoint() in a replica: a prompt in the cell, in a real kernel with real replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.helpers.kernels import WAIT, Kernel, Place, Request

pytestmark = pytest.mark.stands_for("oldest")

# worker-1 stops; worker-0 writes lines until a file of worker-1 lets it end.
STOPS = """%framework=python
%worker=2
%name=stops
import os, pathlib, time

done = pathlib.Path("done")

def average(value):
    total = value + 1
    breakpoint()
    return total / 2

if os.environ["CIAO_REPLICA"] == "worker-1":
    print("mean", average(6), flush=True)
    done.touch()
step = 0
while not done.exists():
    step += 1
    print("step", step, flush=True)
    time.sleep(0.05)
"""


@pytest.fixture
def kernel(tmp_path: Any) -> Iterator[Kernel]:
    one = Kernel(Place(tmp_path))
    yield one
    one.shutdown(now=True)
    one.place.kill_all()


class Person:
    """Answers the prompts of a cell."""

    def __init__(self, kernel: Kernel, request: Request) -> None:
        self.kernel, self.request, self.seen = kernel, request, 0

    def prompt(self) -> str:
        """Wait for the next prompt."""
        self.seen += 1
        self.kernel.wait(
            lambda: len(self.request.inputs) >= self.seen or self.request.done, "a prompt"
        )
        assert len(self.request.inputs) >= self.seen, self.request.text
        return str(self.request.inputs[self.seen - 1]["content"]["prompt"])

    def says(self, line: str) -> None:
        self.kernel.kc.input(line)

    def until(self, true: Callable[[], Any], what: str) -> None:
        self.kernel.wait(lambda: bool(true()), what, WAIT)


def lines(request: Request, begin: str) -> int:
    return sum(begin in line for line in request.text.splitlines())


def test_a_breakpoint_prompts_in_the_cell(kernel: Kernel) -> None:
    cell = kernel.execute(STOPS)
    person = Person(kernel, cell)

    assert person.prompt() == "worker-1 (Pdb) "
    assert "worker-1 stands at line 11 in average" in cell.text
    assert "-> return total / 2" in cell.text

    before = lines(cell, "step")
    person.until(lambda: lines(cell, "step") > before + 3, "lines of the other replica")
    person.says("p total")
    person.prompt()
    person.until(lambda: "\n7\n" in cell.text, "the value")
    person.says("total = 30")
    person.prompt()
    person.says("c")

    kernel.finish(cell)
    assert cell.status == "ok", cell.text
    assert "mean 15.0" in cell.text
    assert "worker-1 goes on." in cell.text
    assert "ciao:debug" not in cell.text + str(cell.tables)
    logs = kernel.run("%ciao logs stops")
    assert "mean 15.0" in logs.text
    assert "ciao:debug" not in logs.text


def test_a_front_end_without_input_passes_breakpoints_over(kernel: Kernel) -> None:
    job = "%framework=python\n%worker=1\nfor step in range(3):\n    breakpoint()\nprint('over')\n"

    done = kernel.run(job, allow_stdin=False)

    assert done.status == "ok", done.text
    sentence = "breakpoint() at line 4 is passed over: this front end has no input."
    assert done.text.count(sentence) == 1
    assert "over\n" in done.text


def test_a_job_that_nobody_follows_passes_breakpoints_over(kernel: Kernel) -> None:
    kernel.run("%framework=python\n%worker=1\n%name=alone\n%detach\nbreakpoint()\nprint('over')\n")

    log = kernel.run("%ciao attach alone")

    assert log.status == "ok", log.text
    assert "breakpoint() at line 5 is passed over: nobody follows a job with %detach." in log.text


def test_the_stop_button_closes_the_prompt_first(kernel: Kernel) -> None:
    cell = kernel.execute(STOPS)
    person = Person(kernel, cell)
    person.prompt()

    kernel.interrupt()
    kernel.wait_text(cell, "the prompt is closed, and worker-1 waits.")
    before = lines(cell, "step")
    person.until(lambda: lines(cell, "step") > before + 3, "lines of the other replica")
    assert not cell.done
    assert len(cell.inputs) == 1  # it is not opened again by itself
    kernel.interrupt()

    kernel.finish(cell)
    assert cell.error == "KeyboardInterrupt"
    kernel.place.wait_empty()


def test_two_replicas_have_one_prompt_after_the_other(kernel: Kernel) -> None:
    cell = kernel.execute("%framework=python\n%worker=2\nimport os\nbreakpoint()\nprint('over')\n")
    person = Person(kernel, cell)

    first = person.prompt().partition(" ")[0]
    other = {"worker-0": "worker-1", "worker-1": "worker-0"}[first]
    kernel.wait_text(cell, f"{other} stands at line 5 too; its prompt comes later.")
    assert len(cell.inputs) == 1
    person.says("c")
    assert person.prompt() == f"{other} (Pdb) "
    person.says("c")

    assert kernel.finish(cell).status == "ok", cell.text
    assert cell.text.count("\x1b[0mover\n") == 2


def test_q_fails_the_replica(kernel: Kernel) -> None:
    cell = kernel.execute("%framework=python\n%worker=1\nbreakpoint()\nprint('over')\n")
    person = Person(kernel, cell)
    person.prompt()
    person.says("q")

    kernel.finish(cell)
    assert cell.error == "JobFailed"
    assert "BdbQuit" in str(cell.reply)
    assert "ciao:debug" not in str(cell.reply) + cell.text


def test_steps_further_breakpoints_and_detach(kernel: Kernel) -> None:
    job = "\n".join(
        [
            "%framework=python",
            "%worker=1",
            "for step in range(4):",
            "    print('open', end=' ', flush=True)",
            "    breakpoint()",
            "    print('step', step, flush=True)",
        ]
    )
    cell = kernel.execute(job)
    person = Person(kernel, cell)
    for line in ("n", "b 4", "c", "c", "p step", "detach"):
        person.prompt()
        person.says(line)

    kernel.finish(cell)
    assert cell.status == "ok", cell.text
    assert "goes on, and passes later breakpoints over" in cell.text
    logs = kernel.run("%ciao logs --replica worker-0 " + name(cell)).text
    assert logs.count("open step") == 4, logs  # the lines are what the program wrote


def name(cell: Request) -> str:
    return cell.tables[0].partition(":")[0]
