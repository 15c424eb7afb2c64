"""Processes at a prompt: forked, killed, interrupted by a signal while nobody is there, failed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.delivery import inspection, site_folder
from ciao_kernel.delivery.inspection import (
    debug_bridge,
    debug_wire,
    process_state,
    program_texts,
    stack_reader,
)
from ciao_kernel.frameworks import jax_rank, mpi_rank
from ciao_kernel.model import Source, SourceFile

FORKS = """
import os
def work(value):
    return value + 1
breakpoint()
child = os.fork()
if not child:
    work(6)
    os._exit(7)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
RAISES = """
import signal
def stop(*_):
    raise RuntimeError
signal.signal(signal.SIGUSR1, stop)
try:
    breakpoint()
    while True:
        pass
except RuntimeError:
    pass
breakpoint()
print("over")
"""


Call = Callable[[str, Sequence[str]], Sequence[str]]


def plain(python: str, program: Sequence[str]) -> Sequence[str]:
    return (python, *program)


class Program:
    """A process with the debugger of a replica.

    Args:
        folder: Folder of the program.
        text: The program.
        call: Returns the command that runs a program with an interpreter.
        options: Those of :func:`ciao_kernel.delivery.inspection.with_files`.
    """

    def __init__(self, folder: Path, text: str, call: Call = plain, **options: Any) -> None:
        self._folder = site_folder.path(str(folder))
        source = inspection.with_files(Source(SourceFile("program.py", text.encode())), **options)
        for file in (source.entry, *source.own):
            path = folder / file.path
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(file.data or b"")
        self.mark = f"CIAO_JOB={folder}"
        self.process = subprocess.Popen(
            call(sys.executable, (str(folder / "program.py"),)),
            env={**os.environ, "CIAO_JOB": str(folder), "PYTHONPATH": self._folder},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def marker(self) -> dict[str, Any]:
        """Return the next marker of the process."""
        assert self.process.stderr
        for line in self.process.stderr:
            if line.startswith(debug_wire.MARKER.encode()):
                found: dict[str, Any] = json.loads(line[len(debug_wire.MARKER) :])
                return found
        raise AssertionError("the process has ended")

    def ends(self) -> tuple[int, str, str]:
        """Wait for the end of the process; return its exit code and what was not read yet.

        communicate() would pass over what the streams have read ahead.
        """
        assert self.process.stdout
        assert self.process.stderr
        err, out = self.process.stderr.read(), self.process.stdout.read()
        return self.process.wait(), out.decode(), err.decode()

    def connect(self, pid: int = 0, rank: str = "") -> socket.socket | int:
        return debug_bridge.connect(self.mark, "", pid, [self._folder], rank)

    def front_end(self, pid: int = 0, rank: str = "") -> FrontEnd:
        connection = self.connect(pid, rank)
        assert not isinstance(connection, int), connection
        return FrontEnd(connection)


class FrontEnd:
    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._lines = connection, connection.makefile()

    def hears(self) -> dict[str, str]:
        said: dict[str, str] = json.loads(self._lines.readline())
        return said

    def says(self, line: str) -> dict[str, str]:
        self._connection.sendall(json.dumps({"line": line + "\n"}).encode() + b"\n")
        return self.hears()

    def close(self) -> None:
        self._lines.close()
        self._connection.close()


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Any]:
    made: list[Program] = []

    def start(text: str, **options: Any) -> Program:
        made.append(Program(tmp_path, text, **options))
        return made[-1]

    yield start
    for one in made:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.process.pid, signal.SIGKILL)  # what it has started holds its streams
        one.process.communicate()


def test_a_forked_process_stops_at_a_breakpoint_of_its_parent(programs: Any) -> None:
    program = programs(FORKS)
    program.marker()
    parent = program.front_end()
    parent.hears()
    parent.says("b work")
    assert parent.says("c")["end"] == "goes on"
    assert program.marker()["over"]

    found = program.marker()
    assert found["pid"] != program.process.pid
    child = program.front_end(found["pid"])
    child.hears()
    assert child.says("p value")["out"] == "6\n"
    assert child.says("c")["end"] == "goes on"
    _, out, err = program.ends()
    assert out == "child 7\n", err


@pytest.mark.parametrize(
    "call", [jax_rank.CALLER.command, mpi_rank.CALLER.command], ids=["jax", "mpi"]
)
def test_a_prompt_shows_the_program_without_its_call(call: Call, programs: Any) -> None:
    program = programs("def work():\n    breakpoint()\n    return 1\nwork()\n", call=call)
    program.marker()
    front = program.front_end()
    front.hears()
    stack = front.says("w")["out"]
    assert re.findall(r"program\.py|<string>", stack) == ["program.py", "program.py"]
    front.says("up")
    assert "Oldest frame" in front.says("up")["out"]
    said = ""
    for _ in range(5):  # the lines of the program and the ends of its two frames
        said = front.says("n")["out"]
        assert "<string>" not in said
        if "<module>()->None" in said:
            break
    assert "--Return--" in said
    assert "threading.py" in front.says("n")["out"]  # the end of Python, as without ciao


