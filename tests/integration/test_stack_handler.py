"""The handler in real processes, asked by the real reader: wherever they stand, they go on."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import statistics
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.delivery import inspection, site_folder
from ciao_kernel.delivery.inspection import (
    answers,
    process_state,
    program_texts,
    sampler,
    stack_reader,
)
from ciao_kernel.frameworks import in_process, jax_rank, mpi_rank
from ciao_kernel.model import Source, SourceFile
from ciao_kernel.model.stacks import Answer, ProcessStacks

PATIENCE = 60.0
WINDOWS = int(os.environ.get("CIAO_TEST_WINDOWS", "0"))
"""Windows in which rates are compared; 0 is a single short one, whose rate says little."""
WINDOW = 3.0 if WINDOWS else 1.0
"""Seconds of each."""
PYTHON = os.environ.get("CIAO_TEST_PYTHON", sys.executable)


class Programs:
    """Programs with the handler, and their mark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = f"CIAO_JOB={secrets.token_hex(8)}"
        self.started: list[subprocess.Popen[str]] = []
        source = inspection.with_files(Source(SourceFile("program.py", b"")))
        for file in source.own:
            path = folder / file.path
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(file.data or b"")

    def start(self, text: str, *options: str, **variables: str) -> subprocess.Popen[str]:
        """Start a program, and wait until it has written a line."""
        path = self.folder / f"program{len(self.started)}.py"
        path.write_text(text)
        name, _, value = self.mark.partition("=")
        given = {**os.environ, "PYTHONPATH": site_folder.path(str(self.folder))}
        command = [PYTHON, "-u", *options, str(path)]
        made = subprocess.Popen(
            command,
            env={**given, name: value, **variables},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(made)
        assert made.stdout
        assert made.stdout.readline() == "begins\n"
        return made

    def has(self, module: str) -> bool:
        """Tell whether the programs can import a module."""
        words = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
        return subprocess.run([PYTHON, "-c", words]).returncode == 0

    def look(self, patience: float = 5.0) -> list[ProcessStacks]:
        found = stack_reader.look(self.mark, str(self.folder), patience)
        return [answers.process(one) for one in answers.read(_json(found))]

    def until(
        self, true: Callable[[list[ProcessStacks]], Any], patience: float = 5.0
    ) -> list[ProcessStacks]:
        """Look until something is true; a busy machine gets more time each time."""
        until = time.monotonic() + PATIENCE
        while not true(found := self.look(patience)):
            patience = min(5.0, 2 * patience)
            assert time.monotonic() < until, found
        return found


def _json(found: list[dict[str, Any]]) -> bytes:
    import json

    return json.dumps(found).encode()


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    made = Programs(tmp_path)
    yield made
    for pid in [pid for pid, _ in process_state.processes(made.mark)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for one in made.started:
        # A child that has just become another program was not among them, and holds the pipe.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)
        one.communicate()


def lines(one: ProcessStacks) -> dict[str, tuple[int, str]]:
    """The innermost line of the program in each thread."""
    found = {}
    for thread in one.threads:
        own = [frame for frame in thread.frames if frame.own]
        found |= {thread.name: (own[0].line, own[0].text)} if own else {}
    return found


BUSY = "print('begins')\nnumber = 0\nwhile True:\n    number += 1\n"
ASLEEP = "import time\nprint('begins')\ntime.sleep(1000)\n"
IN_C = "import hashlib\nprint('begins')\nhashlib.pbkdf2_hmac('sha256', b'a', b'b', 2**31 - 1)\n"


@pytest.mark.parametrize(
    ("program", "answer", "line"),
    [(BUSY, Answer.PYTHON, {3, 4}), (ASLEEP, Answer.PYTHON, {3}), (IN_C, Answer.C, {3})],
    ids=["python", "sleep", "c"],
)
def test_a_process_answers_from_where_it_stands(
    programs: Programs, program: str, answer: Answer, line: set[int]
) -> None:
    started = programs.start(program)
    patience = 0.3 if answer is Answer.C else 5.0
    for _ in range(3):
        found = programs.until(
            lambda all_: (
                all_[0].answer is answer
                and any(number in line for number, _ in lines(all_[0]).values())
            ),
            patience,
        )  # it may be asked while it still prints
        (one,) = found
        assert (one.pid, one.answer) == (started.pid, answer)
        ((number, text),) = lines(one).values()
        assert number in line
        assert text == program.split("\n")[number - 1].strip()
    assert started.poll() is None


def test_a_stack_shows_the_program_without_its_call(programs: Programs) -> None:
    _, *options, _ = jax_rank.CALLER.command(PYTHON, ("program.py",))
    programs.start(
        "import time\ndef work():\n    time.sleep(1000)\nprint('begins')\nwork()\n", *options
    )
    (one,) = programs.until(lambda all_: [*lines(all_[0]).values()] == [(3, "time.sleep(1000)")])
    (thread,) = one.threads
    assert [frame.line for frame in thread.frames] == [3, 5]


CALLERS = {"jax": jax_rank.CALLER, "mpi": mpi_rank.CALLER}


@pytest.mark.parametrize("caller", CALLERS.values(), ids=CALLERS)
def test_a_stack_in_c_and_a_profile_show_the_program_without_its_call(
    programs: Programs, caller: in_process.Caller
) -> None:
    _, *options, _ = caller.command(PYTHON, ("program.py",))
    started = programs.start(IN_C, *options)
    (one,) = programs.until(lambda all_: [*lines(all_[0]).values()] and all_[0].answer is Answer.C)
    (thread,) = one.threads
    program = (str(programs.folder / "program0.py"), 3, "<module>")
    assert [(frame.file, frame.line, frame.function) for frame in thread.frames] == [program]
    found: list[dict[str, Any]] = []
    until = time.monotonic() + PATIENCE
    while not (found and found[0]["stacks"]):
        found = sampler.sample(programs.mark, str(programs.folder), 0.5, _slept)
        assert time.monotonic() < until
    (told,) = found
    assert {tuple(frame[:3]) for frame in told["frames"]} == {program}
    assert started.poll() is None


def test_the_program_for_a_pod_asks_as_well(programs: Programs) -> None:
    started = programs.start(ASLEEP)
    # It may still print.
    programs.until(lambda all_: [*lines(all_[0]).values()] == [(3, "time.sleep(1000)")])
    text = program_texts.stacks(programs.mark, str(programs.folder), 5.0)
    command = [sys.executable, "-I", "-S", "-c", "exec(eval(input()))"]
    said = subprocess.run(command, input=repr(text) + "\n", capture_output=True, text=True)
    (one,) = [answers.process(one) for one in answers.read(said.stdout.encode())]
    assert (one.pid, one.answer, said.stderr) == (started.pid, Answer.PYTHON, "")
    assert [*lines(one).values()] == [(3, "time.sleep(1000)")]


def test_threads_that_wait_for_each_others_locks(programs: Programs) -> None:
    from tests.helpers import hangs

    started = programs.start(hangs.LOCKS)
    programs.until(
        lambda all_: (
            all_[0].answer is Answer.PYTHON
            and {"lend", "borrow"} <= set(lines(all_[0]))
            and {lines(all_[0])[name][1] for name in ("lend", "borrow")}
            == {"with second:", "with first:"}
            # The second thread may stand there before its start has returned.
            and lines(all_[0])["MainThread"][1] == "one.join()"
        )
    )
    assert started.poll() is None


def test_children_by_fork_and_spawn(programs: Programs) -> None:
    started = programs.start(
        "import multiprocessing, time\n"
        "def work():\n    time.sleep(1000)\n"
        "if __name__ == '__main__':\n"
        "    for way in ('fork', 'spawn', 'forkserver'):\n"
        "        multiprocessing.get_context(way).Process(target=work).start()\n"
        "    print('begins')\n    time.sleep(1000)\n"
    )

    def at_work(found: list[ProcessStacks]) -> list[ProcessStacks]:
        there = [one for one in found if (3, "time.sleep(1000)") in lines(one).values()]
        return [one for one in there if one.answer is Answer.PYTHON]

    found = programs.until(lambda all_: len(at_work(all_)) == 3)
    parents = [one.parent for one in at_work(found)]
    assert parents.count(started.pid) == 2  # and the fork server


CHILDREN = "for i in $(seq 70); do sleep 1000 & done; echo begins; wait"
"""A program with more children than are asked, as of the data loaders of several processes."""


@pytest.mark.parametrize("way", ["stacks", "samples"])
def test_no_replica_loses_its_own_processes_by_the_children_of_others(
    programs: Programs, way: str
) -> None:
    name, _, value = programs.mark.partition("=")

    def start(replica: str, *command: str) -> int:
        made = subprocess.Popen(
            command,
            env={**os.environ, name: value, "CIAO_REPLICA": replica},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        programs.started.append(made)
        return made.pid

    first = start("worker-0", "sh", "-c", CHILDREN)
    assert programs.started[0].stdout
    assert programs.started[0].stdout.readline() == "begins\n"
    own = {("worker-0", first)}
    # Behind the children, by its number, as a process that was started again is.
    own |= {(one, start(one, "sleep", "1000")) for one in ("worker-0", "worker-1")}
    if way == "stacks":
        found = stack_reader.look(programs.mark, str(programs.folder), 0.01)
    else:
        found = sampler.sample(programs.mark, str(programs.folder), 0.01, lambda _: False)
    told = [(one["replica"], one["pid"]) for one in found]
    assert own <= set(told)
    assert Counter(replica for replica, _ in told) == {"worker-0": 64, "worker-1": 1}
    assert told == sorted(told, key=lambda one: one[1])


@pytest.mark.parametrize("way", ["stacks", "samples"])
def test_a_rank_of_mpirun_in_a_pod_is_named_by_its_number(programs: Programs, way: str) -> None:
    """There no program has set LOCAL_RANK before it."""
    count = {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    started = [
        programs.start(ASLEEP, OMPI_COMM_WORLD_LOCAL_RANK=rank, **count) for rank in ("0", "1")
    ]
    if way == "stacks":
        found = stack_reader.look(programs.mark, str(programs.folder), 0.01)
    else:
        found = sampler.sample(programs.mark, str(programs.folder), 0.01, lambda _: False)
    assert {one["pid"]: one["rank"] for one in found} == {
        one.pid: rank for one, rank in zip(started, ("0", "1"), strict=True)
    }


def test_a_process_without_the_handler_gets_no_signal(programs: Programs) -> None:
    one = programs.start(ASLEEP, "-I")  # no PYTHONPATH
    other = programs.start("import os\nprint('begins')\nos.execvp('sleep', ['sleep', '1000'])\n")
    # A look before might send its signal to what is no longer Python then.
    while Path(f"/proc/{other.pid}/comm").read_text() != "sleep\n":
        time.sleep(0.01)
    assert {one.answer for one in programs.look()} == {Answer.NONE}
    assert one.poll() is None
    assert other.poll() is None


def test_a_program_that_has_closed_the_file_is_left_alone(programs: Programs) -> None:
    started = programs.start(
        "import os, time\nos.closerange(3, 100)\n"
        "files = [open('/proc/self/environ') for _ in range(9)]\n"
        "print('begins')\ntime.sleep(1000)\n"
    )
    (one,) = programs.look()
    assert one.answer is Answer.NONE
    os.kill(started.pid, int(signal.SIGRTMIN) + 6)
    programs.look()
    assert started.poll() is None


def test_a_program_keeps_its_own_signals_and_leaves_no_trace(programs: Programs) -> None:
    own = programs.folder / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text(
        "import signal\nsignal.signal(signal.SIGRTMIN + 6, lambda *_: None)\n"
        "signal.signal(signal.SIGRTMIN + 7, lambda *_: None)\nloaded = 1\n"
    )
    path = os.pathsep.join([site_folder.path(str(programs.folder)), str(own)])
    before = {entry.name for entry in programs.folder.iterdir()}
    text = "import sitecustomize, sys, time\nassert sitecustomize.loaded\n"
    text += (
        "assert not any('.ciao' in one for one in sys.path)\nprint('begins')\ntime.sleep(1000)\n"
    )
    programs.start(text, PYTHONPATH=path)
    # Its own handler takes the first question, and it may still print.
    (one,) = programs.until(
        lambda all_: all_[0].answer is Answer.C and lines(all_[0]) == {"": (5, "time.sleep(1000)")},
        0.3,
    )
    assert one.threads
    assert {entry.name for entry in programs.folder.iterdir()} - before == {"program0.py"}


@pytest.mark.parametrize(
    "answer", ["[", "[[1, 2]]", "[1]", "[['a', True, [['f', 'x', 'g']]]]", "[" * 9999, "[]"]
)
def test_what_a_program_writes_into_the_file_is_no_answer(programs: Programs, answer: str) -> None:
    programs.start(
        "import os, signal, time\n"
        "name = next(n for n in os.listdir('/proc/self/fd')\n"
        "            if 'ciao' in os.readlink('/proc/self/fd/' + n))\n"
        f"text = {answer!r}.encode()\n"
        "for number in (6, 7):\n"
        "    signal.signal(signal.SIGRTMIN + number,\n"
        "                  lambda *_: os.write(int(name), text + bytes([10])))\n"
        "print('begins')\ntime.sleep(1000)\n"
    )

    def sleeps(found: list[ProcessStacks]) -> bool:
        texts = [text for _, text in lines(found[0]).values()]
        return found[0].answer is Answer.C and texts == ["time.sleep(1000)"]

    programs.until(sleeps, 0.3)


def test_two_readers_do_not_disturb_each_other(programs: Programs) -> None:
    import threading

    started = programs.start(IN_C)
    programs.until(lambda all_: all_[0].answer is Answer.C, 0.3)  # it may still print
    found: list[ProcessStacks] = []
    readers = [threading.Thread(target=lambda: found.extend(programs.look(0.5))) for _ in range(2)]
    for one in readers:
        one.start()
    for one in readers:
        one.join()
    assert {one.answer for one in found} <= {Answer.C, Answer.ASKED, Answer.SILENT}
    (one,) = programs.until(lambda all_: all_[0].answer is Answer.C, 0.3)
    assert started.poll() is None


PYTHON_LOOP = """
def work(depth=0):
    if depth < 50:
        return work(depth + 1)
    return sum(map(len, [str(n) for n in range(50)]))
"""
CALLS_LOOP = """
def call(number):
    return number
def work():
    list(map(call, range(200)))
"""
"""A library in C calls Python again and again: a stack is incomplete while a call begins."""
NUMPY_LOOP = """
import numpy
def work():
    a = numpy.ones((64, 64))
    for _ in range(20):
        a = numpy.tanh(a @ a)
"""
TORCH_LOOP = """
import torch
torch.set_num_threads(1)
a = torch.ones(64, 64)
def work():
    global a
    for _ in range(20):
        a = torch.tanh(a @ a) if a.sum() < 1e6 else torch.ones(64, 64)
"""
TENSORFLOW_LOOP = """
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(2)
x = tf.ones((64, 64))
@tf.function
def step(a):
    return tf.tanh(a @ x)
step(x)
def work():
    for _ in range(20):
        step(x)
"""
THREADS = """
import mmap, os, threading
with open(os.environ["STEPS"], "r+b") as file:
    done = memoryview(mmap.mmap(file.fileno(), 32)).cast("Q")
def loop(place):
    while True:
        work()
        done[place] += 1
for place in range(1, 4):
    threading.Thread(target=loop, args=(place,), daemon=True).start()
print("begins")
loop(0)
"""


class Busy:
    """A program that counts the steps of its four threads in a file.

    Args:
        programs: Starts it.
        work: Its step.
        path: The file.
    """

    def __init__(self, programs: Programs, work: str, path: Path) -> None:
        path.write_bytes(bytes(32))
        self.process = programs.start(work + THREADS, STEPS=str(path))
        self._path = path

    def read(self) -> tuple[int, float]:
        """Return the steps so far, and the seconds of processors that they took."""
        steps = sum(struct.unpack("4Q", self._path.read_bytes()))
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return steps, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rate(busy: list[Busy], meanwhile: Callable[[float], object]) -> float:
    """Return the steps of a second of processor time, while something is done for some seconds.

    A second of processor time is the same one when other tests run beside this one.
    """
    before = [one.read() for one in busy]
    meanwhile(WINDOW)
    gained = [
        (steps - old, used - old_used)
        for (old, old_used), (steps, used) in zip(before, map(Busy.read, busy), strict=True)
    ]
    return sum(steps for steps, _ in gained) / sum(used for _, used in gained)


def gains(busy: list[Busy], meanwhile: Callable[[float], object], windows: int) -> list[float]:
    """Return by how many percent the rate of each window differs from those without.

    Each window is compared with its neighbours: the machine's speed changes by more.
    """
    found, quiet = [], rate(busy, time.sleep)
    for _ in range(windows):
        asked, before = rate(busy, meanwhile), quiet
        quiet = rate(busy, time.sleep)
        found.append(100 * (2 * asked / (before + quiet) - 1))
    return found


@pytest.mark.stands_for("trials")
def test_a_profile_does_not_end_a_program_that_a_library_calls_often(programs: Programs) -> None:
    started = programs.start(CALLS_LOOP + "print('begins')\nwhile True:\n    work()\n")
    number, seen = 0, set[str]()
    while number < 200:  # a busy machine answers less often
        told = sampler.sample(programs.mark, str(programs.folder), 2.0, _slept)
        assert started.poll() is None
        (one,) = told
        number += sum(count for count, _ in one["stacks"])
        calls = {name for _, _, name, own, _ in one["frames"] if own}
        assert calls <= {"<module>", "work", "call"}
        seen |= calls
    assert {"<module>", "work"} <= seen


@pytest.mark.second("trials")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("work", "modules"),
    [
        (PYTHON_LOOP, ()),
        (CALLS_LOOP, ()),
        (NUMPY_LOOP, ("numpy",)),
        (TORCH_LOOP, ("torch",)),
        (TENSORFLOW_LOOP, ("tensorflow",)),
    ],
    ids=["python", "calls", "numpy", "torch", "tensorflow"],
)
def test_busy_threads_survive_many_questions(
    programs: Programs,
    work: str,
    modules: tuple[str, ...],
    tmp_path: Path,
    figure: Callable[[str], None],
) -> None:
    """CIAO_TEST_DUMPS: number of questions of %ciao stacks; after them come those of %ciao profile.

    CIAO_TEST_PYTHON: another interpreter for the programs.
    CIAO_TEST_WINDOWS: number of windows of three seconds in which the rate of their steps is
    compared; without it there is one of a second.
    """
    count = int(os.environ.get("CIAO_TEST_DUMPS", "100"))
    for one in modules:
        if not programs.has(one):
            pytest.skip(f"needs {one}")
    busy = [Busy(programs, work, tmp_path / f"steps{number}") for number in range(2)]
    answers_: Counter[Answer] = Counter()
    began = time.monotonic()
    for _ in range(count):
        answers_.update(one.answer for one in programs.look(0.2))
    figure(f"{dict(answers_)} in {time.monotonic() - began:.0f} s")
    assert [one.process.poll() for one in busy] == [None, None]
    assert answers_[Answer.PYTHON] or answers_[Answer.C]

    found: list[int] = []

    def profile(seconds: float) -> None:
        own = str(programs.folder)
        told = sampler.sample(programs.mark, own, seconds, _slept)
        found.extend(number for one in told for number, _ in one["stacks"])

    def ask(seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            programs.look(0.2)
            time.sleep(min(1.0, left))

    windows = WINDOWS or 1
    for what, meanwhile in (("asked once a second", ask), ("profiled", profile)):
        shares = gains(busy, meanwhile, windows)
        figure(
            f"{what}: steps a second of processor time {statistics.median(shares):+.1f} %, the "
            f"median of {windows} windows of {WINDOW:.0f} s from {min(shares):+.1f} to "
            f"{max(shares):+.1f} %"
        )
    until = time.monotonic() + PATIENCE
    while sum(found) < 100 and time.monotonic() < until:  # a busy machine gets more time
        profile(WINDOW)
    assert [one.process.poll() for one in busy] == [None, None]
    assert sum(found) >= 100


def _slept(seconds: float) -> bool:
    time.sleep(seconds)
    return True