def test_a_signal_while_nobody_is_there_leaves_the_next_prompt(programs: Any) -> None:
    program = programs(RAISES)
    program.marker()
    front = program.front_end()
    front.hears()
    front.close()
    assert program.marker()["again"]
    program.process.send_signal(signal.SIGUSR1)

    program.marker()
    front = program.front_end()
    front.hears()
    assert front.says("c")["end"] == "goes on"
    _, out, err = program.ends()
    assert out == "over\n", err


def test_only_a_process_with_a_front_end_is_open_elsewhere(programs: Any, tmp_path: Path) -> None:
    program = programs("breakpoint()\nimport time\nprint('on', flush=True)\ntime.sleep(600)")
    program.marker()
    front = program.front_end()
    front.hears()
    assert program.connect() == debug_bridge.OPEN
    folder = tmp_path / site_folder.FOLDER / f"{debug_wire.FOLDER}{program.process.pid}"
    assert [one.name for one in folder.iterdir()] == [debug_wire.OPEN]

    front.says("c")
    assert program.process.stdout.readline() == b"on\n"
    assert program.connect() == debug_bridge.NOBODY
    folder.mkdir(0o700)  # as a killed process with the same number leaves it
    (folder / debug_wire.OPEN).write_text("1")
    assert program.connect() == debug_bridge.NOBODY


def test_the_program_for_a_pod_carries_a_conversation(programs: Any, tmp_path: Path) -> None:
    program = programs("breakpoint()\nprint('over')\n")
    program.marker()
    places = [site_folder.path(str(tmp_path))]

    def carried(rank: str) -> subprocess.Popen[str]:
        text = program_texts.bridge(program.mark, "", 0, places, rank)
        command = [sys.executable, "-I", "-S", "-c", "exec(eval(input()))"]
        pipe = subprocess.PIPE
        made = subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe)
        assert made.stdin
        made.stdin.write(repr(text) + "\n")
        made.stdin.flush()
        return made

    other = carried("1")
    assert other.communicate() == ("", "")
    assert other.returncode == debug_bridge.NOBODY
    front = carried("")
    assert front.stdin
    assert front.stdout
    assert "(Pdb)" in json.loads(front.stdout.readline())["prompt"]
    front.stdin.write('{"line": "c\\n"}\n')
    front.stdin.flush()
    assert json.loads(front.stdout.readline())["end"] == "goes on"
    front.communicate()
    assert program.ends()[:2] == (0, "over\n")


FAILS = """
import atexit
atexit.register(print, "over", flush=True)
def work(value):
    return 1 // value
work(0)
"""
ERROR = "ZeroDivisionError: integer division or modulo by zero"


@pytest.mark.parametrize("leave", ["c", "q", "n", "detach"])
def test_a_program_that_fails_is_kept_at_its_error(programs: Any, leave: str) -> None:
    program = programs(FAILS, kept_for=600)
    assert program.process.stderr.readline() == b"Traceback (most recent call last):\n"

    found = program.marker()  # behind the whole traceback
    assert (found["failed"], found["at"]) == (ERROR, "line 5 in work")
    front = program.front_end()
    assert "-> return 1 // value\n" in front.hears()["out"]
    assert front.says("p value")["out"] == "0\n"
    assert "-> work(0)\n" in front.says("u")["out"]
    assert front.says(leave)["end"] == "ends"

    assert program.marker()["over"]
    assert program.ends() == (1, "over\n", "")


@pytest.mark.second("faults")
@pytest.mark.slow
def test_a_failed_program_ends_when_its_time_is_over(programs: Any) -> None:
    program = programs(FAILS, kept_for=30)  # to connect, also on a busy machine
    program.marker()
    front = program.front_end()
    front.hears()

    assert front.hears()["end"] == "ends, because its time is over"
    code, _, err = program.ends()
    assert code == 1
    assert err.endswith("The time of %onError=debug is over.\n")


def test_a_failed_program_that_nobody_opens_ends_when_its_time_is_over(programs: Any) -> None:
    program = programs(FAILS, kept_for=5)
    program.marker()

    assert program.marker()["over"]
    assert program.ends() == (1, "over\n", "The time of %onError=debug is over.\n")


def test_a_failed_program_waits_for_the_next_front_end(programs: Any) -> None:
    program = programs(FAILS, kept_for=600)
    program.marker()
    front = program.front_end()
    front.hears()
    front.close()

    found = program.marker()
    assert (found["again"], found["failed"]) == (True, ERROR)
    assert program.front_end().says("p value")["prompt"] == "(Pdb) "


def test_an_error_in_a_step_has_the_open_prompt(programs: Any) -> None:
    program = programs("breakpoint()\nvalue = 0\nprint(1 // value)\n", kept_for=600)
    assert not program.marker()["failed"]
    front = program.front_end()
    front.hears()
    said = front.says("n")
    for _ in range(20):  # to the error, and to the end of the program
        if "end" in said:
            break
        said = front.says("n")

    assert said["end"] == "ends"
    assert program.marker()["failed"] == ERROR
    assert program.marker()["over"]
    assert program.ends()[0] == 1


@pytest.mark.parametrize(
    "text",
    [
        "raise SystemExit(1)",
        "raise KeyboardInterrupt",
        "import bdb\nraise bdb.BdbQuit",
        "import sys\nsys.excepthook(OSError, OSError(), None)\nsys.exit(1)",  # as of torchrun
    ],
)
def test_what_is_no_error_of_the_program_is_not_kept(programs: Any, text: str) -> None:
    program = programs(text, kept_for=600)

    code, _, err = program.ends()
    assert code
    assert debug_wire.MARKER not in err


def test_an_error_is_passed_over_where_nobody_can_answer(programs: Any) -> None:
    program = programs(FAILS, kept_for=600, passed_over="this front end has no input")

    code, _, err = program.ends()
    assert code == 1
    first, *_, last = err.splitlines()
    assert first == "%onError=debug is passed over: this front end has no input."
    assert last == ERROR
    assert debug_wire.MARKER not in err


HOOK = """
import io, sys
before = sys.excepthook
def hook(*error):
    stderr, sys.stderr = sys.stderr, io.StringIO()
    before(*error)
    stderr, sys.stderr = sys.stderr, stderr
    sys.stderr.write(f"[rank0]: {stderr.getvalue()}")
sys.excepthook = hook
1 // 0
"""


def test_a_hook_that_prints_later_gets_no_second_traceback(programs: Any) -> None:
    program = programs(HOOK, kept_for=600)
    assert program.process.stderr.readline() == b"Traceback (most recent call last):\n"
    program.marker()
    front = program.front_end()
    front.hears()
    front.says("c")

    program.marker()
    assert program.ends() == (1, "", "[rank0]: The prompt of %onError=debug is over.\n")


RUNS = """
import time
runs = True
print("on", flush=True)
while runs:
    time.sleep(0.01)
print("over")
"""


@pytest.mark.second("faults")
@pytest.mark.slow
def test_a_stopped_program_whose_asker_is_gone_goes_on(programs: Any) -> None:
    program = programs(RUNS, wait=30)
    assert program.process.stdout.readline() == b"on\n"
    assert stack_reader.halt(program.mark, "", 60) == "stops"
    assert program.marker()["asked"]
    front = program.front_end()
    front.hears()
    front.says("b 5")  # it would stop there again
    front.says("runs = False")
    front.close()

    assert program.marker()["again"]
    line = program.process.stderr.readline().decode()
    assert re.fullmatch(r"Nobody was at the prompt of line [56] for 30 s: it goes on\.\n", line)
    assert program.marker()["over"]
    assert program.ends() == (0, "over\n", "")


def test_a_breakpoint_of_the_program_waits_for_ever(programs: Any) -> None:
    program = programs("import time\nbreakpoint()\nprint('over')\n", wait=0.01)
    program.marker()

    with pytest.raises(subprocess.TimeoutExpired):  # a hundred times as long
        program.process.wait(1)
    assert "(Pdb)" in program.front_end().hears()["prompt"]


RANKS = """
import os, subprocess, sys, time
NAME, COUNT = "LOCAL_RANK", "LOCAL_WORLD_SIZE"
if NAME not in os.environ:
    started = [
        subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, NAME: str(rank), COUNT: "2"},
        )
        for rank in range(2)
    ]
    sys.exit(sum(one.wait() for one in started))
runs = os.environ[NAME] == "1"
print("on", flush=True)
while runs:
    time.sleep(0.01)
breakpoint()
"""


@pytest.mark.parametrize(("name", "count"), process_state.LOCAL_RANKS)
def test_a_process_of_a_replica_is_chosen_by_its_number(
    name: str, count: str, programs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    program = programs(RANKS.replace('"LOCAL_RANK", "LOCAL_WORLD_SIZE"', f'"{name}", "{count}"'))
    assert program.marker()["rank"] == "0"
    assert program.connect(rank="1") == debug_bridge.NOBODY
    assert program.process.stdout.read(6) == b"on\non\n"

    assert stack_reader.halt(program.mark, "", 60, "2") == ""
    assert stack_reader.halt(program.mark, "", 60, "1") == "stops"
    assert program.marker()["rank"] == "1"
    fronts = [program.front_end(rank=rank) for rank in "01"]
    assert [front.hears()["rank"] for front in fronts] == ["0", "1"]
    fronts[1].says("runs = False")
    fronts[1].says("detach")
    fronts[0].says("c")
    assert program.ends()[0] == 0


@pytest.mark.second("faults")
@pytest.mark.slow
def test_a_prompt_in_which_nobody_types_counts_as_nobody(programs: Any) -> None:
    program = programs(RUNS, wait=30)
    assert program.process.stdout.readline() == b"on\n"
    assert stack_reader.halt(program.mark, "", 60) == "stops"
    program.marker()
    front = program.front_end()
    front.hears()

    assert front.hears()["end"] == "goes on"
    assert program.process.poll() is None
